"""What controller and agent know of Egresses."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import ClassVar

import msgspec

from antrea.facts.fact import Fact
from antrea.facts.group import GroupSelector


def slot_key(egress: str, slot: int) -> str:
    """The first address of an Egress, often the only one, goes by its name; no name has a space."""
    return f"{egress} {slot}" if slot else egress


class EgressRow(Fact, frozen=True):
    """An address of an Egress as the controller sees it; its Egress feed writes it."""

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
    """Whether it was given its addresses, as its status says: True, False, or nothing."""
    told: tuple[str, ...] = ()
    """Types of conditions in its status that tell of Pods which it selects in vain."""
    slot: int = 0
    """Which of its addresses this is."""
    of: int = 0
    """How many it lists; 0: it has no lists, but one address."""
    unanswered: str = ""
    """What its status tells of its pool's gateway that does not answer; empty: nothing."""
    indexes: ClassVar[Mapping[str, Callable[[EgressRow], Iterable[Hashable]]]] = {
        "address": lambda row: (row.address,) if row.address else (),
        "name": lambda row: (row.name,) if row.of else (),
        "unanswered": lambda row: (row.pool,) if row.unanswered and row.pool else (),
    }

    @property
    def key(self) -> str:
        return slot_key(self.name, self.slot)

    @property
    def owner(self) -> str:
        """Of addresses of pools."""
        return f"Egress/{self.key}"


class Selection(Fact, frozen=True):
    """Pods with these labels, which Egresses select in vain; derived."""

    labels: str
    """Key of their `LabelSet`."""
    older: tuple[tuple[str, str], ...] = ()
    """Egresses that they do not follow, each with the one that they follow instead."""
    host: tuple[str, ...] = ()
    """Egresses that select some of them which are in their Node's own network."""
    indexes: ClassVar[Mapping[str, Callable[[Selection], Iterable[Hashable]]]] = {
        "egress": lambda row: {*row.host, *(name for name, _ in row.older)}
    }

    @property
    def key(self) -> str:
        return self.labels


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


class Limit(msgspec.Struct, frozen=True):
    """What all Pods of an Egress together may send to outside."""

    rate: int
    """Kilobits per second."""
    burst: int
    """Kilobits."""


class Egress(Fact, frozen=True):
    """An address of an Egress as agents see it; the agent's Egress feed writes it."""

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
    waits: bool = False
    """Whether it stays as long as connections use it; from an annotation."""
    waiting: str = ""
    """Whether it does so now, as its status says: True, False (nothing uses it), or nothing."""
    resets: bool = False
    """Whether TCP connections that its gateway does not know are ended; from an annotation."""
    limit: Limit | None = None
    """None: as much as they like."""
    cidrs: tuple[str, ...] = ()
    """Where its Pods' packets must go to, so that they leave with the address; none: anywhere."""
    excepts: tuple[str, ...] = ()
    """Where they must not go to."""
    failed: bool = False
    """Whether its status says that no Node can hold or translate its address."""
    judged: bool = False
    """Whether its status tells what became of its bandwidth."""
    conflicts: bool = False
    """Whether its status tells of another host with its address."""
    unanswered: bool = False
    """Whether its status tells of a gateway that does not answer."""
    troubles: tuple[tuple[str, str], ...] = ()
    """Of one of several addresses: what is wrong with it, as its entry in the status says; fields and sentences."""
    slot: int = 0
    """Which of its addresses this is."""
    of: int = 0
    """How many it lists; 0: it has no lists, but one address."""

    indexes: ClassVar[Mapping[str, Callable[[Egress], Iterable[Hashable]]]] = {
        "ip": lambda row: (row.ip,) if row.ip else (),
        "pool": lambda row: (row.pool,) if row.pool else (),
        "name": lambda row: (row.name,),
    }

    @property
    def key(self) -> str:
        return slot_key(self.name, self.slot)


class EgressOwner(Fact, frozen=True):
    """Which Node is to hold an address of an Egress with a pool; every agent derives the same."""

    egress: str
    """Key of the Egress row."""
    node: str
    """Empty: none can."""
    why: str = ""
    """Why none can."""
    home: str = ""
    """A better Node, to which it goes when no connection uses the address; empty: there is none, or it does not wait."""

    @property
    def key(self) -> str:
        return self.egress


class Unused(Fact, frozen=True):
    """No connection has used this Egress IP of this Node for a while; the feed of antrea/agent/failback.py writes it."""

    ip: str

    @property
    def key(self) -> str:
        return self.ip


class Probed(Fact, frozen=True):
    """Neighbours were asked who has an Egress IP that this Node is to hold; the feed of antrea/agent/probing.py writes it."""

    egress: str
    """Key of the Egress row."""
    ip: str
    mac: str = ""
    """Of the host that has it; empty: none has."""

    @property
    def key(self) -> str:
        return self.egress


class Gateway(Fact, frozen=True):
    """The router of a VLAN in which this Node has Egress IPs; the feed of antrea/agent/gateways.py writes it."""

    dev: str
    ip: str
    answers: bool

    @property
    def key(self) -> str:
        return f"{self.dev} {self.ip}"


class Parted(Fact, frozen=True):
    """This Node waited long enough since another took over an address: it gives it up; the agent's clock writes it."""

    egress: str
    """Key of the Egress row."""
    ip: str
    to: str

    @property
    def key(self) -> str:
        return self.egress


class Announced(Fact, frozen=True):
    """This Node told its neighbours a moment ago of an address that `before` hands over: Pods' packets may turn here.

    It stays until answers to what left by `before` have come; the agent's clock writes it.
    """

    egress: str
    ip: str
    before: str

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
