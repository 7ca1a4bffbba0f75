"""Anti-affinity of the addresses of one Egress: each on a Node of its own as long as there are enough.

Places are chosen among all Nodes that a pool selects, alive or not: so the loss of a Node moves only its own address, to a Node
without an address if there is one, and its return moves that one back.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from antrea.features.egress.agent.hash_ring import AntiAffinityPlace, RingRequest, ring

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


def homes_of(
    wishes: Iterable[RingRequest], selected: Mapping[str, Iterable[str]]
) -> dict[str, AntiAffinityPlace]:
    """Return the place of each request that is to be apart from another, by name; `selected` are the Nodes of each pool."""
    groups: dict[str, list[RingRequest]] = defaultdict(list)
    for wish in sorted(wishes, key=RingRequest.precedence):
        if wish.apart and wish.pool in selected:
            groups[wish.apart].append(wish)
    pools = {pool: frozenset(nodes) for pool, nodes in selected.items()} if groups else {}
    places: dict[str, AntiAffinityPlace] = {}
    for group in groups.values():
        nodes: dict[str, str] = {}
        for wish in group:
            nodes[wish.name] = _home(wish, pools[wish.pool], frozenset(nodes.values()))
        for wish in group:
            others = frozenset(node for name, node in nodes.items() if name != wish.name)
            places[wish.name] = AntiAffinityPlace(nodes[wish.name], others)
    return places


def _home(wish: RingRequest, nodes: frozenset[str], taken: frozenset[str]) -> str:
    free = nodes - taken or nodes
    better = next((node for node in wish.preferred if node in free), "")
    return better or ring(nodes).pick(wish.address, free.__contains__)
