"""Which Node is to hold the address of each Egress with a pool: derived alike on every Node, from living members.

parity: pkg/agent/memberlist/cluster.go syncExternalIPPool, pkg/agent/controller/egress/ip_scheduler.go
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from antrea.apis.crd.pool import ExternalIPPool, SubnetInfo
from antrea.config.agent import AgentConfig
from antrea.engine import Unit
from antrea.facts.egress import Egress, EgressOwner
from antrea.facts.family import is_ipv6
from antrea.facts.member import ClusterNode, Leaving, Member, PoolMembers, PoolSelector, Quorum
from antrea.facts.node import ThisNode
from antrea.features.admission import Watched
from antrea.features.egress.bfd import UNITS as BFD_UNITS
from antrea.features.egress.failback import stays_at
from antrea.features.egress.placement import Wish, place
from antrea.features.egress.spread import homes_of
from antrea.features.egress.subnet import are_apart, name_of
from antrea.features.external_ip_pool.pool import POOLS
from antrea.features.feature import AgentFeature
from antrea.features.grouping.selector import meets, requirements

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from antrea.engine import Facts

ROOM = 255
"""Addresses of one Node, if nobody says less: as many as there are marks."""
NO_ROOM = "no Node is eligible: none of the pool's Nodes is alive and has room"
NO_MAJORITY = "this Node is not with the majority of agents"


def pool_selector(found: ExternalIPPool) -> PoolSelector:
    """A pool by what agents need of it."""
    subnet = found.spec.subnet_info or SubnetInfo("", 0)
    return PoolSelector(
        found.metadata.name,
        requirements(found.spec.node_selector),
        subnet.gateway,
        subnet.prefix_length,
        subnet.vlan,
    )


def pool_members(facts: Facts, pool: PoolSelector) -> Iterator[PoolMembers]:
    """This Node counts as alive. A cordoned one is the last that keeps its addresses: a gateway may be cordoned for good."""
    this, goes = facts.get(ThisNode), facts.get(Leaving) is not None
    me = this.name if this else ""
    members = facts.all(Member)
    living = {row.node for row in members if row.alive} | {me}
    leaving = {row.node for row in members if row.left} | ({me} if goes else set())
    nodes = [node for node in facts.all(ClusterNode) if meets(dict(node.labels), pool.nodes)]
    stay = [node for node in nodes if node.name in living - leaving]
    yield PoolMembers(
        pool.pool,
        tuple(node.name for node in stay if not node.cordoned),
        tuple(node.name for node in stay if node.cordoned),
        tuple(node.name for node in nodes if node.name in leaving),
        tuple(node.name for node in nodes),
    )


def _wishes(facts: Facts, rows: Iterable[Egress]) -> Iterator[Wish]:
    apart = facts.all(PoolSelector) if are_apart(facts) else ()
    subnets = {row.pool: name_of(row.gateway, row.prefix, row.vlan) for row in apart if row.gateway}
    for egress in rows:
        yield Wish(
            egress.created,
            egress.key,
            egress.ip,
            egress.pool,
            egress.preferred,
            stays_at(egress),
            f"{egress.name} {is_ipv6(egress.ip)}" if egress.of else "",
            subnets.get(egress.pool, ""),
        )


def egress_owners(facts: Facts, quorum: Quorum) -> Iterator[EgressOwner]:
    """Of all Egresses with an address and a pool: of those that share a Node's room, one's place depends on the others'.

    Without a majority this Node takes nothing; what it knows of others stays true as far as it can tell.
    """
    this, config = facts.get(ThisNode), facts.get(AgentConfig)
    room = config.egress.max_egress_ips_per_node if config else ROOM
    own = {node.name: node.most_egress_ips for node in facts.all(ClusterNode)}

    def most(node: str) -> int:
        said = own.get(node)
        return min(room if said is None else said, ROOM)

    rows = [egress for egress in facts.all(Egress) if egress.pool and egress.ip]
    wishes = list(_wishes(facts, rows))
    members = facts.all(PoolMembers)
    apart = homes_of(wishes, {row.pool: row.selected for row in members})
    pools = {row.pool: row.tiers for row in members}
    placed = place(wishes, pools, most, apart)
    waiting = {egress.key for egress in rows if egress.waits and stays_at(egress)}
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
    tables=lambda _config, _families: (),
    gate="Egress",
    watched=(Watched(POOLS, ExternalIPPool, PoolSelector, pool_selector),),
    units=(
        Unit(PoolSelector, pool_members, yields=(PoolMembers,)),
        Unit(Quorum, egress_owners, yields=(EgressOwner,)),
        *BFD_UNITS,
    ),
)
