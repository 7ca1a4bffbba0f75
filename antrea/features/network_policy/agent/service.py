"""Services that rules name (`toServices`): the packets that are sent to one of them.

AntreaProxy records in a register which group has chosen the Endpoint; what kube-proxy serves is known by address and port: all
Services without AntreaProxy, and with it those, and addresses, that it leaves to others.
parity: pkg/agent/controller/networkpolicy/pod_reconciler.go svcRefsToGroupIDs; upstream matches nothing without AntreaProxy
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from antrea.apis import controlplane as cp
from antrea.engine import Act, Unit
from antrea.facts.family import is_ipv6
from antrea.facts.node import ThisNode
from antrea.facts.service import Service, ServicePort
from antrea.features.network_policy.agent.conjunction import clause_match, merge
from antrea.features.network_policy.agent.dns_server import KUBE_DNS
from antrea.features.network_policy.agent.priority import OUT, has_location
from antrea.features.network_policy.agent.received import SentPolicy
from antrea.features.network_policy.agent.rule import PolicyRule, member_conjunctions
from antrea.features.proxy.endpoint import group_id, scopes
from antrea.openflow.fields import SERVICE_GROUP_ID
from antrea.openflow.match import PROTOCOLS, dst, tp_dst

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from antrea.engine import Facts
    from antrea.openflow.field import Match
    from antrea.openflow.flow import Flow

NO_PORTS = cp.GroupMember()
"""Member without named ports, since a Service gives no names to the ports of rules."""


class SaveState(Act, frozen=True):
    """Request to save the state: a Service that a policy names has changed, and it belongs to what outlives a reboot."""


def service_matches(service: Service, ips: Iterable[str]) -> Iterator[tuple[Match, ...]]:
    """Yield matches of an address with a protocol and a port each: a port belongs to its Service."""
    for ip in ips:
        for protocol, port in service.ports:
            if protocol in PROTOCOLS:
                yield (PROTOCOLS[protocol][is_ipv6(ip)], dst(ip), tp_dst(port))


def group_matches(facts: Facts, service: Service) -> Iterator[tuple[Match, ...]]:
    """Yield the groups that choose an Endpoint of this Service, and its addresses without a group."""
    node, served = facts.get(ThisNode), facts.by(ServicePort, "service", service.key)
    for ipv6 in sorted(node.families) if node else ():
        for port in served:
            for local in scopes(port, ipv6=ipv6):
                yield (SERVICE_GROUP_ID(group_id(facts, port, ipv6=ipv6, local=local)).match,)
    reached = {ip for port in served for ip in (*port.cluster_ips, *port.outside_ips)}
    yield from service_matches(service, (ip for ip in service.ips if ip not in reached))


def named_services(facts: Facts) -> list[Service]:
    """Return existing Services that policies of this Node name, and the cluster's DNS, which rules on names trust."""
    policies = facts.by(SentPolicy, "services", True)
    names = sorted({KUBE_DNS, *(name for policy in policies for name in policy.services)})
    return [row for name in names if (row := facts.get(Service, name)) is not None]


def lacking_services(facts: Facts) -> str:
    """Return what is missing if policies name Services and these have not been listed; empty if nothing."""
    lacks = not facts.feeds.has(Service) and facts.by(SentPolicy, "services", True)
    return "Services that policies name, from kube-apiserver" if lacks else ""


# units


def service_flows(facts: Facts, service: Service) -> Iterator[Flow]:
    """Yield a Service in the conjunctions of the rules that name it."""
    yield from merge(
        clause_match(facts, rule, conjunction, OUT.peer, *match)
        for rule in facts.by(PolicyRule, "service", service.key)
        if has_location(facts, rule)
        for conjunction in member_conjunctions(facts, rule, NO_PORTS, target=False)
        for match in (
            service_matches(service, service.ips) if rule.pre_dnat else group_matches(facts, service)
        )
    )


def kept_services(facts: Facts, service: Service) -> Iterator[SaveState]:
    """Yield a request each time one of these Services changes."""
    if facts.by(PolicyRule, "service", service.key):
        yield SaveState(service.key, service)


SERVICES = Unit(Service, service_flows)
