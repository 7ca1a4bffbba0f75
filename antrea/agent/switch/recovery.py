"""Recovery from a restart of ovs-vswitchd: it gets all its flows again before it forwards by them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from antrea.errors import Refused, Unavailable
from antrea.outside.log import klog
from antrea.outside.ovsdb import write as ovsdb_write

if TYPE_CHECKING:
    from collections.abc import Iterable

    from antrea.engine import Engine, Sink
    from antrea.outside.ovsdb.client import Ovsdb
    from antrea.outside.vswitch.watch import SwitchWatch

log = klog.logger(__name__)

RESTORE_FLAG = "flow-restore-wait"
RETRY_SECONDS = 0.2


class SwitchRecovery:
    """Recovery of the switch; `sinks` are those whose entries a new ovs-vswitchd does not have."""

    def __init__(self, watch: SwitchWatch, engine: Engine, db: Ovsdb, sinks: Iterable[Sink]) -> None:
        self._watch = watch
        self._engine = engine
        self._db = db
        self._sinks = tuple(sinks)
        self._news = asyncio.Event()
        self._news.set()
        self.works = asyncio.Event()
        """Set while all wanted entries are applied and the switch forwards by them."""

    @property
    def connected(self) -> bool:
        """Whether ovs-vswitchd runs and has the bridge."""
        return self._watch.connected.is_set()

    async def probe(self) -> None:
        """Ask ovs-vswitchd for a sign of life. Raises Unavailable."""
        await self._watch.probe()

    async def run(self) -> None:
        """Watch until cancelled; `works` is set for the first time once all wanted entries are applied."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._watch.run(self._came_back), name="switch watch")
            while True:
                await self._news.wait()
                self._news.clear()
                await self._watch.connected.wait()
                await self._engine.quiet(reports=False, sweeps=False)
                if not await self._let_work():
                    self._news.set()
                elif not self._news.is_set():
                    self.works.set()
                    log.info("Flows are in place")

    def _came_back(self) -> None:
        """Replay everything: a new ovs-vswitchd has no flows and meters, and its internal ports are new devices without
        addresses.
        """
        log.warning("ovs-vswitchd came back, replaying flows")
        self.works.clear()
        for sink in self._sinks:
            self._engine.resync(sink)
        self._news.set()

    async def _let_work(self) -> bool:
        """Clear flow-restore-wait once flows are in place, so that the datapath cache is rebuilt from the tables.

        Returns False if that fails or the switch is gone again: the flag, which start_ovs sets, is then for the next switch.
        """
        if not self.connected:
            return False
        keys = {RESTORE_FLAG: None}
        try:
            await ovsdb_write.set_keys(self._db, "Open_vSwitch", ".", column="other_config", keys=keys)
        except (Refused, Unavailable) as error:
            log.v(2).info("Failed to clear flow-restore-wait", err=str(error))
            await asyncio.sleep(RETRY_SECONDS)
            return False
        return True
