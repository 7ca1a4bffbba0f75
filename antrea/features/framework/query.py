"""Queries of the aggregated API that no store holds: each is a function over the controller's facts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from antrea.engine import Facts


class Asked(msgspec.Struct, frozen=True):
    """One question: the object's name, the query and the posted object, None for get and delete."""

    namespace: str
    name: str
    query: Mapping[str, str] = {}
    found: Any = None


Answer = Callable[[Facts, Asked], msgspec.Struct | None]
"""None: there is no such object. Raises Invalid for what the client must change, Unavailable."""
Answers = Mapping[tuple[str, str, str], Answer]
"""By resource, subresource and verb."""
