"""Facts of the controller and the agent about Egresses."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import ClassVar

import msgspec

from antrea.facts.fact import Fact, precedence, slot_key
from antrea.facts.group import GroupSelector


class EgressRow(Fact, frozen=True):
    """An address of an Egress as the controller sees it; its Egress feed writes it."""

    name: str
    uid: str
    selector: GroupSelector | None
    """None: it selects nothing."""
    generation: int = 0
    """Generation of its spec."""
    since: str = ""
    """When it was created, RFC 3339."""
    pool: str = ""
    """Its ExternalIPPool; empty: none."""
    address: str = ""
    """Address in its spec, as `ipaddress` writes it; empty: none."""
    judged: str = ""
    """Whether it was given its addresses, by its status: True, False, or empty."""
    reported: tuple[str, ...] = ()
    """Types of conditions in its status about Pods that it selects without effect."""
    slot: int = 0
    """Which of its addresses this is."""
    of: int = 0
    """How many it lists; 0: it has no lists, but one address."""
    unanswered: str = ""
    """Message of its status that its pool's gateway does not answer; empty: there is none."""
    lost: bool = False
    """Its status has conditions, and none on its address: who wrote the list left that out."""
    survives: bool = False
    """Whether each of its Pods gets a block of source ports; from an annotation."""
    blocks: tuple[tuple[str, int, tuple[str, ...], bool], ...] = ()
    """Blocks in its status: Pod, first port, addresses of the Pod, whether that has ended."""
    indexes: ClassVar[Mapping[str, Callable[[EgressRow], Iterable[Hashable]]]] = {
        "address": lambda row: (row.address,) if row.address else (),
        "name": lambda row: (row.name,) if row.of else (),
        "unanswered": lambda row: (row.pool,) if row.unanswered and row.pool else (),
    }

    @property
    def precedence(self) -> tuple[str, str, int]:
        return precedence(self.since, self.name, self.slot)

    @property
    def key(self) -> str:
        return slot_key(self.name, self.slot)

    @property
    def owner(self) -> str:
        """Owner of addresses of pools."""
        return f"Egress/{self.key}"


class SelectionConflict(Fact, frozen=True):
    """Pods with these labels, which Egresses select without effect; derived."""

    labels: str
    """Key of their `LabelSet`."""
    older: tuple[tuple[str, str], ...] = ()
    """Egresses that they do not follow, each with the one that they follow instead."""
    host: tuple[str, ...] = ()
    """Egresses that select some of them which are in their Node's own network."""
    indexes: ClassVar[Mapping[str, Callable[[SelectionConflict], Iterable[Hashable]]]] = {
        "egress": lambda row: {*row.host, *(name for name, _ in row.older)}
    }

    @property
    def key(self) -> str:
        return self.labels


class PortBlockRequest(Fact, frozen=True):
    """A Pod that follows an Egress whose connections are to outlive a gateway; derived."""

    egress: str
    pod: str
    """namespace/name"""
    ips: tuple[str, ...]
    other: str = ""
    """Why the Pod gets no block of this Egress, whatever blocks are free; empty: it may get one."""
    indexes: ClassVar[Mapping[str, Callable[[PortBlockRequest], Iterable[Hashable]]]] = {
        "egress": lambda row: (row.egress,)
    }

    @property
    def key(self) -> str:
        return f"{self.egress} {self.pod}"


class FreeBlock(Fact, frozen=True):
    """The Pod of a block of ports ended long enough ago; antrea/features/egress/controller_part.py writes it, and drops it soon."""

    egress: str
    """UID of the Egress."""
    pod: str
    first: int
    indexes: ClassVar[Mapping[str, Callable[[FreeBlock], Iterable[Hashable]]]] = {
        "egress": lambda row: (row.egress,)
    }

    @property
    def key(self) -> str:
        return f"{self.egress} {self.pod} {self.first}"


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


class EgressPortBlock(Fact, frozen=True):
    """Source ports that one Pod alone has at the addresses of an Egress; the agent's Egress feed writes it."""

    egress: str
    pod: str
    """namespace/name"""
    first: int
    last: int
    ips: tuple[str, ...] = ()
    """Addresses of the Pod; empty while they are not known."""
    indexes: ClassVar[Mapping[str, Callable[[EgressPortBlock], Iterable[Hashable]]]] = {
        "pod": lambda row: (row.pod,)
    }

    @property
    def key(self) -> str:
        return f"{self.egress} {self.pod}"


class EgressLimit(msgspec.Struct, frozen=True):
    """Bandwidth limit of all Pods of an Egress together, for traffic to outside the cluster."""

    rate: int
    """Kilobits per second."""
    burst: int
    """Kilobits."""


