"""The addresses of a pool that the controller writes into the status of a Service."""

from __future__ import annotations

from typing import ClassVar, NamedTuple

import msgspec

from antrea.apis.crd.part import Condition
from antrea.rank import Rank

SERVICES = "/api/v1/services"
ALLOCATED = "service.antrea.io/ExternalIPAllocated"
"""Type of our condition. A Service with it has its address from us."""
ADVERTISED = "service.antrea.io/Advertised"
"""Type of the condition of a Service whose addresses Nodes advertise to routers by BGP."""


class PendingAddress(NamedTuple):
    """An address that one owner is about to get."""

    owner: str
    uid: str
    generation: int
    address: str


class JudgedPool(NamedTuple):
    """A pool as it was looked at."""

    pool: str
    pool_uid: str = ""
    """Empty: there is no such pool."""
    pool_generation: int = 0


class ServiceAddress(msgspec.Struct, frozen=True, kw_only=True):
    """An entry: all addresses in `status.loadBalancer` of a Service, and our condition, in the version that was looked at.

    It is wanted until the Service has it; that it is wanted no more takes nothing away.
    """

    namespace: str
    name: str
    uid: str
    generation: int
    """Its resourceVersion: another one is judged anew."""
    addresses: tuple[str, ...]
    condition: Condition | None
    """None: our condition goes."""
    turned: bool = False
    """The condition is new, or its status another one."""
    promised: tuple[tuple[str, str], ...] = ()
    """Owners and addresses that were offered to them: these are written as promises that no other owner gets them meanwhile."""
    takes: bool = False
    """The Service has an address that it loses: only if its pools really are as they were looked at."""
    pools: tuple[JudgedPool, ...] = ()

    rank: ClassVar[int] = Rank.REPORT
    """A refusal concerns this Service alone."""
    category: ClassVar[int] = 0
    forgets: ClassVar[bool] = True

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def promises(self) -> tuple[PendingAddress, ...]:
        return tuple(
            PendingAddress(owner, self.uid, self.generation, address) for owner, address in self.promised
        )
