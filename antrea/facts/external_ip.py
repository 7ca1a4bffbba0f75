"""Allocation of addresses of ExternalIPPools: names, requests, promises and holders; an owner is `Kind/name`, such as Egress/web."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import ClassVar, Self

import msgspec

from antrea.facts.fact import Fact, slot_key
from antrea.facts.member import KeptAddress


class FencedLeadership(Fact, frozen=True):
    """This replica leads, and has received all earlier writes; `antrea/controller/leader/fencing.py` writes it."""


class PendingAllocation(Fact, frozen=True):
    """An address that is being written into its owner's spec; this row is put before the write.

    It stays until the owner is another object, or has a later spec, which shows the outcome.
    """

    owner: str
    uid: str
    generation: int
    """Generation of the owner's spec that the write would change."""
    address: str
    indexes: ClassVar[Mapping[str, Callable[[PendingAllocation], Iterable[Hashable]]]] = {
        "address": lambda row: (row.address,)
    }

    @property
    def key(self) -> str:
        return self.owner

    def stands(self, uid: str, generation: int) -> bool:
        """Whether it may still be fulfilled for the owner as it is seen now."""
        return self.uid == uid and generation <= self.generation


class NamedAddress(Fact, frozen=True):
    """An address that is not free: its owner's spec names it, or it is promised; units of kinds derive it."""

    owner: str
    address: str
    """Address as `ipaddress` writes it."""
    pool: str = ""
    """The owner's pool, which has this address; empty: the owner has no pool, or one without this address."""
    since: str = ""
    """When the owner was created, RFC 3339: of two that name one address, the older has it."""
    promised: bool = False
    shares: bool = False
    """Its owner has it together with others that share it, too."""
    claim: int = 1
    """Before the age: 0 has it already and keeps it, 2 asks for one that another may have."""
    indexes: ClassVar[Mapping[str, Callable[[NamedAddress], Iterable[Hashable]]]] = {
        "address": lambda row: (row.address,),
        "promised": lambda row: (row.owner,) if row.promised else (),
    }

    @property
    def key(self) -> str:
        return f"{self.owner} {self.address}"


class AddressBlock(Fact, frozen=True):
    """Addresses within 256: each who has one adds it, so that a change costs no more where many are."""

    family: int
    block: int
    """Their number without the last 8 bits."""
    parts: tuple[int, ...] = ()

    def with_parts(self, parts: tuple[int, ...]) -> Self:
        return msgspec.structs.replace(self, parts=parts)


class TakenAddresses(AddressBlock, frozen=True):
    """Addresses that are named or promised, by whomever and of whatever pool."""

    @property
    def key(self) -> str:
        return f"{self.family} {self.block}"


class UsedAddresses(AddressBlock, frozen=True, kw_only=True):
    """Addresses of a pool that are held."""

    pool: str
    indexes: ClassVar[Mapping[str, Callable[[UsedAddresses], Iterable[Hashable]]]] = {
        "pool": lambda row: (row.pool,)
    }

    @property
    def key(self) -> str:
        return f"{self.pool} {self.family} {self.block}"


class AddressRequest(Fact, frozen=True):
    """An owner that wants an address of a pool and names none that the pool has; units of kinds derive it."""

    owner: str
    pool: str
    since: str = ""
    families: tuple[int, ...] = ()
    """4 or 6: those that it has use for, the better first, as far as the pool has addresses of them. None: any."""
    indexes: ClassVar[Mapping[str, Callable[[AddressRequest], Iterable[Hashable]]]] = {
        "pool": lambda row: (row.pool,)
    }

    @property
    def key(self) -> str:
        return self.owner


class AddressOffer(Fact, frozen=True):
    """Address that a requester may have, "" while its pool has none left."""

    owner: str
    pool: str
    address: str

    @property
    def key(self) -> str:
        return self.owner


class HeldAddress(Fact, frozen=True):
    """An address of a pool that its owner names and has: it counts as used."""

    owner: str
    pool: str
    address: str

    @property
    def key(self) -> str:
        return self.owner


