"""Owner of the address of each Egress with a pool: derived alike on every Node, from living members.

Anti-affinity: each address of one Egress is on a Node of its own as long as there are enough. Places are chosen among all Nodes
that a pool selects, alive or not: so the loss of a Node moves only its own address, to a Node without an address if there is one,
and its return moves that one back.

Failback: an address returns to the better Node immediately, never, or when no connection uses it. The holder sees the
connections of an address. Its status shows whether the address waits to go back or is idle; all agents read that, and so place
it alike.

parity: pkg/agent/controller/egress/ip_scheduler.go
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final

from antrea.apis.crd.part import Condition
from antrea.config.agent import AgentConfig
from antrea.engine import Unit
from antrea.facts.egress import Egress, EgressOwner, PlacementRequest, UnusedAddress
from antrea.facts.family import is_ipv6
from antrea.facts.member import AgentNode, PoolMembers, PoolSelector, Quorum
from antrea.facts.node import ThisNode
from antrea.features.egress.agent.allocated import unallocated_reason
from antrea.features.egress.agent.bfd import UNITS as BFD_UNITS
from antrea.features.egress.agent.hash_ring import AntiAffinityPlace, RingRequest, place, ring
from antrea.features.egress.agent.last_candidate import last_candidate
from antrea.features.egress.agent.subnet import are_apart, name_of
from antrea.features.external_ip_pool.pool import IDLE_SECONDS
from antrea.features.framework.agent_feature import AgentFeature

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from antrea.engine import Facts

ROOM = 255
"""Maximum number of addresses of one Node, if no lower limit is set: as many as there are marks."""
NO_ROOM = "no Node available"
"""Reason if none of the pool's Nodes is alive and has room; upstream's words, which its end-to-end tests compare."""
NO_MAJORITY = "this Node is not with the majority of agents"
WAITS: Final = "FailbackWaits"
"""Type of a condition beyond upstream's."""
IN_USE, IDLE = "waits", "idle"
"""Values of one of several addresses, which have no condition of their own."""


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


def stays_at(egress: Egress) -> str:
    """Return the Node that is to keep its address as long as it can, by the status, which all agents read; empty if none."""
    waits = egress.waits and egress.waiting != "False"
    return egress.node if (egress.stays or waits) and egress.held == egress.ip else ""


def waiting_of(conditions: Collection[Condition]) -> str:
    """Return True, or False once it is idle, by the status; empty if neither."""
    return next((condition.status for condition in conditions if condition.type == WAITS), "")


def failback_word(facts: Facts, egress: Egress) -> str:
    """Return the value of one of several addresses, for its entry in the status; empty if it does not wait."""
    owner = facts.get(EgressOwner, egress.key)
    if owner is None or not owner.home:
        return ""
    return IDLE if facts.get(UnusedAddress, egress.ip) else IN_USE


def waiting_by(word: str) -> str:
    """Return the status of the condition for an entry's value."""
    return {IN_USE: "True", IDLE: "False"}.get(word, "")


def failback_conditions(facts: Facts, egress: Egress, owner: EgressOwner) -> tuple[Condition, ...]:
    """Return the condition on whether connections keep the address from a better Node; for the holder."""
    if not owner.home:
        return (Condition(WAITS),) if egress.waiting else ()
    if facts.get(UnusedAddress, egress.ip):
        message = f"no connection has used the address for {IDLE_SECONDS} s: it goes to Node {owner.home}"
        return (Condition(WAITS, "False", reason="Idle", message=message),)
    message = f"it goes to Node {owner.home} when no connection has used the address for {IDLE_SECONDS} s"
    return (Condition(WAITS, "True", reason="InUse", message=message),)


def placement_request(facts: Facts, egress: Egress) -> Iterator[PlacementRequest]:
    """Yield the request of an Egress with an address of a pool."""
    if not (egress.pool and egress.ip) or unallocated_reason(facts, egress):
        return
    stays = stays_at(egress)
    apart = f"{egress.name} {is_ipv6(egress.ip)}" if egress.of else ""
    yield PlacementRequest(
        egress.key, egress.ip, egress.pool, egress.created, egress.preferred, stays,
        egress.waits and bool(stays), apart,
    )  # fmt: skip


def _ring_requests(facts: Facts, requests: Iterable[PlacementRequest]) -> Iterator[RingRequest]:
    apart = facts.all(PoolSelector) if are_apart(facts) else ()
    subnets = {row.pool: name_of(row.gateway, row.prefix, row.vlan) for row in apart if row.gateway}
    for request in requests:
        yield RingRequest(
            request.created,
            request.egress,
            request.ip,
            request.pool,
            request.preferred,
            request.stays,
            request.apart,
            subnets.get(request.pool, ""),
        )


def placements(facts: Facts, lost: Collection[str] = (), *, free: bool = False) -> dict[str, str]:
    """Return the Node of each address by the key of its Egress row, as if the `lost` Nodes were dead; empty if none can hold it.

    With `free` no address stays where it is because connections use it.
    """
    config = facts.get(AgentConfig)
    room = config.egress.max_egress_ips_per_node if config else ROOM
    limits = {node.name: node.most_egress_ips for node in facts.all(AgentNode)}

    def most(node: str) -> int:
        said = limits.get(node)
        return min(room if said is None else said, ROOM)

    requests = facts.all(PlacementRequest)
    wishes = list(_ring_requests(facts, requests))
    if free:
        waiting = {request.egress for request in requests if request.waits}
        wishes = [wish._replace(stays="") if wish.name in waiting else wish for wish in wishes]
    members = facts.all(PoolMembers)
    apart = homes_of(wishes, {row.pool: row.selected for row in members})
    pools = {
        row.pool: tuple(tuple(node for node in tier if node not in lost) for tier in row.tiers)
        for row in members
    }
    return place(wishes, pools, most, apart)


def egress_owners(facts: Facts, quorum: Quorum) -> Iterator[EgressOwner]:
    """Yield the owners of all Egresses with an address of a pool: sharing a Node's room, one's place depends on the others'.

    Without a majority this Node takes nothing; what it has received of others stays true as far as it can find out.
    """
    this = facts.get(ThisNode)
    placed = placements(facts)
    waiting = {request.egress for request in facts.all(PlacementRequest) if request.waits}
    homes = placements(facts, free=True) if waiting else {}
    for egress, node in placed.items():
        if not node:
            yield EgressOwner(egress, "", NO_ROOM)
        elif this and node == this.name and not quorum.has:
            yield EgressOwner(egress, "", NO_MAJORITY)
        else:
            home = homes.get(egress, "") if egress in waiting else ""
            yield EgressOwner(egress, node, home=home if home != node else "")


FEATURE = AgentFeature(
    name="EgressPlacement",
    gate="Egress",
    units=(
        Unit(Egress, placement_request, yields=(PlacementRequest,)),
        Unit(Quorum, egress_owners, yields=(EgressOwner,)),
        Unit(PoolMembers, last_candidate),
        *BFD_UNITS,
    ),
)
