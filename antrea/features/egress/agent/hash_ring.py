"""Hash ring that assigns addresses to Nodes: every agent with the same members computes the same, as upstream would.

Each Node has 50 places on a ring of hashes; an address belongs to the Node at the first place after its own hash that has room.
So when a Node goes, only its addresses move.
parity: pkg/agent/consistenthash/consistenthash.go, pkg/agent/controller/egress/ip_scheduler.go schedule
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from functools import lru_cache, partial
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple
from zlib import crc32

from antrea.facts.fact import precedence

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

REPLICAS = 50
RINGS = 64
"""Number of cached rings: one costs about 2 ms per 100 Nodes."""
MAX_SUBNETS = 20
"""Maximum number of subnets of one Node, each with a routing table of its own. # parity: pkg/agent/types/net.go"""


class RingRequest(NamedTuple):
    """Address that needs a Node."""

    created: str
    """RFC 3339"""
    name: str
    """Name of the Egress."""
    address: str
    pool: str
    preferred: tuple[str, ...] = ()
    """Nodes that precede the ring's choice, in this order."""
    stays: str = ""
    """Node that has it and keeps it as long as it can; empty if none."""
    apart: str = ""
    """Group of addresses that are to be on different Nodes; empty for none."""
    subnet: str = ""
    """Subnet of the address; empty for the Nodes' own."""

    def precedence(self) -> tuple[str, str, int]:
        """Sort key: the lowest is placed first."""
        return precedence(self.created, self.name)


class AntiAffinityPlace(NamedTuple):
    """Place of an address that is to be apart from others, as long as its Node can hold it."""

    node: str
    others: frozenset[str]
    """Nodes of the other addresses, used only if there is no other."""


class Ring:
    """The places of some Nodes."""

    def __init__(self, nodes: Iterable[str]) -> None:
        # of two Nodes at one place one is seen; upstream's order is by chance there, ours is that of names
        places = {hashed: node for node in sorted(nodes) for hashed in _places(node)}
        self._hashes = sorted(places)
        self._nodes = [places[hashed] for hashed in self._hashes]

    def pick(self, address: str, has_room: Callable[[str], bool] = lambda _: True) -> str:
        """Return the Node for `address`; empty if none has room."""
        start = bisect_left(self._hashes, crc32(address.encode()))
        full: set[str] = set()
        for index in range(start, start + len(self._nodes)):
            node = self._nodes[index % len(self._nodes)]
            if node in full:
                continue
            if has_room(node):
                return node
            full.add(node)
        return ""


@lru_cache(4096)
def _places(node: str) -> tuple[int, ...]:
    return tuple(crc32(f"{number}{node}".encode()) for number in range(REPLICAS))


@lru_cache(RINGS)
def ring(nodes: frozenset[str]) -> Ring:
    """The ring of these Nodes."""
    return Ring(nodes)


def choose(
    address: str, group: frozenset[str], may: Callable[[str], bool], better: Iterable[str] = ()
) -> str:
    """The first of `better` in the group that may have the address, else the ring's choice; empty: none may."""
    return next((node for node in better if node in group and may(node)), "") or ring(group).pick(
        address, may
    )


def place(
    wishes: Iterable[RingRequest],
    pools: Mapping[str, Sequence[Iterable[str]]],
    most: Callable[[str], int],
    homes: Mapping[str, AntiAffinityPlace] = MappingProxyType({}),
) -> dict[str, str]:
    """Return the Node of each Egress by name, empty if none has room. `pools` are their living Nodes, in groups of which the
    next counts if none of the one before has room; `most` is a Node's room.

    An address counts once on its Node, and has one, however many Egresses share it. An Egress whose pool is unknown is left
    out. What stays where it is comes before what is to be placed. `homes` are those of requests that are to be apart. Room is
    for addresses and for MAX_SUBNETS.
    """
    held: dict[str, set[str]] = defaultdict(set)
    subnets: dict[str, set[str]] = defaultdict(set)
    at: dict[tuple[str, str], str] = {}
    known = {pool: [frozenset(nodes) for nodes in groups if nodes] for pool, groups in pools.items()}
    order = [wish for wish in sorted(wishes, key=RingRequest.precedence) if wish.pool in known]

    def has_room(wish: RingRequest, node: str) -> bool:
        known = subnets[node]
        fits = not wish.subnet or wish.subnet in known or len(known) < MAX_SUBNETS
        return fits and len(held[node]) < most(node)

    def put(wish: RingRequest, node: str) -> None:
        if node:
            at[wish.pool, wish.address] = node
            held[node].add(wish.address)
            subnets[node] |= {wish.subnet} - {""}

    for wish in order:
        groups = known[wish.pool]
        if wish.stays and groups and wish.stays in groups[0] and has_room(wish, wish.stays):
            put(wish, at.get((wish.pool, wish.address), wish.stays))
    for wish in order:
        if (wish.pool, wish.address) not in at:
            room = partial(has_room, wish)
            picks = (_pick(wish, group, room, homes.get(wish.name)) for group in known[wish.pool])
            put(wish, next(filter(None, picks), ""))
    return {wish.name: at.get((wish.pool, wish.address), "") for wish in order}


def _pick(
    wish: RingRequest,
    group: frozenset[str],
    has_room: Callable[[str], bool],
    home: AntiAffinityPlace | None = None,
) -> str:
    if home:
        if home.node in group and has_room(home.node):
            return home.node
        alone = _pick(wish, group, lambda node: node not in home.others and has_room(node))
        if alone:
            return alone
    return choose(wish.address, group, has_room, (wish.stays, *wish.preferred))
