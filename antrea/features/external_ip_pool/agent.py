"""ExternalIPPool in the agent: which living Nodes may hold addresses of each pool, for Egresses and Services alike.

parity: pkg/agent/memberlist/cluster.go syncExternalIPPool
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from antrea.apis.crd.pool import ExternalIPPool, SubnetInfo
from antrea.engine import Unit
from antrea.facts.member import AgentLeaving, AgentNode, GossipMember, PoolMembers, PoolSelector
from antrea.facts.node import LocalAddress, OnLink, ThisNode
from antrea.features.external_ip_pool.address import bounds
from antrea.features.external_ip_pool.crd import GATES
from antrea.features.external_ip_pool.link import on_link
from antrea.features.external_ip_pool.pool import POOLS, pool_row
from antrea.features.external_ip_pool.silence import silence_of, silence_report
from antrea.features.framework.admission import Watched
from antrea.features.framework.agent_feature import AgentFeature
from antrea.features.grouping.selector import meets, requirements

if TYPE_CHECKING:
    from collections.abc import Iterator

    from antrea.engine import Facts


def pool_selector(pool: ExternalIPPool) -> PoolSelector:
    """Make the row of a pool with what agents need of it."""
    subnet = pool.spec.subnet_info or SubnetInfo("", 0)
    return PoolSelector(
        pool.metadata.name,
        requirements(pool.spec.node_selector),
        subnet.gateway,
        subnet.prefix_length,
        subnet.vlan,
        tuple((pool_range.family, *bounds(pool_range)) for pool_range in pool_row(pool).spans),
    )


def pool_members(facts: Facts, pool: PoolSelector) -> Iterator[PoolMembers]:
    """This Node counts as alive. A cordoned one is the last that keeps its addresses: a gateway may be cordoned for good.

    So is one that neighbours in a network of the pool do not answer: hosts there do not reach it either.
    """
    this, goes = facts.get(ThisNode), facts.get(AgentLeaving) is not None
    me = this.name if this else ""
    members = facts.all(GossipMember)
    living = {row.node for row in members if row.alive} | {me}
    leaving = {row.node for row in members if row.left} | ({me} if goes else set())
    nodes = [node for node in facts.all(AgentNode) if meets(dict(node.labels), pool.nodes)]

    def is_last(node: AgentNode) -> bool:
        return node.cordoned or bool(silence_of(facts, node, pool))

    stay = [node for node in nodes if node.name in living - leaving]
    yield PoolMembers(
        pool.pool,
        tuple(node.name for node in stay if not is_last(node)),
        tuple(node.name for node in stay if is_last(node)),
        tuple(node.name for node in nodes if node.name in leaving),
        tuple(node.name for node in nodes),
    )


FEATURE = AgentFeature(
    name="ExternalIPPool",
    gate=GATES,
    watched=(Watched(POOLS, ExternalIPPool, PoolSelector, pool_selector),),
    units=(
        Unit(PoolSelector, pool_members, yields=(PoolMembers,)),
        Unit(ThisNode, silence_report),
        Unit(LocalAddress, on_link, yields=(OnLink,)),
    ),
)
FEATURES = (FEATURE,)
