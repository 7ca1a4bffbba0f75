"""Writes the address of an Egress into its spec: never one that another owner names or is promised (`address_promise.py`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from antrea.apis.egress_address import EGRESSES
from antrea.errors import Refused, Unavailable
from antrea.facts.external_ip import FencedLeadership
from antrea.outside.kube.address_promise import (
    WITHIN_SECONDS,
    AddressPromises,
    Head,
    lost_term,
    write_promised,
)
from antrea.outside.log import klog

if TYPE_CHECKING:
    from collections.abc import Sequence

    from antrea.apis.egress_address import EgressAddress
    from antrea.engine import Facts
    from antrea.outside.kube.client import Kube

log = klog.logger(__name__)

TRIES = 4
"""Maximum number of tries for one Egress whose status others write, too."""


class EgressAddressSink:
    """Sink of EgressAddress; a withdrawn entry is forgotten."""

    def __init__(self, kube: Kube, facts: Facts) -> None:
        self._kube = kube
        self._facts = facts
        self._promises = AddressPromises(kube, facts)

    async def apply(self, put: Sequence[EgressAddress], _drop: Sequence[EgressAddress]) -> None:
        """Raises Refused naming all that were, with the words about the first; Unavailable."""
        await write_promised(self._promises, put, self._promises.promise, self._write)

    async def resync(self, entries: Sequence[EgressAddress]) -> None:
        """Apply entries as `apply` does."""
        await self.apply(entries, ())

    async def sweep(self, category: int) -> None:
        """Nothing to sweep: an address stays until its Egress gives it up."""

    async def _write(self, entry: EgressAddress) -> str:
        """Why the server did not take it; empty as well if the Egress is not what was looked at. Raises Unavailable."""
        path, why = f"{EGRESSES}/{entry.egress}", ""
        for _ in range(TRIES):
            held = await self._kube.get(path, Head)
            if held is None or (held.metadata.uid, held.metadata.generation) != (entry.uid, entry.generation):
                return ""  # its next version is on its way to us
            if entry.takes and not await self._promises.judged_by(entry):
                why = f"ExternalIPPool {entry.pool} has changed"
                break
            version = {"uid": entry.uid, "resourceVersion": held.metadata.resource_version}
            if self._facts.get(FencedLeadership) is None:
                raise lost_term()
            if why := self._promises.promise(entry):
                return why
            try:
                await self._patch(path, entry, version, held.spec.egress_ips)
            except Refused as error:
                why = error.why
            else:
                log.info("Wrote EgressIP", egress=entry.egress, ip=entry.address, pool=entry.pool)
                return ""
        self._promises.withdraw(entry)
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
            self._promises.unknown(entry)
            raise
