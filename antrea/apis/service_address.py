"""The address of a pool that the controller writes into the status of a Service."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from antrea.apis.crd.part import Condition
from antrea.rank import Rank

SERVICES = "/api/v1/services"
ALLOCATED = "service.antrea.io/ExternalIPAllocated"
"""Type of our condition. A Service with it has its address from us."""


class ServiceAddress(msgspec.Struct, frozen=True, kw_only=True):
    """An entry: the one address in `status.loadBalancer` of a Service, and our condition, in the version that was looked at.

    It is wanted until the Service has it; that it is wanted no more takes nothing away.
    """

    namespace: str
    name: str
    uid: str
    generation: int
    """Its resourceVersion: another one is judged anew."""
    address: str
    """Empty: it has none."""
    condition: Condition | None
    """None: our condition goes."""
    turned: bool = False
    """The condition is new, or its status another one."""
    promised: bool = False
    """The address was offered, and is written as a promise that no other owner gets it meanwhile."""
    takes: bool = False
    """The Service has another address, and loses it: only if its pool really is as it was looked at."""
    pool: str = ""
    pool_uid: str = ""
    """Empty: there is no such pool."""
    pool_generation: int = 0

    rank: ClassVar[int] = Rank.REPORT
    """A refusal concerns this Service alone."""
    category: ClassVar[int] = 0
    forgets: ClassVar[bool] = True

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def owner(self) -> str:
        """Who is promised it."""
        return f"Service/{self.key}"
