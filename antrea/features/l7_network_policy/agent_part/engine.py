"""Tenants of the L7 engine of this Node, kept as rules want them; facts name those that it has loaded.

The engine runs in a container of its own, which starts it while its files exist (`antrea.features.l7_network_policy.agent_part.files`). A tenant is
loaded by an order to the running engine, and written to the files for the next start.

A rule that changes gets another tenant, and new connections go there. What the engine has of a connection is lost when its tenant
changes, and an answer that is on its way then is reset: so the tenant of before takes the change only after most have ended.
Source: docs.suricata.io/en/suricata-7.0.10/configuration/multi-tenant
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING, Final

import msgspec

from antrea.errors import Unavailable
from antrea.features.l7_network_policy.agent_part.files import EngineFiles, TenantFile
from antrea.features.network_policy.l7.rules import GONE
from antrea.features.network_policy.l7.tenant import L7Engine, LoadedTenant, Tenant, UsedVlan
from antrea.outside.log import klog
from antrea.outside.suricata.command import CommandSocket, Hung

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from antrea.engine import Facts

log = klog.logger(__name__)
STEP: Final = 0.1
"""Seconds between checks of a missing engine, or of the connection to a running one."""
GRACE: Final = 2.0
"""Seconds after its start in which an agent adopts an engine that runs, before rows of tenants count as known."""
OVERLAP: Final = 10.0
"""Seconds after a change in which connections of before are judged as before."""
USE: Final = 5.0
"""Seconds between checks for connections of a tenant that new ones no longer get."""
PING: Final = 5.0
"""Seconds between checks whether the engine answers."""
HUNG: Final = "the L7 engine of this Node does not answer: its container antrea-l7-engine has to be restarted"
OUT_OF_MEMORY: Final = "the kernel has ended the L7 engine of this Node: the memory of its container antrea-l7-engine is at its limit"
RECENT: Final = 600.0
"""Seconds for which that is reported."""
NOT_RUNNING: Final = "the L7 engine is not running on this Node: its container antrea-l7-engine is not ready"


class L7EngineControl:
    """Sink of Tenant, and feed of LoadedTenant and L7Engine."""

    def __init__(
        self,
        facts: Facts,
        files: EngineFiles,
        forget_connections: Callable[[int], Awaitable[None]],
        has_connections: Callable[[int], Awaitable[bool]],
    ) -> None:
        """`forget_connections` ends those that have a VLAN which no tenant has any more; `has_connections`: whether there are any."""
        self._facts, self._files, self._forget = facts, files, forget_connections
        self._is_used = has_connections
        self._wanted: dict[int, Tenant] = {}
        self._rows: dict[int, LoadedTenant] = {}
        """Rows in the facts."""
        self._changed: dict[int, float] = {}
        """Time at which new connections got another tenant than this one, by VLAN."""
        self._looked = 0.0
        self._trouble = ""
        self._old: set[int] = set()
        """VLANs of tenants of an earlier start that are kept until the sweep."""
        self._ending: dict[int, float] = {}
        """Time of the next check for connections of a deleted rule, by VLAN. An engine that starts rejects what they send."""
        self._versions: dict[int, str] = {}
        """Version of each VLAN that the engine has, or connections may have."""
        self._is_known = False
        self._news = asyncio.Event()
        self._rejected: dict[int, str] = {}
        """Signatures that the engine refused, by VLAN: they are not tried again."""

    def rule_of(self, vlan: int) -> str:
        """Return the name of the rule of a wanted tenant; empty if there is none."""
        tenant = self._wanted.get(vlan)
        return tenant.rule if tenant else ""

    def memory_trouble(self) -> str:
        """Memory fault, also of an engine that runs again; empty if there is none."""
        return OUT_OF_MEMORY if self._files.was_out_of_memory(RECENT) else ""

    def is_needed(self) -> bool:
        """Whether any rule has a tenant."""
        return bool(self._wanted)

    async def apply(self, put: Sequence[Tenant], drop: Sequence[Tenant]) -> None:
        """Write the files; orders follow. A removed tenant stops counting immediately."""
        for tenant in drop:
            self._wanted.pop(tenant.vlan, None)
            self._changed.pop(tenant.vlan, None)
            self._ending.setdefault(tenant.vlan, 0.0)
            self._drop(tenant.vlan)
        for tenant in put:
            self._wanted[tenant.vlan] = tenant
            self._ending.pop(tenant.vlan, None)
            self._use(tenant.vlan, tenant.version)
            self._turn(tenant)
        self._write()

    def _turn(self, tenant: Tenant) -> None:
        """Note which tenant new connections should have."""
        if tenant.is_old:
            self._changed.setdefault(tenant.vlan, self._now())
            return
        self._changed.pop(tenant.vlan, None)
        current = self._current(tenant.rule)
        if tenant.vlan in self._rows and self._text_of(tenant.vlan) == tenant.signatures:
            if current != self._rows[tenant.vlan] or current.outdated:
                self._put(_row(tenant))
        elif current is not None:
            self._put(
                msgspec.structs.replace(current, outdated="the L7 engine has not loaded the change yet")
            )

    async def resync(self, entries: Sequence[Tenant]) -> None:
        """Apply all wanted tenants; those of an earlier start stay until the sweep."""
        self._wanted = {tenant.vlan: tenant for tenant in entries}
        self._changed = {tenant.vlan: self._now() for tenant in entries if tenant.is_old}
        loaded = self._files.loaded()
        self._old = set(loaded) - set(self._wanted)
        for vlan in self._old:
            self._use(vlan, loaded[vlan].version)
        for entry in entries:
            self._use(entry.vlan, entry.version)
        self._is_known = True
        for entry in entries:
            self._turn(entry)
        self._write()

    async def sweep(self, category: int) -> None:
        """Remove the tenants of an earlier start."""
        if category == Tenant.category and self._old:
            for vlan in self._old:
                self._ending.setdefault(vlan, 0.0)
            self._old = set()
            self._write()

    async def run(self, facts: Facts) -> None:
        """Follow the engine, as a feed, as it starts and ends, until cancelled."""
        asyncio.get_running_loop().call_later(GRACE, self._known)
        while True:
            why = ""
            try:
                await self._follow(facts)
            except Hung:
                why = HUNG
            except Unavailable:
                pass  # what its log has is better
            self._adopt({})
            await self._forget_ended()
            facts.put(L7Engine(why or self.memory_trouble() or self._files.problem() or NOT_RUNNING))
            await asyncio.sleep(STEP)

    async def _follow(self, facts: Facts) -> None:
        """Follow one engine as long as it runs. Raises Unavailable."""
        engine = await CommandSocket.connect(self._files.socket)
        try:
            while not self._files.is_started():
                if not engine.is_open():
                    raise Unavailable("the L7 engine has not started yet")
                await asyncio.sleep(STEP)
            self._rejected.clear()
            facts.put(L7Engine())
            log.info("Connected to the L7 engine", tenants=len(loaded := self._files.loaded()))
            self._adopt(loaded)
            self._known()
            clock = asyncio.get_running_loop().time
            last_ping = clock()
            while engine.is_open():
                self._news.clear()
                if self._is_known:
                    await self._aligned(engine)
                if clock() - last_ping >= PING:
                    await engine.ping()
                    last_ping = clock()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(STEP):
                        await self._news.wait()
        finally:
            await engine.close()

    async def _aligned(self, engine: CommandSocket) -> None:
        """Align the tenants; a full disk leaves what is loaded as it is, and is retried. Raises Unavailable."""
        try:
            await self._align(engine)
            self._trouble = ""
        except OSError as error:
            if str(error) != self._trouble:
                log.error("Failed to write the files of the L7 engine", err=str(error))
            self._trouble = str(error)

    async def _align(self, engine: CommandSocket) -> None:
        """Order what differs, one tenant at a time: those of new connections first. Raises Unavailable, OSError."""
        loaded = self._files.loaded()
        for tenant in sorted(self._wanted.values(), key=lambda wanted: wanted.is_old):
            vlan, text = tenant.vlan, tenant.signatures
            if vlan in loaded and loaded[vlan].version != tenant.version:
                await self._unload(engine, vlan)
                loaded = self._files.loaded()
            differs = vlan not in loaded or loaded[vlan].text != text
            if differs and self._rejected.get(vlan) != text and self._is_due(tenant):
                await self._load(engine, tenant, is_new=vlan not in loaded)
            elif not differs and not tenant.is_old and vlan not in self._rows:
                self._put(_row(tenant))  # it went and came back before the engine was told
        for vlan in set(loaded) - set(self._wanted) - self._old:
            await self._end(engine, vlan, is_over=loaded[vlan].text == GONE)
        for vlan in self._ending.keys() - self._files.loaded().keys():
            self._ended(vlan)  # the engine never had it
        await self._retire()
        if not self._wanted and not self._old and not self._files.loaded():
            await engine.order("shutdown")

    def _is_due(self, tenant: Tenant) -> bool:
        """Whether a tenant is due: earlier connections take a change after those that are new then have it."""
        if not tenant.is_old:
            return True
        current = self._current(tenant.rule)
        waited = self._now() - self._changed.get(tenant.vlan, 0.0)
        return waited >= OVERLAP and current is not None and not current.outdated

    async def _retire(self) -> None:
        """Remove tenants that no connection has any more."""
        if not self._changed or self._now() - self._looked < USE:
            return
        self._looked = self._now()
        for vlan in tuple(self._changed):
            tenant = self._wanted.get(vlan)
            if tenant is None or self._text_of(vlan) != tenant.signatures:
                continue
            try:
                is_used = await self._is_used(vlan)
            except Unavailable as error:
                log.error("Failed to look for connections of an L7 rule", vlan=vlan, err=str(error))
                return
            if not is_used:
                self._drop(vlan)

    async def _load(self, engine: CommandSocket, tenant: Tenant, *, is_new: bool) -> None:
        vlan = tenant.vlan
        try:
            path = self._files.begin(vlan, self._file(tenant))
        except OSError as error:
            if is_new:
                self._files.forget(vlan)
            self._outdate(tenant, f"the files of the L7 engine: {error.strerror}")
            raise
        command = "register-tenant" if is_new else "reload-tenant"
        why = await engine.order(command, id=vlan, filename=path)
        if not why and is_new:
            why = await engine.order("register-tenant-handler", id=vlan, htype="vlan", hargs=vlan)
        if why:
            log.error("The L7 engine refused the signatures of a rule", vlan=vlan, err=why)
            self._rejected[vlan] = tenant.signatures
            if is_new:
                self._files.forget(vlan)
            self._outdate(tenant, why)
            return
        self._files.done(vlan)
        if self._wanted.get(vlan) == tenant and not tenant.is_old:
            self._put(_row(tenant))

    def _outdate(self, tenant: Tenant, why: str) -> None:
        outdated = f"{why}: requests are judged as before the change"
        current = self._current(tenant.rule)
        if current is not None and current.outdated != outdated:
            self._put(msgspec.structs.replace(current, outdated=outdated))

    async def _end(self, engine: CommandSocket, vlan: int, *, is_over: bool) -> None:
        """End a rule; `is_over`: the engine ends its connections. Where no other rule applies, they continue, judged by policies as if they were new.

        Beside others they are reset: connection tracking would take one whose server sends next for one that the server began,
        and no rule would judge its requests.
        """
        if self._now() < self._ending.get(vlan, 0.0):
            return
        try:
            is_used = bool(self._wanted) and await self._is_used(vlan)
        except Unavailable as error:
            log.error("Failed to look for connections of an L7 rule that is gone", vlan=vlan, err=str(error))
            return
        if not is_used:
            await self._unload(engine, vlan)
            return
        self._ending[vlan] = self._now() + USE
        if not is_over:
            path = self._files.begin(vlan, self._file_of_deleted(vlan))
            if why := await engine.order("reload-tenant", id=vlan, filename=path):
                log.error("The L7 engine refused to end connections", vlan=vlan, err=why)
            self._files.done(vlan)

    async def _unload(self, engine: CommandSocket, vlan: int) -> None:
        """Unload a tenant; connections that the rule let in are judged again, as what their tenant does not judge passes."""
        try:
            await self._forget(vlan)
        except Unavailable as error:
            log.error("Failed to end connections of an L7 rule that is gone", vlan=vlan, err=str(error))
            return
        await engine.order("unregister-tenant-handler", id=vlan, htype="vlan", hargs=vlan)
        await engine.order("unregister-tenant", id=vlan)
        self._files.forget(vlan)
        self._ended(vlan)

    def _ended(self, vlan: int) -> None:
        """Record that no connection of a deleted rule has this VLAN."""
        self._free(vlan)
        if self._ending.pop(vlan, None) is not None:
            self._write()

    async def _forget_ended(self) -> None:
        """Remove connections without an engine and without rules, which no flow sends there any more: they are judged again."""
        if self._wanted or self._old:
            return
        for vlan in tuple(self._ending):
            try:
                await self._forget(vlan)
            except Unavailable as error:
                log.error("Failed to end connections of an L7 rule that is gone", vlan=vlan, err=str(error))
                return
            self._ended(vlan)

    def _write(self) -> None:
        """Write the files of the next start; no engine is started only for deleted rules."""
        loaded = self._files.loaded()
        kept = {
            vlan: tenant_file
            if (tenant_file := loaded.get(vlan)) and tenant_file.text
            else self._file_of_deleted(vlan)
            for vlan in self._old
        }
        ending = {vlan: self._file_of_deleted(vlan) for vlan in self._ending} if self._wanted or kept else {}
        wanted = {vlan: self._file(tenant) for vlan, tenant in self._wanted.items()}
        self._files.want({**ending, **kept, **wanted})
        self._news.set()

    def _file_of_deleted(self, vlan: int) -> TenantFile:
        """Make the file of a deleted rule, as long as connections have its VLAN: what no tenant judges passes."""
        return TenantFile("", self._versions.get(vlan, ""), GONE)

    def _use(self, vlan: int, version: str) -> None:
        """Reserve a VLAN for this version: no rule would judge the connections of another one."""
        if version and self._versions.get(vlan) != version:
            self._versions[vlan] = version
            self._facts.put(UsedVlan(vlan, version))

    def _free(self, vlan: int) -> None:
        """Release a VLAN that no connection has; a rule may get it."""
        if vlan not in self._wanted and self._versions.pop(vlan, ""):
            self._facts.drop(UsedVlan, str(vlan))

    def _file(self, tenant: Tenant) -> TenantFile:
        row = self._rows.get(tenant.vlan)
        since = 0 if tenant.is_old else _since_boot()
        return TenantFile(tenant.rule, tenant.version, tenant.signatures, row.since if row else since)

    def _text_of(self, vlan: int) -> str:
        tenant_file = self._files.loaded().get(vlan)
        return tenant_file.text if tenant_file else ""

    def _current(self, rule: str) -> LoadedTenant | None:
        """Return the tenant that new connections of a rule have."""
        rows = (row for row in self._rows.values() if row.rule == rule)
        return max(rows, key=lambda row: row.since, default=None)

    def _adopt(self, loaded: Mapping[int, TenantFile]) -> None:
        for vlan, file in loaded.items():
            self._use(vlan, file.version)
        self._rows = {
            vlan: LoadedTenant(vlan, tenant_file.rule, tenant_file.version, tenant_file.since)
            for vlan, tenant_file in loaded.items()
            if tenant_file.text not in ("", GONE)
        }
        self._facts.replace(LoadedTenant, list(self._rows.values()))

    def _put(self, row: LoadedTenant) -> None:
        self._rows[row.vlan] = row
        self._facts.put(row)

    def _drop(self, vlan: int) -> None:
        self._rows.pop(vlan, None)
        self._facts.drop(LoadedTenant, str(vlan))

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    def _known(self) -> None:
        if not self._facts.feeds.has(LoadedTenant):
            self._facts.synced(LoadedTenant)


def _row(tenant: Tenant) -> LoadedTenant:
    """Make the row of a tenant for new connections."""
    return LoadedTenant(tenant.vlan, tenant.rule, tenant.version, _since_boot())


def _since_boot() -> int:
    """Return nanoseconds by a clock that never jumps and outlives the agent, as the folder of tenants does."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)
