"""Check whether an Egress has the address that it names, and for which families: without it nothing leaves.

Each agent derives it from Egresses and pools alone, by the rule of the controller (antrea/features/external_ip_pool): so
nothing leaves with the address of another Egress while a condition is late or no controller runs. Upstream withholds such an
Egress from Pods by an empty EgressGroup, and these leave with their Node's address.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from antrea.config.agent import AgentConfig
from antrea.facts.egress import Egress
from antrea.facts.family import is_ipv6
from antrea.facts.member import PoolSelector
from antrea.facts.service import Service
from antrea.features.framework.address import canonical
from antrea.features.framework.ip_range import unusable

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from antrea.engine import Facts

NO_TUNNEL = "Egress needs tunnels between Nodes, which trafficEncapMode {} does not have: set it to encap in antrea-agent.conf"
BOTH = (False, True)
"""Whether a family is IPv6, of all families."""


def unallocated_reason(facts: Facts, egress: Egress) -> str:
    """Return why this row of an Egress has no usable address; empty if it has one."""
    config = facts.get(AgentConfig)
    if config is not None and not config.has_tunnel:
        return NO_TUNNEL.format(config.traffic_encap_mode)
    pool = facts.get(PoolSelector, egress.pool) if egress.pool else None
    rivals = facts.by(Egress, "ip", egress.ip) if pool and egress.ip else ()
    return judge(egress, pool, rivals) or _of_service(facts, egress)


def _of_service(facts: Facts, egress: Egress) -> str:
    """Return the Service that holds the address by the controller's allocation; empty if none."""
    if not (egress.pool and egress.ip):
        return ""
    having = [row.key for row in facts.by(Service, "pooled", egress.ip) if egress.pool in row.pools]
    return f"Service {min(having)} has {egress.ip} of ExternalIPPool {egress.pool}" if having else ""


def judge(egress: Egress, pool: PoolSelector | None, rivals: Iterable[Egress]) -> str:
    """Return why the row has no usable address, given the pool that it names and all rows with its address."""
    if egress.invalid:
        ip = canonical(egress.invalid)
        why = f"one of {unusable(ip)}, with which no Node can send" if ip else "not an IP address"
        return f"{egress.invalid} is {why}"
    if not egress.pool:
        return ""
    if pool is None:
        return f"ExternalIPPool {egress.pool} does not exist"
    if not egress.ip:
        return f"ExternalIPPool {egress.pool} has given it no address"
    if not pool.has(egress.ip):
        return f"{egress.ip} is not an address of ExternalIPPool {egress.pool}"
    same = (row for row in rivals if row.pool == egress.pool)
    first = min(same, key=lambda row: row.precedence, default=egress)
    if first.key == egress.key:
        return ""
    return f"Egress {first.name} has {egress.ip} of ExternalIPPool {egress.pool}"


def families_of(facts: Facts, egress: Egress) -> Collection[bool]:
    """Return its families (IPv6 or not), both while unknown; empty if it names neither address nor pool."""
    if egress.ip or egress.invalid:
        return (is_ipv6(egress.ip or egress.invalid),)
    if not egress.pool:
        return ()
    pool = facts.get(PoolSelector, egress.pool)
    return {kind == 6 for kind, _, _ in pool.ranges} if pool and pool.ranges else BOTH
