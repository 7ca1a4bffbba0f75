"""What controller and agent know of Egresses."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import ClassVar

from antrea.facts.fact import Fact
from antrea.facts.group import GroupSelector


class EgressRow(Fact, frozen=True):
    """An Egress as the controller sees it; its Egress feed writes it."""

    name: str
    uid: str
    selector: GroupSelector | None
    """None: it selects nothing."""
    generation: int = 0
    """Of its spec."""
    since: str = ""
    """When it was created, RFC 3339."""
    pool: str = ""
    """Its ExternalIPPool; empty: none."""
    address: str = ""
    """That its spec names, as `ipaddress` writes it; empty: none."""
    judged: str = ""
    """Whether it was given an address, as its status says: True, False, or nothing."""
    indexes: ClassVar[Mapping[str, Callable[[EgressRow], Iterable[Hashable]]]] = {
        "address": lambda row: (row.address,) if row.address else ()
    }

    @property
    def key(self) -> str:
        return self.name

    @property
    def owner(self) -> str:
        """Of addresses of pools."""
        return f"Egress/{self.name}"


class EgressPod(Fact, frozen=True):
    """A Pod of this Node that an Egress selects; the agent's feed of EgressGroups writes it."""

    egress: str
    pod: str
    """namespace/name"""
    indexes: ClassVar[Mapping[str, Callable[[EgressPod], Iterable[Hashable]]]] = {
        "pod": lambda row: (row.pod,),
        "egress": lambda row: (row.egress,),
    }

    @property
    def key(self) -> str:
        return f"{self.egress} {self.pod}"


class Egress(Fact, frozen=True):
    """An Egress as agents see it; the agent's Egress feed writes it."""

    name: str
    uid: str
    ip: str = ""
    """As Python writes it, empty while it has none: spec.egressIP, which the controller fills in from the pool."""
    pool: str = ""
    """ExternalIPPool whose Nodes are to hold the address; empty: whoever has it on an interface."""
    created: str = ""
    """RFC 3339"""
    node: str = ""
    """Who holds the address, as status.egressNode says."""
    held: str = ""
    """Which address that is, as Python writes it: status.egressIP."""
    preferred: tuple[str, ...] = ()
    """Nodes that are to hold the address, the first one that can; from an annotation."""
    stays: bool = False
    """Whether the address stays with a Node that lives, whichever were better; from an annotation."""

    indexes: ClassVar[Mapping[str, Callable[[Egress], Iterable[Hashable]]]] = {
        "ip": lambda row: (row.ip,) if row.ip else (),
        "pool": lambda row: (row.pool,) if row.pool else (),
    }

    @property
    def key(self) -> str:
        return self.name


class EgressOwner(Fact, frozen=True):
    """Which Node is to hold the address of an Egress with a pool; every agent derives the same."""

    egress: str
    node: str
    """Empty: none can."""
    why: str = ""
    """Why none can."""

    @property
    def key(self) -> str:
        return self.egress


class Parted(Fact, frozen=True):
    """This Node waited long enough since another took over an address: it gives it up; the agent's clock writes it."""

    egress: str
    ip: str
    to: str

    @property
    def key(self) -> str:
        return self.egress


class EgressMark(Fact, frozen=True):
    """The number by which OVS and the host know an Egress IP that is on this Node; derived."""

    ip: str
    mark: int
    """1 to 255."""

    @property
    def key(self) -> str:
        return self.ip
