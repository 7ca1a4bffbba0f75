"""Queries of the aggregated API that no store holds: each is a function over the controller's facts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from antrea.engine import Facts


class Query(msgspec.Struct, frozen=True):
    """Query: the object's name, the parameters and the posted object, None for get and delete."""

    namespace: str
    name: str
    query: Mapping[str, str] = {}
    posted: Any = None


Answer = Callable[[Facts, Query], msgspec.Struct | None]
"""Function that answers a query, None if there is no such object. Raises Invalid for client errors, Unavailable."""
Answers = Mapping[tuple[str, str, str], Answer]
"""Answers by resource, subresource and verb."""
