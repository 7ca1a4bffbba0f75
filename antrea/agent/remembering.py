"""What antrea-controller said last: an agent begins with it, and keeps what it hears from then on."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Final

from antrea.facts.service import Service
from antrea.features.network_policy.service import named_services
from antrea.outside.last_word import LastWord

if TYPE_CHECKING:
    from collections.abc import Iterable

    from antrea.agent.word import Word
    from antrea.engine import Facts
    from antrea.facts.fact import Fact
    from antrea.features.feature import AgentFeature
    from antrea.features.network_policy.service import Keep
    from antrea.outside.controlplane import Controlplane

FILE: Final = Path("/var/lib/antrea/last-word")
"""Outlives a reboot."""


class Remembering:
    """The rows of these features' watches, the Services that they name, and which Pods all of that covers."""

    def __init__(
        self, facts: Facts, controlplane: Controlplane, word: Word, features: Iterable[AgentFeature]
    ) -> None:
        self._facts, self._controlplane, self._word = facts, controlplane, word
        kinds = [kind for feature in features for watch in feature.watches for kind in watch.facts]
        self._file = LastWord(FILE, [*kinds, Service])
        self._changed = asyncio.Event()

    async def run(self) -> None:
        """For ever; what was kept is there when it waits for the first time."""
        last = self._file.read()
        for row in last.rows:
            self._facts.put(row)
        self._word.earlier = frozenset(last.covered)
        self._controlplane.listeners.append(self._changed.set)
        await self._file.follow(self._changed, self._rows, self._word.all_covered)

    async def keep(self, _: Keep) -> None:
        """Services have changed that rules name."""
        self._changed.set()

    def _rows(self) -> list[Fact] | None:
        rows = self._controlplane.rows()
        return None if rows is None else [*rows, *named_services(self._facts)]
