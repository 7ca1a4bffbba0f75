"""Networks that this Node advertises to routers, each with the object that it is for.

External addresses of Services, which tenants choose, are not advertised if they are those of a Node, of Pods, of another Service's
ClusterIP or of a router of the policy: routers would send the traffic of these to the Service.

An address of a Service whose traffic stays on the Node (Local) is advertised where a local Endpoint is ready. Where local ones are
draining alone, it is withdrawn as soon as another Node has a ready one: they still serve what is on its way.
parity: pkg/agent/controller/bgp/controller.go getRoutes, hasLocalEndpoints
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import TYPE_CHECKING, ClassVar

from antrea.facts.fact import Fact
from antrea.facts.family import is_ipv6
from antrea.facts.node import LocalAddress, ThisNode
from antrea.facts.service import DRAINING, READY, Service, ServiceEndpoint
from antrea.features.bgp_policy.policy import EffectivePolicy
from antrea.features.bgp_policy.route_type import (
    CLUSTER_IP,
    EGRESS_TYPE,
    EXTERNAL_IP,
    LOAD_BALANCER_IP,
    POD_TYPE,
    SERVICE_TYPES,
)
from antrea.features.framework.address import canonical
from antrea.features.proxy.external_address import owner_of
from antrea.host.bgp import BgpPrefix

if TYPE_CHECKING:
    from collections.abc import Iterator

    from antrea.engine import Facts
    from antrea.facts.egress import Egress
    from antrea.features.bgp_policy.policy import BgpPolicyRow


class AdvertisedPrefix(Fact, frozen=True):
    """A network that this Node advertises for an object; several objects may share one. Derived."""

    prefix: str
    """203.0.113.5/32"""
    type: str
    object: str
    """namespace/name of a Service, name of an Egress; empty of Pod CIDRs."""

    indexes: ClassVar[Mapping[str, Callable[[AdvertisedPrefix], Iterable[Hashable]]]] = {
        "prefix": lambda row: (row.prefix,)
    }

    @property
    def key(self) -> str:
        return f"{self.prefix} {self.type} {self.object}"


def host_prefix(ip: str) -> str:
    """Return the network of one address."""
    return f"{ip}/{128 if is_ipv6(ip) else 32}"


def pod_prefixes(facts: Facts, node: ThisNode) -> Iterator[AdvertisedPrefix]:
    """Yield the Pod CIDRs of this Node."""
    effective = facts.get(EffectivePolicy)
    if effective is not None and effective.policy.pods:
        for cidr in node.pod_cidrs:
            yield AdvertisedPrefix(cidr, POD_TYPE, "")


def egress_prefix(facts: Facts, egress: Egress) -> Iterator[AdvertisedPrefix]:
    """Yield an Egress IP, where it is on an interface of this Node."""
    effective = facts.get(EffectivePolicy)
    if effective is None or not effective.policy.egresses or not egress.ip:
        return
    if facts.get(LocalAddress, egress.ip) is not None:
        yield AdvertisedPrefix(host_prefix(egress.ip), EGRESS_TYPE, egress.name)


def service_prefixes(facts: Facts, service: Service) -> Iterator[AdvertisedPrefix]:
    """Yield the addresses of a Service that its policy names and that this Node serves."""
    effective = facts.get(EffectivePolicy)
    if effective is None or not (types := effective.policy.service_ips):
        return
    for name, ips, local in _typed_ips(service):
        if name in types and ips and _is_served(facts, service, effective, local=local):
            for ip in ips if name == CLUSTER_IP else _unclaimed(facts, effective, ips):
                yield AdvertisedPrefix(host_prefix(ip), SERVICE_TYPES[name], service.key)


def _unclaimed(facts: Facts, effective: EffectivePolicy, ips: Iterable[str]) -> Iterator[str]:
    """Yield the addresses that are of no Node, Pod, ClusterIP or router."""
    policy = effective.policy
    addresses = (*(peer.address for peer in policy.peers), *(peer.address for peer in policy.bfd_peers))
    routers = {canonical(address) for address in addresses}
    return (ip for ip in ips if ip not in routers and not owner_of(facts, ip))


def _typed_ips(service: Service) -> Iterator[tuple[str, tuple[str, ...], bool]]:
    """Yield the types of the addresses of a Service, its addresses of each, and whether their traffic stays on the Node."""
    yield CLUSTER_IP, service.cluster_ips, service.internal_local
    yield EXTERNAL_IP, _plain_external_ips(service), service.external_local
    yield LOAD_BALANCER_IP, service.load_balancer_ips, service.external_local


def policy_ips(policy: BgpPolicyRow, service: Service) -> list[str]:
    """Return the addresses of a Service that the policy advertises, wherever they are served."""
    return [ip for name, ips, _ in _typed_ips(service) if name in policy.service_ips for ip in ips]


def _plain_external_ips(service: Service) -> tuple[str, ...]:
    return tuple(ip for ip in service.external_ips if ip not in service.load_balancer_ips)


def _is_served(facts: Facts, service: Service, effective: EffectivePolicy, *, local: bool) -> bool:
    """Whether routers should send to this Node: not while it is drained, if others serve the address."""
    if not local:
        return not effective.is_draining
    node = facts.need(ThisNode)
    endpoints = _endpoints(facts, service)
    states = {row.state for row in endpoints if row.node == node.name}
    elsewhere = any(row.state == READY for row in endpoints if row.node != node.name)
    if effective.is_draining and elsewhere:
        return False
    return READY in states or (DRAINING in states and not elsewhere)


def _endpoints(facts: Facts, service: Service) -> list[ServiceEndpoint]:
    ports = zip(service.ports, service.port_names, strict=False)
    behind = dict.fromkeys(f"{service.key}:{name}/{protocol}" for (protocol, _), name in ports)
    return [row for port in behind for row in facts.by(ServiceEndpoint, "behind", port)]


def prefix_entry(facts: Facts, prefix: str) -> Iterator[BgpPrefix]:
    """Yield one entry, however many objects have the network."""
    effective = facts.get(EffectivePolicy)
    if effective is not None and effective.policy.peers:
        yield BgpPrefix(prefix)
