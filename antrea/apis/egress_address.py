"""The address that the controller writes into an Egress of a pool."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from antrea.rank import Rank

EGRESSES = "/apis/crd.antrea.io/v1beta1/egresses"


class EgressAddress(msgspec.Struct, frozen=True, kw_only=True):
    """An entry: `spec.egressIP` of the Egress, or one of `spec.egressIPs`, as long as it is the one that was looked at.

    It is wanted until the Egress has it; withdrawing it removes nothing.
    """

    egress: str
    uid: str
    generation: int
    """Generation of the spec that was checked: a later one is checked anew."""
    address: str
    """Empty: it gives up the one that it names, as its pool has it no more."""
    pool: str
    takes: bool = False
    """The Egress names an address, and loses it: only if the pool really is as it was looked at."""
    pool_uid: str = ""
    """Empty: there is no such pool."""
    pool_generation: int = 0
    slot: int = 0
    """Index in `spec.egressIPs`."""
    of: int = 0
    """Length of that list; 0: it is `spec.egressIP`."""

    rank: ClassVar[int] = Rank.REPORT
    """A refusal concerns this Egress alone."""
    category: ClassVar[int] = 0
    forgets: ClassVar[bool] = True

    @property
    def key(self) -> str:
        """Key of the row that it is about."""
        return f"{self.egress} {self.slot}" if self.slot else self.egress

    @property
    def owner(self) -> str:
        """Object to which the address is promised."""
        return f"Egress/{self.key}"