class PooledService(Fact, frozen=True):
    """A Service that is to have an address of a pool, or has one of whatever load balancer; the controller's feed writes it."""

    namespace: str
    name: str
    uid: str
    generation: int
    """Its resourceVersion: a Service has no generation."""
    since: str = ""
    """When it was created, RFC 3339."""
    pools: tuple[str, ...] = ()
    """Its ExternalIPPools; none: it is none of ours (any more)."""
    wants: str = ""
    """spec.loadBalancerIP, as `ipaddress` writes it; what is not an address is left as it is."""
    addresses: tuple[str, ...] = ()
    """Addresses of its status, as `ipaddress` writes them."""
    count: int = 0
    """How many entries its status has: addresses and names."""
    shares: bool = False
    """Whether it has its address together with others that share it, too."""
    families: tuple[int, ...] = ()
    """4 or 6: those of its ClusterIPs, in their order."""
    condition: tuple[str, str, str] | None = None
    """Status, reason and message of our condition, which marks an address as ours to take away; None: there is none."""
    doubt: str = ""
    """Sentence on an annotation that has no effect; empty: none."""
    indexes: ClassVar[Mapping[str, Callable[[PooledService], Iterable[Hashable]]]] = {
        "address": lambda row: {*row.addresses, row.wants} - {""}
    }

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def owner(self) -> str:
        """Owner of the first of its addresses of pools."""
        return self.slot_owner(0)

    def slot_owner(self, slot: int) -> str:
        """Return the owner of one of several addresses."""
        return f"Service/{slot_key(self.key, slot)}"


class PoolAddressNodes(Fact, frozen=True):
    """Nodes with an Endpoint of one family that may answer for a Service with externalTrafficPolicy Local; derived by the agent."""

    service: str
    """namespace/name"""
    ipv6: bool
    parts: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        return nodes_key(self.service, ipv6=self.ipv6)

    def with_parts(self, parts: tuple[str, ...]) -> Self:
        return msgspec.structs.replace(self, parts=parts)


def nodes_key(service: str, *, ipv6: bool) -> str:
    """Key of the PoolAddressNodes row of a Service in one family."""
    return f"{service} {'IPv6' if ipv6 else 'IPv4'}"


class AnsweredAddress(Fact, frozen=True):
    """Some Node answered for an external IP of a Service while this Node ran; the agent's part writes it."""

    holder: str
    """Key of the ExternalIPOwner row."""
    ip: str
    others: tuple[str, ...] = ()
    """Nodes that did, other than this one, the latest first."""
    here: bool = False
    """Whether this Node did, at whatever time."""

    @property
    def key(self) -> str:
        return self.holder

    @property
    def service(self) -> str:
        """namespace/name"""
        return self.holder.partition(" ")[0]


class AnsweringNetwork(Fact, frozen=True):
    """Whether neighbours in a network of this Node answer it; the feed of networks writes it."""

    dev: str
    network: str
    """Its CIDR."""
    answers: bool
    """Whether any of the probed neighbours does."""
    targets: tuple[str, ...] = ()
    """Addresses of the probed neighbours."""
    unheard: str = ""
    """An external IP as which they answer the Node no longer, though they answer it; empty: none."""

    @property
    def key(self) -> str:
        return f"{self.dev} {self.network}"


class ExternalIPOwner(Fact, frozen=True):
    """Which Node is to answer for an external IP of a Service; every agent derives the same."""

    service: str
    """namespace/name"""
    ip: str
    pool: str
    node: str
    """Empty: none can."""
    why: str = ""
    """Why none can."""
    keeps: bool = False
    """Whether the Node keeps the address while more suitable Nodes are alive."""
    home: str = ""
    """A better Node, to which it goes when no connection uses the address; empty: there is none, or it does not wait."""
    slot: int = 0
    """Which of the addresses of the Service this is."""
    indexes: ClassVar[Mapping[str, Callable[[ExternalIPOwner], Iterable[Hashable]]]] = {
        "ip": lambda row: (row.ip,)
    }

    @property
    def key(self) -> str:
        return slot_key(self.service, self.slot)


class OwnClaims(Fact, frozen=True):
    """External IPs of Services that this Node keeps from better ones, as its annotation is to name them.

    What the API shows of this Node is older than this.
    """

    kept: tuple[KeptAddress, ...] = ()
