"""Owner of the address of each Egress with a pool: derived alike on every Node, from living members.

parity: pkg/agent/controller/egress/ip_scheduler.go
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from antrea.config.agent import AgentConfig
from antrea.engine import Unit
from antrea.facts.egress import Egress, EgressOwner, PlacementRequest
from antrea.facts.family import is_ipv6
from antrea.facts.member import AgentNode, PoolMembers, PoolSelector, Quorum
from antrea.facts.node import ThisNode
from antrea.features.egress.agent.allocated import why_unallocated
from antrea.features.egress.agent.anti_affinity import homes_of
from antrea.features.egress.agent.bfd import UNITS as BFD_UNITS
from antrea.features.egress.agent.failback import stays_at
from antrea.features.egress.agent.hash_ring import RingRequest, place
from antrea.features.egress.agent.subnet import are_apart, name_of
from antrea.features.framework.agent_feature import AgentFeature

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from antrea.engine import Facts

ROOM = 255
"""Maximum number of addresses of one Node, if no lower limit is set: as many as there are marks."""
NO_ROOM = "no Node available"
"""Reason if none of the pool's Nodes is alive and has room; upstream's words, which its end-to-end tests compare."""
NO_MAJORITY = "this Node is not with the majority of agents"


def placement_request(facts: Facts, egress: Egress) -> Iterator[PlacementRequest]:
    """Yield the request of an Egress with an address of a pool."""
    if not (egress.pool and egress.ip) or why_unallocated(facts, egress):
        return
    stays = stays_at(egress)
    apart = f"{egress.name} {is_ipv6(egress.ip)}" if egress.of else ""
    yield PlacementRequest(
        egress.key, egress.ip, egress.pool, egress.created, egress.preferred, stays,
        egress.waits and bool(stays), apart,
    )  # fmt: skip


def _wishes(facts: Facts, requests: Iterable[PlacementRequest]) -> Iterator[RingRequest]:
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


def egress_owners(facts: Facts, quorum: Quorum) -> Iterator[EgressOwner]:
    """Yield the owners of all Egresses with an address of a pool: sharing a Node's room, one's place depends on the others'.

    Without a majority this Node takes nothing; what it has received of others stays true as far as it can find out.
    """
    this, config = facts.get(ThisNode), facts.get(AgentConfig)
    room = config.egress.max_egress_ips_per_node if config else ROOM
    limits = {node.name: node.most_egress_ips for node in facts.all(AgentNode)}

    def most(node: str) -> int:
        said = limits.get(node)
        return min(room if said is None else said, ROOM)

    requests = facts.all(PlacementRequest)
    wishes = list(_wishes(facts, requests))
    members = facts.all(PoolMembers)
    apart = homes_of(wishes, {row.pool: row.selected for row in members})
    pools = {row.pool: row.tiers for row in members}
    placed = place(wishes, pools, most, apart)
    waiting = {request.egress for request in requests if request.waits}
    free = [wish._replace(stays="") if wish.name in waiting else wish for wish in wishes]
    homes = place(free, pools, most, apart) if waiting else {}
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
        *BFD_UNITS,
    ),
)
