"""Policies on the Node at the addresses of Services that AntreaProxy serves for clients outside (`proxyAll`).

No process of the Node receives such a packet: the host forwards it to the switch, which translates it. Ingress rules of the Node judge it where
it is forwarded, with the client's address and the port of the Service, as they do where kube-proxy in mode ipvs makes the address
one of the Node. The host does not track these connections, so that the first packet of TCP is recognized by its flags; each packet of
UDP and SCTP is judged. Where another program translates packets before, rules do not hold, and the report on the policy names them.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import TYPE_CHECKING, ClassVar

from antrea.facts.api_server import ApiServerEndpoint
from antrea.facts.fact import Fact
from antrea.facts.family import is_ipv6
from antrea.facts.node import LocalAddress, ThisNode
from antrea.facts.ovs import OvsPort
from antrea.facts.service import ServicePort
from antrea.features.network_policy.agent.verdict import DENIES
from antrea.features.node_policy.match import ADDRESS_TYPES, FAMILIES
from antrea.features.node_policy.rule import AuditedDirection, NodeRule
from antrea.features.proxy.host import proxies_all
from antrea.host.nft import NftChain, NftElement, NftRule, NftSet
from antrea.openflow.cookie import Category
from antrea.openflow.fields import PEER_PASSED

if TYPE_CHECKING:
    from collections.abc import Iterator

    from antrea.apis import controlplane as cp
    from antrea.config.agent import AgentConfig
    from antrea.engine import Facts
    from antrea.facts.service import Service

SERVICE_IPS = ("node-service-ip", "node-service-ip6")
"""Names of the sets with the addresses of Services that are served here, in IPv4 and IPv6."""
INGRESS = "ingress"
MAX_PORTS = 3
"""Ports that the report on a rule names."""


class TranslatedPort(Fact, frozen=True):
    """A port of external addresses of Services that another program than AntreaProxy translates; derived."""

    protocol: str
    port: int
    indexes: ClassVar[Mapping[str, Callable[[TranslatedPort], Iterable[Hashable]]]] = {
        "protocol": lambda row: (row.protocol,)
    }

    @property
    def key(self) -> str:
        return f"{self.port}/{self.protocol}"


def service_chain_entries(facts: Facts, node: ThisNode) -> Iterator[NftChain | NftRule | NftSet]:
    """Yield the chain in which packets to addresses of Services meet the ingress rules of the Node."""
    config = proxies_all(facts)
    if config is None or node.is_machine or facts.get(OvsPort, config.host_gateway) is None:
        return
    for ipv6 in sorted(node.families):
        yield NftSet(name=SERVICE_IPS[ipv6], type=ADDRESS_TYPES[ipv6])
    if facts.all(ApiServerEndpoint):
        yield from _chains(config, node, audit=False)
        if facts.get(AuditedDirection, INGRESS) is not None:
            yield from _chains(config, node, audit=True)


def service_address_elements(facts: Facts, port: ServicePort) -> Iterator[NftElement]:
    """Yield the addresses at which the switch serves a Service for clients outside."""
    config, node = proxies_all(facts), facts.get(ThisNode)
    if config is None or node is None or facts.get(OvsPort, config.host_gateway) is None:
        return
    for ip in (*port.cluster_ips, *port.external_ips):
        if is_ipv6(ip) in node.families:
            yield NftElement(set=SERVICE_IPS[is_ipv6(ip)], value=ip)


def translated_ports(facts: Facts, service: Service) -> Iterator[TranslatedPort]:
    """Yield the ports of a Service at whose external addresses no rule of the Node holds.

    Where an address of the Service is one of the Node, as with kube-proxy in mode ipvs, the Node's rules judge it.
    """
    node = facts.get(ThisNode)
    if node is None or not service.external_ips:
        return
    if any(facts.get(LocalAddress, ip) is not None for ip in service.ips):
        return
    config = proxies_all(facts)
    rows = facts.by(ServicePort, "service", service.key) if config is not None else ()
    served = {ip for row in rows for ip in row.external_ips}
    left = [ip for ip in service.external_ips if is_ipv6(ip) in node.families and ip not in served]
    for protocol, port in service.ports if left and not _is_balanced_outside(config, service, left) else ():
        yield TranslatedPort(protocol, port)


def untranslated_rules(facts: Facts, policy: str) -> Iterator[tuple[str, str]]:
    """Yield the name of each denying ingress rule of a policy, and the ports of Services at which it does not hold."""
    for rule in facts.by(NodeRule, "policy", policy):
        if rule.egress or rule.audit or rule.action not in DENIES:
            continue
        keys = sorted(row.key for row in facts.all(TranslatedPort) if _is_about(rule.rule, row))
        if keys:
            more = f" and {len(keys) - MAX_PORTS} more" if len(keys) > MAX_PORTS else ""
            yield rule.rule.name, ", ".join(keys[:MAX_PORTS]) + more


def _is_about(rule: cp.NetworkPolicyRule, row: TranslatedPort) -> bool:
    return not rule.services or any(_has_port(service, row) for service in rule.services)


def _has_port(service: cp.Service, row: TranslatedPort) -> bool:
    if (service.protocol or "TCP") != row.protocol or isinstance(service.port, str):
        return False
    return not service.port or service.port <= row.port <= max(service.port, service.end_port or 0)


def _is_balanced_outside(config: AgentConfig | None, service: Service, ips: Iterable[str]) -> bool:
    """Whether nothing here translates these: proxyLoadBalancerIPs leaves them to the load balancer."""
    if config is None or config.antrea_proxy.proxy_load_balancer_ips:
        return False
    return all(ip in service.load_balancer_ips for ip in ips)


def _chains(config: AgentConfig, node: ThisNode, *, audit: bool) -> Iterator[NftChain | NftRule]:
    name = f"node-service{'-audit' if audit else ''}"
    judged, rules = f"{name}-judged", f"node-{INGRESS}{'-audit' if audit else ''}"
    gateway, passed = config.host_gateway, PEER_PASSED.mask
    yield _chain(name, f"type filter hook forward priority filter{' + 1' if audit else ''}; policy accept;")
    yield _chain(judged)
    yield _rule(name, 0, "established connections", "ct state established,related accept")
    yield _rule(name, 10, "what the switch sends", f'iifname "{gateway}" accept')
    yield _rule(name, 20, "what goes elsewhere", f'oifname != "{gateway}" accept')
    yield _rule(
        name, 30, "what another Node has judged", f"meta mark & {passed:#010x} == {passed:#010x} accept"
    )
    established = "ct state untracked tcp flags & (syn | ack) != syn accept"
    yield _rule(name, 40, "established TCP connections", established)
    for ipv6 in sorted(node.families):
        family = FAMILIES[ipv6]
        text = f"{family} daddr @{SERVICE_IPS[ipv6]} jump {judged}"
        yield _rule(name, 50, f"addresses of Services, {family}", text)
    yield _rule(judged, 100, "policies", f"jump {rules}-rules")
    yield _rule(judged, 200, "policies of the baseline Tier", f"jump {rules}-baseline")


def _chain(name: str, hook: str = "") -> NftChain:
    return NftChain(name=name, hook=hook, category=int(Category.NETWORK_POLICY))


def _rule(chain: str, order: int, name: str, text: str) -> NftRule:
    return NftRule(chain=chain, name=name, text=text, order=order)
