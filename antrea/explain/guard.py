"""Traffic that a Node keeps open against all policies on it, so that none locks it out of the cluster: peers and ports."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from antrea.explain.address import internal_ips, readable_ips, service_ips, transport_ips

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from antrea.apis.core import Node
    from antrea.explain.objects import Objects
    from antrea.explain.packet import Packet

KEEP_SSH = "node.antrea.io/keep-ssh"
SERVICE_LABEL = "kubernetes.io/service-name"
SERVER = "kube-apiserver"
KUBELET, CONTROLLER, SSH = 10250, 10349, 22
DHCP_CLIENT, DHCP_SERVER = (68, 546), (67, 547)


class GuardPorts(NamedTuple):
    """Ports of agents, by their configuration."""

    tunnel: int = 6081
    """0: the tunnels have none."""
    gossip: int = 10351
    api: int = 10350


DEFAULT_PORTS = GuardPorts()


class Guard:
    """Traffic that all Nodes keep open."""

    def __init__(self, objects: Objects, ports: GuardPorts) -> None:
        self.ports = ports
        self.nodes = {ip for node in objects.nodes for ip in (*internal_ips(node), *transport_ips(node))}
        self.ssh = {node.metadata.name: _ssh_ports(node) for node in objects.nodes}
        ends = set(_servers(objects))
        self.servers = {ip for ip, _ in ends}
        self.server_ends = ends | {
            (ip, port.port)
            for service in objects.services
            if (service.metadata.namespace, service.metadata.name) == ("default", "kubernetes")
            for ip in service_ips(service)
            for port in service.spec.ports
            if port.protocol == "TCP"
        }

    def kept(self, packet: Packet, node: str, *, egress: bool) -> str:
        """Why `node` lets the packet through before any policy is asked; empty if it does not."""
        source, end = packet.source.ip, packet.destination.ip
        at_server = packet.protocol == "TCP" and (end, packet.port) in self.server_ends
        if at_server and (egress or source in self.nodes):
            return SERVER
        far = end if egress else source
        for name, protocols, ports, peers in self._services(node, egress=egress):
            if packet.protocol in protocols and packet.port in ports and (peers is None or far in peers):
                return name
        return ""

    def _services(
        self, node: str, *, egress: bool
    ) -> Iterator[tuple[str, tuple[str, ...], Collection[int], Collection[str] | None]]:
        """Name, protocols, ports, and whose addresses; None: everybody's."""
        if self.ports.tunnel:
            yield "tunnels", ("UDP",), (self.ports.tunnel,), self.nodes
        yield "gossip", ("TCP", "UDP"), (self.ports.gossip,), self.nodes
        yield "antrea-controller", ("TCP",), (CONTROLLER,), self.nodes
        yield "DHCP", ("UDP",), DHCP_SERVER if egress else DHCP_CLIENT, None
        if not egress:
            ports = (KUBELET, self.ports.api)
            yield "kubelet and antrea-agent, for kube-apiserver", ("TCP",), ports, self.servers
            yield "SSH", ("TCP",), self.ssh.get(node, ()), None


def _servers(objects: Objects) -> Iterator[tuple[str, int]]:
    for endpoint_slice in objects.endpoint_slices:
        meta = endpoint_slice.metadata
        if (meta.namespace, meta.labels.get(SERVICE_LABEL)) != ("default", "kubernetes"):
            continue
        ports = [
            port.port
            for port in endpoint_slice.ports or ()
            if port.port and (port.protocol or "TCP") == "TCP"
        ]
        texts = [text for end in endpoint_slice.endpoints or () for text in end.addresses or ()]
        yield from ((ip, port) for ip in readable_ips(texts) for port in ports)


def _ssh_ports(node: Node) -> tuple[int, ...]:
    """Return the ports of the annotation: "true" or numbers, of which an invalid one disables all."""
    ports_given = [
        part.strip() for part in node.metadata.annotations.get(KEEP_SSH, "").split(",") if part.strip()
    ]
    ports = [
        SSH if part == "true" else int(part) if part.isascii() and part.isdecimal() else 0
        for part in ports_given
    ]
    return tuple(ports) if all(0 < port < 65536 for port in ports) else ()
