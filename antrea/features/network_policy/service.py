"""Services that rules name (`toServices`): what a packet to one of them is, while kube-proxy serves it.

AntreaProxy knows such a packet by the number of a group (`reg7`): another match for the same clause of the same rules.
parity: pkg/agent/controller/networkpolicy/pod_reconciler.go svcRefsToGroupIDs; upstream matches nothing without AntreaProxy
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from antrea.apis import controlplane as cp
from antrea.engine import Act
from antrea.facts.family import is_ipv6
from antrea.facts.service import Service
from antrea.features.external_ip_pool.address import canonical
from antrea.features.network_policy.address import PROTOCOLS
from antrea.features.network_policy.conjunction import part, united
from antrea.features.network_policy.place import OUT, has_place
from antrea.features.network_policy.rule import Rule, own_conjunctions
from antrea.features.network_policy.sent import SentPolicy
from antrea.openflow.match import dst, tp_dst

if TYPE_CHECKING:
    from collections.abc import Iterator

    from antrea.apis import core
    from antrea.engine import Facts
    from antrea.openflow.field import Match
    from antrea.openflow.flow import Flow

EXTERNAL_NAME, HEADLESS, PROXY = "ExternalName", "None", "Proxy"
NO_PORTS = cp.GroupMember()
"""A Service gives no names to the ports of rules."""


class Keep(Act, frozen=True):
    """A Service that a policy names is another than before: it belongs to what outlives a reboot."""


def service_row(found: core.Service) -> Service | None:
    """None for one that is reached by the addresses of its Endpoints alone, or by the name of something else."""
    meta, spec = found.metadata, found.spec
    if spec.type == EXTERNAL_NAME or not spec.cluster_ips or HEADLESS in spec.cluster_ips:
        return None
    balanced = (one.ip for one in found.status.load_balancer.ingress if one.ip_mode != PROXY)
    texts = (*spec.cluster_ips, *spec.external_ips, *balanced)
    ips = dict.fromkeys(ip for text in texts if (ip := canonical(text)))
    return Service(
        meta.namespace, meta.name, tuple(ips), tuple((one.protocol, one.port) for one in spec.ports)
    )


def service_matches(service: Service) -> Iterator[tuple[Match, ...]]:
    """An address with a protocol and a port each: a port belongs to its Service."""
    for ip in service.ips:
        for protocol, port in service.ports:
            if protocol in PROTOCOLS:
                yield (PROTOCOLS[protocol][is_ipv6(ip)], dst(ip), tp_dst(port))


def named_services(facts: Facts) -> list[Service]:
    """Those that policies of this Node name, as far as they are there."""
    policies = facts.by(SentPolicy, "services", True)
    names = sorted({name for policy in policies for name in policy.services})
    return [row for name in names if (row := facts.get(Service, name)) is not None]


def lacks_services(facts: Facts) -> bool:
    """Whether policies name Services and these have not been listed."""
    return not facts.feeds.has(Service) and bool(facts.by(SentPolicy, "services", True))


# units


def service_flows(facts: Facts, service: Service) -> Iterator[Flow]:
    """A Service in the conjunctions of the rules that name it."""
    yield from united(
        part(facts, rule, found, OUT.peer, *match)
        for rule in facts.by(Rule, "service", service.key)
        if has_place(facts, rule)
        for found in own_conjunctions(facts, rule, NO_PORTS, target=False)
        for match in service_matches(service)
    )


def kept_services(facts: Facts, service: Service) -> Iterator[Keep]:
    """Each time one of them changes."""
    if facts.by(Rule, "service", service.key):
        yield Keep(service.key, service)
