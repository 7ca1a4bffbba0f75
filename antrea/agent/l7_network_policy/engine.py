"""Tenants of the L7 engine of this Node, kept as rules want them; facts name those that it has loaded.

The engine runs in a container of its own, which starts it while its files exist (`antrea.agent.l7_network_policy.files`). A tenant is
loaded by an order to the running engine, and written to the files for the next start.
Source: docs.suricata.io/en/suricata-7.0.10/configuration/multi-tenant
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Final

from antrea.errors import Unavailable
from antrea.features.network_policy.l7.tenant import L7Engine, LoadedTenant, Tenant
from antrea.outside.log import klog
from antrea.outside.suricata.command import CommandSocket, Hung

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from antrea.agent.l7_network_policy.files import EngineFiles
    from antrea.engine import Facts

log = klog.logger(__name__)
STEP: Final = 0.1
"""Seconds between looks at an engine that is not there, or at the connection to one that is."""
GRACE: Final = 2.0
"""Seconds after its start in which an agent adopts an engine that runs, before rows of tenants count as known."""
PING: Final = 5.0
"""Seconds between looks whether the engine answers."""
HUNG: Final = "the L7 engine of this Node does not answer: its container antrea-l7-engine has to be restarted"
NOT_RUNNING: Final = "the L7 engine is not running on this Node: its container antrea-l7-engine is not ready"


class L7EngineControl:
    """Sink of Tenant, and feed of LoadedTenant and L7Engine."""

    def __init__(
        self, facts: Facts, files: EngineFiles, forget_connections: Callable[[int], Awaitable[None]]
    ) -> None:
        """`forget_connections` ends those that have a VLAN which no tenant has any more."""
        self._facts, self._files, self._forget = facts, files, forget_connections
        self._wanted: dict[int, str] = {}
        self.rules: dict[int, str] = {}
        """Name of the rule of each wanted tenant, by VLAN."""
        self._old: set[int] = set()
        """VLANs of tenants of an earlier start that are kept until the sweep."""
        self._is_known = False
        self._news = asyncio.Event()
        self._rejected: dict[int, str] = {}
        """Signatures that the engine refused, by VLAN: they are not tried again."""

    async def apply(self, put: Sequence[Tenant], drop: Sequence[Tenant]) -> None:
        """Write the files; orders follow. A tenant that goes stops counting at once."""
        for tenant in put:
            self._wanted[tenant.vlan] = tenant.signatures
            self.rules[tenant.vlan] = tenant.rule
            differs = self._files.loaded().get(tenant.vlan) != tenant.signatures
            if differs and self._facts.get(LoadedTenant, str(tenant.vlan)):
                self._facts.put(LoadedTenant(tenant.vlan, "the L7 engine has not loaded the change yet"))
        for tenant in drop:
            self._wanted.pop(tenant.vlan, None)
            self.rules.pop(tenant.vlan, None)
            self._facts.drop(LoadedTenant, str(tenant.vlan))
        self._write()

    async def resync(self, entries: Sequence[Tenant]) -> None:
        """All that is wanted; tenants of before stay until the sweep."""
        self._wanted = {one.vlan: one.signatures for one in entries}
        self.rules = {one.vlan: one.rule for one in entries}
        self._old = set(self._files.loaded()) - set(self._wanted)
        self._is_known = True
        self._write()

    async def sweep(self, category: int) -> None:
        """Remove the tenants of before."""
        if category == Tenant.category and self._old:
            self._old = set()
            self._write()

    async def run(self, facts: Facts) -> None:
        """As a feed: follow the engine for ever, as it starts and ends."""
        asyncio.get_running_loop().call_later(GRACE, self._known)
        while True:
            why = ""
            try:
                await self._follow(facts)
            except Hung:
                why = HUNG
            except Unavailable:
                pass  # what its log has is better
            facts.replace(LoadedTenant, [])
            facts.put(L7Engine(why or self._files.problem() or NOT_RUNNING))
            await asyncio.sleep(STEP)

    async def _follow(self, facts: Facts) -> None:
        """As long as one engine runs. Raises Unavailable."""
        engine = await CommandSocket.connect(self._files.socket)
        try:
            while not self._files.is_started():
                if not engine.is_open():
                    raise Unavailable("a start of the L7 engine")
                await asyncio.sleep(STEP)
            self._rejected.clear()
            facts.put(L7Engine())
            log.info("Connected to the L7 engine", tenants=len(loaded := self._files.loaded()))
            facts.replace(LoadedTenant, [LoadedTenant(vlan) for vlan, text in loaded.items() if text])
            self._known()
            clock = asyncio.get_running_loop().time
            asked = clock()
            while engine.is_open():
                self._news.clear()
                if self._is_known:
                    await self._align(engine)
                if clock() - asked >= PING:
                    await engine.ping()
                    asked = clock()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(STEP):
                        await self._news.wait()
        finally:
            await engine.close()

    async def _align(self, engine: CommandSocket) -> None:
        """Order what differs, one tenant at a time. Raises Unavailable."""
        loaded = self._files.loaded()
        for vlan, text in dict(self._wanted).items():
            if loaded.get(vlan) != text and self._rejected.get(vlan) != text:
                await self._load(engine, vlan, text, is_new=vlan not in loaded)
        for vlan in set(loaded) - set(self._wanted) - self._old:
            await self._unload(engine, vlan)
        if not self._wanted and not self._old and not self._files.loaded():
            await engine.order("shutdown")

    async def _load(self, engine: CommandSocket, vlan: int, text: str, *, is_new: bool) -> None:
        path = self._files.begin(vlan, text)
        command = "register-tenant" if is_new else "reload-tenant"
        why = await engine.order(command, id=vlan, filename=path)
        if not why and is_new:
            why = await engine.order("register-tenant-handler", id=vlan, htype="vlan", hargs=vlan)
        if why:
            log.error("The L7 engine refused the signatures of a rule", vlan=vlan, err=why)
            self._rejected[vlan] = text
            if not is_new:
                self._facts.put(LoadedTenant(vlan, f"{why}: requests are judged as before the change"))
            return
        self._files.done(vlan)
        if self._wanted.get(vlan) == text:
            self._facts.put(LoadedTenant(vlan))

    async def _unload(self, engine: CommandSocket, vlan: int) -> None:
        """Connections that the rule let in are judged anew, as what their tenant does not judge passes."""
        try:
            await self._forget(vlan)
        except Unavailable as no:
            log.error("Failed to end connections of an L7 rule that is gone", vlan=vlan, err=str(no))
            return
        await engine.order("unregister-tenant-handler", id=vlan, htype="vlan", hargs=vlan)
        await engine.order("unregister-tenant", id=vlan)
        self._files.forget(vlan)

    def _write(self) -> None:
        kept = {vlan: text for vlan, text in self._files.loaded().items() if vlan in self._old and text}
        self._files.want({**kept, **self._wanted})
        self._news.set()

    def _known(self) -> None:
        if not self._facts.feeds.has(LoadedTenant):
            self._facts.synced(LoadedTenant)
