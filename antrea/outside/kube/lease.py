"""Keeps a Lease in the API server, so that of several replicas one leads; `election` decides, this asks and writes."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from antrea.apis.core import CoreStruct, ObjectMeta
from antrea.errors import Refused, Unavailable
from antrea.outside.kube.answer import Drop, Listed
from antrea.outside.kube.election import Election, ObservedLease, Terms
from antrea.outside.kube.leadership import Leadership
from antrea.outside.log import klog

if TYPE_CHECKING:
    from antrea.outside.kube.client import Kube

log = klog.logger(__name__)

API = "coordination.k8s.io/v1"
ADDRESS = "antrea.io/address"
"""Annotation: where the holder serves, host:port."""
TRY_SECONDS = 1.0
"""For reading and writing the Lease once."""
DEFAULT = Terms()


class _Spec(CoreStruct, frozen=True):
    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    lease_transitions: int | None = None


class Lease(CoreStruct, frozen=True):
    """The part that is read."""

    metadata: ObjectMeta = ObjectMeta()
    spec: _Spec = _Spec()


def clock() -> float:
    """Return the seconds of a clock that never goes back and runs while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class LeaseKeeper:
    """Takes part in the election for the Lease `name`; `lead` has its outcome."""

    def __init__(
        self, kube: Kube, namespace: str, name: str, *, me: str, address: str, terms: Terms = DEFAULT
    ) -> None:
        """`me` is another one after each start; `address` is where this replica serves, host:port."""
        self._kube = kube
        self._name = name
        self._leases = f"/apis/{API}/namespaces/{namespace}/leases"
        self._address = address
        self._election = Election(me, terms)
        self._heard = asyncio.Event()
        self._alarm: asyncio.TimerHandle | None = None
        self._said = ""
        self._reported = (False, "")
        self.lead = Leadership(lambda: self._election.leads(clock()))
        self.lead.elected = True

    async def run(self) -> None:
        """Run until cancelled; then release the lease, so that another replica leads at once."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._watch(), name="Lease watch")
                tasks.create_task(self._keep(), name="Lease renewal")
        finally:
            led = self.lead.leads()
            self._election.resign()
            self._notify()
            if led:
                await self._release()

    async def read(self) -> None:
        """Read the current Lease, not a cached one. Raises Unavailable, Refused."""
        try:
            async with asyncio.timeout(TRY_SECONDS):
                await self._kube.get(f"{self._leases}/{self._name}", Lease)
        except TimeoutError as error:
            raise Unavailable(f"no answer of the API server within {TRY_SECONDS:g} s") from error

    async def _watch(self) -> None:
        only = {"fieldSelector": f"metadata.name={self._name}"}
        async for change in self._kube.watch(self._leases, Lease, only):
            if isinstance(change, Listed):
                seen = _observe(change.objects[0] if change.objects else None)
            else:
                seen = ObservedLease() if isinstance(change, Drop) else _observe(change.object)
            self._election.observe(seen, clock())
            self._notify()
            self._heard.set()

    async def _keep(self) -> None:
        election = self._election
        while True:
            self._heard.clear()
            if clock() >= election.due():
                await self._try()
                self._notify()
            pause = max(0.0, min(election.due(), self._silent_at()) - clock())
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause if math.isfinite(pause) else None):
                    await self._heard.wait()
            self._notify()

    def _silent_at(self) -> float:
        return self._election.ends if self.lead.leads() else math.inf

    async def _try(self) -> None:
        election, began = self._election, clock()
        election.tries(began)
        try:
            async with asyncio.timeout(TRY_SECONDS):
                if election.outdated:
                    election.read(
                        _observe(await self._kube.get(f"{self._leases}/{self._name}", Lease)), clock()
                    )
                if not election.free(clock()):
                    return
                election.writes()
                await self._write(election.me)
        except (Refused, Unavailable, TimeoutError) as error:
            election.failed()
            self._log(str(error) or f"no answer within {TRY_SECONDS:g} s")
            return
        election.wrote(began, clock())
        self._log("")

    async def _write(self, holder: str) -> None:
        """With the version that was seen, so that of two who try one is refused. Raises Refused, Unavailable."""
        seen = self._election.seen or ObservedLease()
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        taken = seen.holder != holder
        spec: dict[str, Any] = {
            "holderIdentity": holder,
            "leaseDurationSeconds": math.ceil(self._election.terms.lease),
            "renewTime": now,
            "leaseTransitions": seen.transitions + bool(taken and holder),
            **({"acquireTime": now} if taken else {}),
        }
        annotations = {ADDRESS: self._address if holder else ""}
        if seen.version:
            meta = {"resourceVersion": seen.version, "annotations": annotations}
            await self._kube.patch(f"{self._leases}/{self._name}", {"metadata": meta, "spec": spec})
        else:
            meta = {"name": self._name, "labels": {"app": "antrea"}, "annotations": annotations}
            await self._kube.create_named(
                f"{self._leases}/{self._name}",
                {"apiVersion": API, "kind": "Lease", "metadata": meta, "spec": spec},
            )

    async def _release(self) -> None:
        try:
            async with asyncio.timeout(TRY_SECONDS):
                lease = await self._kube.get(f"{self._leases}/{self._name}", Lease)
                self._election.read(_observe(lease), clock())
                if self._election.seen and self._election.seen.holder == self._election.me:
                    await self._write("")
        except (Refused, Unavailable, TimeoutError) as error:
            log.info("Failed to release the Lease; it expires by itself", err=str(error))

    def _log(self, why: str) -> None:
        """Log what is wrong when that changes; losing a race for the lease is nothing wrong."""
        if why and why != self._said and "modified" not in why and "already exists" not in why:
            log.warning("Failed to renew the Lease", lease=self._name, err=why)
        self._said = why

    def _notify(self) -> None:
        """Let others know how it stands now, and have this looked at again when this replica's time is over."""
        now = clock()
        leads = self._election.leads(now)
        self.lead.address = "" if leads else self._election.leader(now)
        state = (leads, self.lead.address)
        if state != self._reported:
            if leads != self._reported[0]:
                log.info("Leading" if leads else "No longer leading", lease=self._name)
            elif self.lead.address:
                log.info("Following a leader", lease=self._name, address=self.lead.address)
            self._reported = state
            self.lead.changed()
        if self._alarm:
            self._alarm.cancel()
            self._alarm = None
        if leads:
            pause = self._election.ends - now + 0.001
            self._alarm = asyncio.get_running_loop().call_later(pause, self._notify)


def _observe(lease: Lease | None) -> ObservedLease:
    if lease is None:
        return ObservedLease()
    meta, spec = lease.metadata, lease.spec
    return ObservedLease(
        spec.holder_identity or "",
        meta.annotations.get(ADDRESS, ""),
        meta.resource_version,
        float(spec.lease_duration_seconds or 0),
        spec.lease_transitions or 0,
    )
