"""Where facts come from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from antrea.engine.core.facts import Facts


class Feed(Protocol):
    """Lists, then watches, and writes facts."""

    async def run(self, facts: Facts) -> None: ...
