"""Owner of the external IP of each Service: derived alike on every Node, from living members, as for Egress.

With externalTrafficPolicy Local only a Node with an Endpoint of the address's family can answer. Of Services that share an
address all need one there if that can be, else the oldest of them. Preferred Nodes come first, as long as they can answer, and
before these the one that keeps the address (antrea/features/service_external_ip/failback.py).
parity: pkg/agent/controller/serviceexternalip/controller.go syncService, nodesHasHealthyServiceEndpoint
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

import msgspec

from antrea.facts.external_ip import ExternalIPOwner, PoolAddressNodes, nodes_key
from antrea.facts.fact import precedence
from antrea.facts.family import is_ipv6
from antrea.facts.member import PoolMembers, PoolSelector, Quorum
from antrea.facts.node import ThisNode
from antrea.facts.service import Service
from antrea.features.egress.agent.hash_ring import choose
from antrea.features.egress.agent.owner import NO_MAJORITY
from antrea.features.framework.preference import WHEN_IDLE
from antrea.features.service_external_ip.failback import keeper_of
from antrea.features.service_external_ip.service import shown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from antrea.engine import Facts
    from antrea.facts.service import ServiceEndpoint

NO_POOL = "ExternalIPPool {} does not exist"
NO_NODE = "no Node of the pool is alive"
NO_ENDPOINT = "no Node of the pool that is alive has an Endpoint, which externalTrafficPolicy Local needs"


def endpoint_node(facts: Facts, endpoint: ServiceEndpoint) -> Iterator[PoolAddressNodes]:
    """Yield the Node of an Endpoint of Services with externalTrafficPolicy Local; an Endpoint that is ending still serves."""
    service = facts.get(Service, endpoint.service)
    if service is None or not (service.pools and service.external_local and endpoint.node):
        return
    if endpoint.ready or endpoint.serving:
        yield PoolAddressNodes(service.key, is_ipv6(endpoint.ip), (endpoint.node,))


def external_ip_owner(facts: Facts, service: Service) -> Iterator[ExternalIPOwner]:
    """Yield the owner of each external IP of a pool."""
    this = facts.get(ThisNode)
    if this:
        for slot, ip in enumerate(service.pooled_ips):
            yield msgspec.structs.replace(_owner(facts, service, ip, this.name), slot=slot)


def pool_of(facts: Facts, service: Service, ip: str) -> str:
    """Return the pool of an address: the first that has it, else one that is gone."""
    if len(service.pools) == 1:
        return service.pools[0]
    rows = [(name, facts.get(PoolSelector, name)) for name in service.pools]
    holds = (name for name, row in rows if row and row.has(ip))
    gone = (name for name, row in rows if row is None)
    return next(chain(holds, gone, service.pools), "")


def _owner(facts: Facts, service: Service, ip: str, me: str) -> ExternalIPOwner:
    pool = pool_of(facts, service, ip)
    members = facts.get(PoolMembers, pool)
    if members is None:
        return ExternalIPOwner(service.key, ip, pool, "", NO_POOL.format(shown(pool)))
    may, better = _may_answer(facts, service, ip), _preferred(facts, service, ip)

    def pick(*first: str) -> str:
        picks = (choose(ip, frozenset(tier), may, (*first, *better)) for tier in members.tiers if tier)
        return next(filter(None, picks), "")

    failback = _failback(facts, service, ip)
    keeper = keeper_of(facts, ip, members.nodes, me) if failback else None
    stays = keeper.node if keeper and not (keeper.idle and failback == WHEN_IDLE) else ""
    node = pick(stays)
    if not node:
        why = NO_ENDPOINT if any(members.tiers) else NO_NODE
        return ExternalIPOwner(service.key, ip, pool, "", why)
    quorum = facts.get(Quorum)
    if node == me and (quorum is None or not quorum.has):
        return ExternalIPOwner(service.key, ip, pool, "", NO_MAJORITY)
    home = pick() if failback == WHEN_IDLE and stays else ""
    return ExternalIPOwner(
        service.key, ip, pool, node, keeps=bool(failback), home=home if home != node else ""
    )


def _may_answer(facts: Facts, service: Service, ip: str) -> Callable[[str], bool]:
    local = [_nodes(facts, row, ip) for row in _sharing(facts, service, ip) if row.external_local]
    if not local:
        return lambda _: True
    all_of_them = frozenset.intersection(*local)
    return (all_of_them or local[0]).__contains__


def _preferred(facts: Facts, service: Service, ip: str) -> tuple[str, ...]:
    """Return the preferred Nodes; of Services that share an address, the oldest that names Nodes decides."""
    return next((row.preferred for row in _sharing(facts, service, ip) if row.preferred), ())


def _failback(facts: Facts, service: Service, ip: str) -> str:
    """Return the failback; of Services that share an address, the oldest that names one decides."""
    return next((row.failback for row in _sharing(facts, service, ip) if row.failback), "")


def _sharing(facts: Facts, service: Service, ip: str) -> list[Service]:
    pool = pool_of(facts, service, ip)
    rows = (row for row in facts.by(Service, "pooled", ip) if pool_of(facts, row, ip) == pool)
    return sorted(rows, key=lambda row: precedence(row.created, row.key))


def _nodes(facts: Facts, service: Service, ip: str) -> frozenset[str]:
    row = facts.get(PoolAddressNodes, nodes_key(service.key, ipv6=is_ipv6(ip)))
    return frozenset(row.parts if row else ())
