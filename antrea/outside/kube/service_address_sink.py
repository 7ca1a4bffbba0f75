"""Writes the addresses of a Service into its status: never one that another owner names or is promised (`address_promise.py`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from antrea.apis.service_address import ALLOCATED
from antrea.errors import Refused, Unavailable
from antrea.facts.external_ip import FencedLeadership
from antrea.outside.kube.address_promise import (
    WITHIN_SECONDS,
    AddressPromises,
    Head,
    lost_term,
    write_promised,
)
from antrea.outside.kube.client import PatchKind
from antrea.outside.kube.clock import stamp
from antrea.outside.log import klog

if TYPE_CHECKING:
    from collections.abc import Sequence

    from antrea.apis.crd.part import Condition
    from antrea.apis.service_address import ServiceAddress
    from antrea.engine import Facts
    from antrea.outside.kube.client import Kube

log = klog.logger(__name__)


class ServiceAddressSink:
    """Sink of ServiceAddress; a withdrawn entry is forgotten."""

    def __init__(self, kube: Kube, facts: Facts) -> None:
        self._kube = kube
        self._facts = facts
        self._promises = AddressPromises(kube, facts)

    async def apply(self, put: Sequence[ServiceAddress], _drop: Sequence[ServiceAddress]) -> None:
        """Raises Refused naming all that were, with the words about the first; Unavailable."""
        await write_promised(self._promises, put, self._promise, self._write)

    async def resync(self, entries: Sequence[ServiceAddress]) -> None:
        """Apply entries as `apply` does."""
        await self.apply(entries, ())

    async def sweep(self, category: int) -> None:
        """Nothing to sweep: an address stays until its Service gives it up."""

    def _promise(self, entry: ServiceAddress) -> str:
        """All or none. What a Service asks for by name is not free for others anyway."""
        for number, promise in enumerate(entry.promises):
            if why := self._promises.promise(promise):
                for earlier in entry.promises[:number]:
                    self._promises.withdraw(earlier)
                return why
        return ""

    async def _write(self, entry: ServiceAddress) -> str:
        """Why the server did not take it; empty as well if the Service is not what was looked at. Raises Unavailable."""
        for looked_at in entry.pools if entry.takes else ():
            if not await self._promises.judged_by(looked_at):
                self._withdraw(entry)
                return f"ExternalIPPool {looked_at.pool} has changed"
        if self._facts.get(FencedLeadership) is None:
            raise lost_term()
        if why := self._promise(entry):
            return why
        path = f"/api/v1/namespaces/{entry.namespace}/services/{entry.name}"
        try:
            await self._kube.patch(
                f"{path}/status", _patch(entry), PatchKind.STRATEGIC, within=WITHIN_SECONDS
            )
        except Unavailable:
            for promise in entry.promises:
                self._promises.unknown(promise)
            raise
        except Refused as error:
            held = await self._kube.get(path, Head)
            now = (held.metadata.uid, held.metadata.resource_version) if held else ("", "")
            if now != (entry.uid, str(entry.generation)):
                return ""  # its next version is on its way to us
            self._withdraw(entry)
            return error.why
        log.info(
            "Wrote the external IPs of a Service",
            service=entry.key,
            ips=",".join(entry.addresses),
            pools=",".join(pool.pool for pool in entry.pools),
        )
        return ""

    def _withdraw(self, entry: ServiceAddress) -> None:
        for promise in entry.promises:
            self._promises.withdraw(promise)


def _patch(entry: ServiceAddress) -> dict[str, Any]:
    return {
        "metadata": {"uid": entry.uid, "resourceVersion": str(entry.generation)},
        "status": {
            "loadBalancer": {"ingress": [{"ip": ip} for ip in entry.addresses] or None},
            "conditions": [_condition(entry.condition, turned=entry.turned)],
        },
    }


def _condition(condition: Condition | None, *, turned: bool) -> dict[str, str]:
    if condition is None:
        return {"$patch": "delete", "type": ALLOCATED}
    time = {"lastTransitionTime": stamp()} if turned else {}
    return {
        "type": condition.type,
        "status": condition.status,
        "reason": condition.reason,
        "message": condition.message,
    } | time
