"""Writes the address of an Egress into its spec: never one that another Egress names or is promised.

Who decides does not know what is under way, so this sink does: an address is promised, as a fact, before it is written,
and it is written only into the spec that was looked at, by an API server that gives up after two seconds. Nobody else is
given it before the Egress is seen in a later version.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from antrea.apis.crd.part import CrdStruct, Metadata
from antrea.apis.egress_address import EGRESSES
from antrea.errors import Refused, Unavailable
from antrea.facts.egress import EgressRow
from antrea.facts.external_ip import Leads, Promise
from antrea.outside import klog

if TYPE_CHECKING:
    from collections.abc import Sequence

    from antrea.apis.egress_address import EgressAddress
    from antrea.engine import Facts
    from antrea.outside.kube import Kube

log = klog.logger(__name__)

POOLS = "/apis/crd.antrea.io/v1beta1/externalippools"
WITHIN_SECONDS = 2
"""The API server has written by then, or will not: see `antrea/controller/term.py`."""
AT_ONCE = 8
"""Egresses that are written at the same time."""
TRIES = 4
"""Of one Egress whose status others write, too."""


class HeadSpec(CrdStruct, frozen=True):
    """A pool's has nothing of it."""

    egress_ips: tuple[str, ...] = ()


class Head(CrdStruct, frozen=True):
    """What is read of an Egress or a pool before something is written."""

    metadata: Metadata = Metadata()
    spec: HeadSpec = HeadSpec()


class EgressAddressSink:
    """Sink of EgressAddress; a withdrawn entry is forgotten."""

    def __init__(self, kube: Kube, facts: Facts) -> None:
        self._kube = kube
        self._facts = facts
        self._unknown_until: dict[str, float] = {}
        """Key of an entry -> when a write of unknown outcome has come through or never will, by the loop's clock."""

    async def apply(self, put: Sequence[EgressAddress], drop: Sequence[EgressAddress]) -> None:
        """Raises Refused naming all that were, with the words about the first; Unavailable."""
        for promise in self._facts.all(Promise):
            if not self._stands(promise):
                self._facts.drop(Promise, promise.owner)
        promised = [(entry, self._promise(entry)) for entry in put]
        room = asyncio.Semaphore(AT_ONCE)

        async def write(entry: EgressAddress) -> str:
            async with room:
                try:
                    return await self._write(entry)
                except Refused as no:
                    return no.why

        taken = [(entry, why) for entry, why in promised if why]
        right = [entry for entry, why in promised if not why]
        answers = await asyncio.gather(*map(write, right), return_exceptions=True)
        for broken in answers:
            if isinstance(broken, BaseException):
                raise broken
        refused = taken + [(entry, str(why)) for entry, why in zip(right, answers, strict=True) if why]
        if refused:
            raise Refused([entry for entry, _ in refused], refused[0][1])

    async def resync(self, entries: Sequence[EgressAddress]) -> None:
        """As `apply`."""
        await self.apply(entries, ())

    async def sweep(self, category: int) -> None:
        """Nothing to sweep: an address stays until its Egress gives it up."""

    def _promise(self, entry: EgressAddress) -> str:
        """Promise the address to the Egress; why not, if it cannot be."""
        facts, owner = self._facts, entry.owner
        if not entry.address:
            return ""
        if others := [r.name for r in facts.by(EgressRow, "address", entry.address) if r.key != entry.key]:
            # it was named by hand after it was promised: another is looked for
            self._break(entry)
            return f"{entry.address} is named by Egress {others[0]}"
        mine = facts.get(Promise, owner)
        if mine and mine.stands(entry.uid, entry.generation) and mine.address != entry.address:
            return f"{mine.address} is being written"
        for promise in facts.by(Promise, "address", entry.address):
            if promise.owner != owner and self._stands(promise):
                return f"{entry.address} is promised to {promise.owner}"
        facts.put(Promise(owner, entry.uid, entry.generation, entry.address))
        return ""

    def _break(self, entry: EgressAddress) -> None:
        """It is not fulfilled, unless a write may still come through whose outcome nobody knows."""
        if asyncio.get_running_loop().time() >= self._unknown_until.get(entry.key, 0.0):
            self._unknown_until.pop(entry.key, None)
            self._facts.drop(Promise, entry.owner)

    def _stands(self, promise: Promise) -> bool:
        egress = self._facts.get(EgressRow, promise.owner.removeprefix("Egress/"))
        return egress is not None and promise.stands(egress.uid, egress.generation)

    async def _write(self, entry: EgressAddress) -> str:
        """Why the server did not take it; empty as well if the Egress is not what was looked at. Raises Unavailable."""
        path, why = f"{EGRESSES}/{entry.egress}", ""
        for _ in range(TRIES):
            held = await self._kube.get(path, Head)
            if held is None or (held.metadata.uid, held.metadata.generation) != (entry.uid, entry.generation):
                return ""  # its next version is on its way to us
            if entry.takes and not await self._judged_by(entry):
                why = f"ExternalIPPool {entry.pool} has changed"
                break
            version = {"uid": entry.uid, "resourceVersion": held.metadata.resource_version}
            if self._facts.get(Leads) is None:
                raise Unavailable("this replica does not lead")
            if why := self._promise(entry):
                return why
            try:
                await self._patch(path, entry, version, held.spec.egress_ips)
            except Refused as no:
                why = no.why
            else:
                log.info("Wrote EgressIP", egress=entry.egress, ip=entry.address, pool=entry.pool)
                return ""
        self._break(entry)
        return why

    async def _patch(
        self, path: str, entry: EgressAddress, version: dict[str, str], listed: Sequence[str]
    ) -> None:
        """`listed` are its addresses now. Raises Refused, Unavailable."""
        spec: dict[str, Any] = {"egressIP": entry.address or None}
        if entry.of:
            ips = [*listed, *[""] * entry.of][: entry.of]
            ips[entry.slot] = entry.address
            spec = {"egressIPs": ips}
        body = {"metadata": version, "spec": spec}
        try:
            await self._kube.patch(path, body, within=WITHIN_SECONDS)
        except Unavailable:
            later = asyncio.get_running_loop().time() + WITHIN_SECONDS
            self._unknown_until[entry.key] = later
            raise

    async def _judged_by(self, entry: EgressAddress) -> bool:
        """Whether the pool is in the API server as it was looked at."""
        pool = await self._kube.get(f"{POOLS}/{entry.pool}", Head)
        uid, generation = (pool.metadata.uid, pool.metadata.generation) if pool else ("", 0)
        return (uid, generation) == (entry.pool_uid, entry.pool_generation)