class Egress(Fact, frozen=True):
    """An address of an Egress as agents see it; the agent's Egress feed writes it."""

    name: str
    uid: str
    ip: str = ""
    """Address as Python writes it, empty while it has none: spec.egressIP, which the controller fills in from the pool."""
    pool: str = ""
    """ExternalIPPool whose Nodes are to hold the address; empty: the Node with the address on an interface."""
    created: str = ""
    """RFC 3339"""
    node: str = ""
    """The holder of the address: status.egressNode."""
    held: str = ""
    """Which address that is, as Python writes it: status.egressIP."""
    preferred: tuple[str, ...] = ()
    """Nodes that are to hold the address, the first one that can; from an annotation."""
    stays: bool = False
    """Whether the address stays with a Node that lives, whichever were better; from an annotation."""
    waits: bool = False
    """Whether it stays as long as connections use it; from an annotation."""
    waiting: str = ""
    """Whether it does so now, by its status: True, False (no connection uses it), or empty."""
    resets: bool = False
    """Whether TCP connections that its gateway does not know are ended; from an annotation."""
    limit: EgressLimit | None = None
    """None: as much as they like."""
    survives: bool = False
    """Whether its Pods have blocks of source ports; from an annotation."""
    copies: bool = False
    """Whether its connections are copied to the next gateways; from an annotation."""
    copied: bool = False
    """Whether its status has a condition on that."""
    cidrs: tuple[str, ...] = ()
    """Where its Pods' packets must go to, so that they leave with the address; none: anywhere."""
    excepts: tuple[str, ...] = ()
    """Where they must not go to."""
    invalid: str = ""
    """Invalid text in place of an address in its spec; empty: none."""
    failed: str = ""
    """Message of its status that no Node holds or translates its address; empty: there is none."""
    judged: bool = False
    """Whether its status has a condition on its bandwidth."""
    conflicts: str = ""
    """Message of its status about another host with its address; empty: there is none."""
    unanswered: bool = False
    """Whether its status reports a gateway that does not answer."""
    troubles: tuple[tuple[str, str], ...] = ()
    """Errors of one of several addresses by its entry in the status; fields and sentences."""
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
    def precedence(self) -> tuple[str, str, int]:
        return precedence(self.created, self.name, self.slot)

    @property
    def key(self) -> str:
        return slot_key(self.name, self.slot)


class PlacementRequest(Fact, frozen=True):
    """An address of a pool that needs a Node; derived from its Egress row.

    It has only what the placement depends on: other changes of the Egress, such as most of its status, place nothing anew.
    """

    egress: str
    """Key of the Egress row."""
    ip: str
    pool: str
    created: str
    """RFC 3339"""
    preferred: tuple[str, ...]
    """Nodes that come before the ring's choice, in this order."""
    stays: str
    """The Node that keeps the address as long as it can; empty: none."""
    waits: bool
    """It stays there because connections use it."""
    apart: str
    """Group of addresses that are spread over different Nodes; empty: no group."""

    @property
    def key(self) -> str:
        return self.egress


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


class UnusedAddress(Fact, frozen=True):
    """Egress IP of this Node that no connection has used for a while, as the agent's idle detector reports."""

    ip: str

    @property
    def key(self) -> str:
        return self.ip


class ProbedAddress(Fact, frozen=True):
    """Neighbours were asked who has an address that this Node is to hold; antrea/features/external_ip_pool/agent_part/duplicate_prober.py writes it."""

    holder: str
    """Key of the Egress row, or of ExternalIPOwner."""
    ip: str
    mac: str = ""
    """MAC address of the host that has the address; empty: no host."""

    @property
    def key(self) -> str:
        return self.holder


class EgressGateway(Fact, frozen=True):
    """The router of a subnet in which this Node has addresses of a pool; the feed of antrea/features/egress/agent_part/gateway_prober.py writes it."""

    dev: str
    ip: str
    answers: bool

    @property
    def key(self) -> str:
        return f"{self.dev} {self.ip}"


class AssignedAddress(Fact, frozen=True):
    """An address of an Egress for whose assignment to this Node there is an Event; antrea/features/egress/agent_part/part.py writes it."""

    egress: str
    """Key of the Egress row."""
    name: str
    uid: str
    """UID of the Egress object."""
    ip: str

    @property
    def key(self) -> str:
        return f"{self.egress} {self.ip}"


class ReleasedAddress(Fact, frozen=True):
    """Another Node has an address: this one gives it up, and translates late packets while the row is there, which the agent's clock drops."""

    egress: str
    """Key of the Egress row."""
    ip: str
    to: str

    @property
    def key(self) -> str:
        return self.egress


class AnnouncedAddress(Fact, frozen=True):
    """This Node has just announced an address that `before` hands over: Pods' packets may be sent here.

    It stays until answers to what left by `before` have come; the agent's clock writes it.
    """

    egress: str
    ip: str
    before: str

    @property
    def key(self) -> str:
        return self.egress


class MissingAddress(Fact, frozen=True):
    """For a moment already no Node has this address of an Egress, or may use it; antrea/features/egress/agent_part/part.py writes it."""

    egress: str
    """Key of the Egress row."""
    why: str

    @property
    def key(self) -> str:
        return self.egress


class ConnectionCopy(Fact, frozen=True):
    """Which Nodes get copies of the connections that this Node translates to an address; derived."""

    ip: str
    heirs: tuple[str, ...]
    """The one that would take the address over first, then the next."""
    whole: bool
    """All connections; else those that need more than blocks of ports."""

    @property
    def key(self) -> str:
        return self.ip


class CopySource(Fact, frozen=True):
    """The Node whose copies of connections of an address this one accepts; derived."""

    ip: str
    node: str

    @property
    def key(self) -> str:
        return self.ip


class HeirReport(Fact, frozen=True):
    """Report of a Node about the copies that it gets of this one; antrea/features/egress/agent_part/connection_copier.py writes it."""

    node: str
    whole: bool
    """It has all."""
    refused: bool
    """Its kernel refused some."""
    full: bool
    """Because its table is full."""

    @property
    def key(self) -> str:
        return self.node


class CopiedAddress(Fact, frozen=True):
    """This Node has entered all connections that `source` translates to an address, but those that the kernel refuses; antrea/features/egress/agent_part/connection_copier.py writes it."""

    ip: str
    source: str

    @property
    def key(self) -> str:
        return self.ip


class EgressMark(Fact, frozen=True):
    """The number by which OVS and the host know an Egress IP that is on this Node; derived."""

    ip: str
    mark: int
    """1 to 255."""

    @property
    def key(self) -> str:
        return self.ip
