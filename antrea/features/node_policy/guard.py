"""Guard of what a Node keeps whatever policies there are: without it a policy that cut it could not be reverted.

These rules come before those of all policies. A policy that would cut what they keep is named in its status.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from antrea.apis.discovery import EndpointSlice
from antrea.config.agent import AgentConfig
from antrea.config.tunnel import TUNNELS
from antrea.facts.api_server import ApiServerEndpoint
from antrea.facts.family import is_ipv6
from antrea.facts.member import AgentNode
from antrea.facts.router import RouterSession
from antrea.features.framework.address import canonical
from antrea.features.framework.admission import Watched
from antrea.features.node_policy.chain import guard_chain
from antrea.features.node_policy.match import ADDRESS_TYPES, FAMILIES
from antrea.host.nft import NftElement, NftRule, NftSet

if TYPE_CHECKING:
    from collections.abc import Iterator

    from antrea.engine import Facts
    from antrea.facts.node import ThisNode
    from antrea.facts.service import Service

KUBERNETES, SERVICE_LABEL = "default/kubernetes", "kubernetes.io/service-name"
NODES, SERVERS, PORTS = "node-guard-nodes", "node-guard-servers", "node-guard-ports"
"""Names of sets: addresses of Nodes, addresses of API servers, and these with their ports; each with its family behind."""
ROUTERS = "node-guard-routers"
"""The same of routers that this Node has sessions with."""
KUBELET, CONTROLLER = 10250, 10349
IN, OUT, BOTH = ("ingress",), ("egress",), ("ingress", "egress")


class Kept(NamedTuple):
    """Traffic that a Node keeps."""

    name: str
    directions: tuple[str, ...]
    protocols: tuple[str, ...]
    ports: tuple[int, ...]
    """Empty: the protocols have none."""
    peers: str
    """NODES, SERVERS or ROUTERS; empty for everybody."""


def kept(facts: Facts, node: str) -> Iterator[Kept]:
    """Yield what Node `node` keeps beside its connections to API servers."""
    config = facts.get(AgentConfig)
    if config is None:
        return
    if config.has_tunnel:
        transport, number = TUNNELS[config.tunnel_type].transport, config.tunnel_port_number
        yield Kept("tunnels", BOTH, (transport,), (number,) if number else (), NODES)
    yield Kept("gossip", BOTH, ("tcp", "udp"), (config.cluster_port,), NODES)
    yield Kept("antrea-controller", BOTH, ("tcp",), (CONTROLLER,), NODES)
    yield Kept(
        "kubelet and antrea-agent, for kube-apiserver", IN, ("tcp",), (KUBELET, config.api_port), SERVERS
    )
    yield Kept("DHCP", IN, ("udp",), (68, 546), "")
    yield Kept("DHCP", OUT, ("udp",), (67, 547), "")
    yield from _sessions(facts)
    row = facts.get(AgentNode, node)
    if row is not None and row.ssh_ports:
        yield Kept("SSH", IN, ("tcp",), row.ssh_ports, "")


def _sessions(facts: Facts) -> Iterator[Kept]:
    """Yield the sessions with routers: without them routers would take the Node for dead."""
    rows = facts.all(RouterSession)
    for name, directions, protocol, ports in (
        ("BGP", IN, "tcp", {row.listen_port for row in rows}),
        ("BGP", OUT, "tcp", {row.port for row in rows}),
        ("BFD", BOTH, "udp", {row.bfd_port for row in rows}),
    ):
        if numbers := tuple(sorted(ports - {0})):
            yield Kept(name, directions, (protocol,), numbers, ROUTERS)


def guard_entries(facts: Facts, node: ThisNode) -> Iterator[NftSet | NftRule]:
    """Sets and rules of the guard."""
    for ipv6, kind in ADDRESS_TYPES.items():
        for name, type_ in (
            (NODES, kind),
            (SERVERS, kind),
            (ROUTERS, kind),
            (PORTS, f"{kind} . inet_service"),
        ):
            yield NftSet(name=set_name(name, ipv6=ipv6), type=type_)
    for direction, peer in (("ingress", "saddr"), ("egress", "daddr")):
        texts = list(_servers(direction))
        for item in kept(facts, node.name):
            if direction in item.directions:
                texts += [(item.name, text) for text in _texts(item, peer)]
        for number, (name, text) in enumerate(texts):
            yield NftRule(chain=guard_chain(direction), name=f"{number:03} {name}", text=f"{text} accept")


def _servers(direction: str) -> Iterator[tuple[str, str]]:
    """The Node reaches API servers, and other Nodes reach the one that runs here."""
    for ipv6, family in FAMILIES.items():
        text = f"{family} daddr . tcp dport @{set_name(PORTS, ipv6=ipv6)}"
        if direction == "ingress":
            text = f"{family} saddr @{set_name(NODES, ipv6=ipv6)} {text}"
        yield "kube-apiserver", text


def _texts(kept_item: Kept, peer: str) -> Iterator[str]:
    ports = ", ".join(map(str, sorted(kept_item.ports)))
    for protocol in kept_item.protocols:
        match = f"{protocol} dport {{ {ports} }}" if len(kept_item.ports) > 1 else f"{protocol} dport {ports}"
        if not kept_item.ports:
            match = f"meta l4proto {protocol}"
        if not kept_item.peers:
            yield match
            continue
        for ipv6, family in FAMILIES.items():
            yield f"{family} {peer} @{set_name(kept_item.peers, ipv6=ipv6)} {match}"


def set_name(name: str, *, ipv6: bool) -> str:
    """Return the name of the set for one IP family."""
    return f"{name}-{6 if ipv6 else 4}"


def guarded_nodes(_: Facts, node: AgentNode) -> Iterator[NftElement]:
    """The addresses of a Node."""
    for ip in dict.fromkeys((*node.ips, *node.transport_ips)):
        yield NftElement(set=set_name(NODES, ipv6=is_ipv6(ip)), value=ip)


def guarded_routers(_: Facts, row: RouterSession) -> Iterator[NftElement]:
    """The address of a router."""
    yield NftElement(set=set_name(ROUTERS, ipv6=is_ipv6(row.address)), value=row.address)


def guarded_servers(_: Facts, row: ApiServerEndpoint) -> Iterator[NftElement]:
    """An address of an API server."""
    yield NftElement(set=set_name(SERVERS, ipv6=is_ipv6(row.ip)), value=row.ip)
    yield _server_port(row.ip, row.port)


def guarded_service(_: Facts, row: Service) -> Iterator[NftElement]:
    """The addresses by which Pods, and the agent, reach API servers, where nothing translates them before."""
    for ip in row.ips if row.key == KUBERNETES else ():
        for protocol, port in row.ports:
            if protocol == "TCP":
                yield _server_port(ip, port)


def _server_port(ip: str, port: int) -> NftElement:
    return NftElement(set=set_name(PORTS, ipv6=is_ipv6(ip)), value=f"{ip} . {port}")


def endpoint_rows(endpoint_slice: EndpointSlice) -> tuple[ApiServerEndpoint, ...]:
    """Addresses of API servers, of one slice of their Service."""
    if endpoint_slice.metadata.labels.get(SERVICE_LABEL) != KUBERNETES.partition("/")[2]:
        return ()
    ports = [
        port.port for port in endpoint_slice.ports or () if port.port and (port.protocol or "TCP") == "TCP"
    ]
    texts = [text for endpoint in endpoint_slice.endpoints or () for text in endpoint.addresses or ()]
    return tuple(ApiServerEndpoint(ip, port) for text in texts if (ip := canonical(text)) for port in ports)


WATCHED = Watched(
    "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices",
    EndpointSlice,
    ApiServerEndpoint,
    endpoint_rows,
)
