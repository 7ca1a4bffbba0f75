"""Cached state of antrea-controller: an agent starts with it, and saves each later change."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Final

from antrea.outside.controlplane.state_cache import StateCacheFile
from antrea.outside.log import klog

if TYPE_CHECKING:
    from collections.abc import Iterable

    from antrea.agent.cni.policy_gate import PolicyGate
    from antrea.engine import Facts
    from antrea.facts.fact import Fact
    from antrea.features.framework.agent_feature import AgentFeature
    from antrea.outside.controlplane.client import Controlplane

log = klog.logger(__name__)

FILE: Final = Path("/var/lib/antrea/controller-state")
"""File of the state; it outlives a reboot."""
FORMER_NAME: Final = "last-word"
"""Name of the file in earlier versions."""


class ControllerStateCache:
    """Cache of the rows of these features' watches that may be saved, of what else features keep, and of the Pods that all of
    that covers.
    """

    def __init__(
        self, facts: Facts, controlplane: Controlplane, gate: PolicyGate, features: Iterable[AgentFeature]
    ) -> None:
        self._facts, self._controlplane, self._gate = facts, controlplane, gate
        features = tuple(features)
        watches = [watch for feature in features for watch in feature.watches]
        kinds = [kind for watch in watches if watch.saved for kind in watch.facts]
        self._unsaved = {kind for watch in watches if not watch.saved for kind in watch.facts}
        self._kept = [(kind, rows) for feature in features for kind, rows in feature.kept.items()]
        self._file = StateCacheFile(FILE, [*kinds, *(kind for kind, _ in self._kept)])
        self._changed = asyncio.Event()
        self._is_restored = False

    async def run(self) -> None:
        """Save changes until cancelled; the first run restores what was kept before it waits for the first time.

        A later run, after a failure, saves what it missed: the file is older than the rows by then.
        """
        if self._is_restored:
            self._changed.set()
        else:
            self._restore()
        await self._file.follow(self._changed, self._rows, self._gate.covered_uids)

    def _restore(self) -> None:
        self._is_restored = True
        adopt_former_file(FILE)
        cached = self._file.read()
        for row in cached.rows:
            self._facts.put(row)
        self._gate.earlier = frozenset(cached.covered)
        self._controlplane.listeners.append(self._changed.set)

    def save(self) -> None:
        """Save soon: what a feature keeps has changed."""
        self._changed.set()

    def _rows(self) -> list[Fact] | None:
        rows = self._controlplane.rows()
        if rows is None:
            return None
        saved = [row for row in rows if type(row) not in self._unsaved]
        return [*saved, *(row for _, kept in self._kept for row in kept(self._facts))]


def adopt_former_file(file: Path) -> None:
    """Rename the file that an earlier version left beside `file`, or remove it if there is a newer one."""
    former = file.with_name(FORMER_NAME)
    try:
        if file.exists():
            former.unlink(missing_ok=True)
        else:
            former.rename(file)
    except FileNotFoundError:
        return
    except OSError as error:
        log.warning("Failed to rename the cached controller state", path=former, err=str(error))
