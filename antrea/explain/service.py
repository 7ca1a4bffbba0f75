"""Translation by AntreaProxy of a packet to a Service: the Endpoints among which the switch of the sender's Node chooses.

Source: the Service and EndpointSlice API, and KEP-2433 on topology hints.
"""

from __future__ import annotations

import contextlib
from ipaddress import ip_address, ip_interface, ip_network
from typing import TYPE_CHECKING, Literal, NamedTuple

import msgspec

from antrea.apis.annotation import LINK, TRANSPORT_ADDRESSES
from antrea.errors import Invalid
from antrea.explain.address import (
    balanced_ips,
    has_addresses,
    internal_ips,
    readable_ips,
    service_ips,
    stored_ip,
)
from antrea.explain.packet import PORTED, End, family, pod_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from ipaddress import IPv4Network, IPv6Network

    from antrea.apis.core import Node, Service, ServicePort
    from antrea.apis.discovery import Endpoint as SliceEndpoint
    from antrea.apis.discovery import EndpointPort, EndpointSlice, NamedHint
    from antrea.explain.packet import Packet
    from antrea.explain.world import World

State = Literal["ready", "draining", "unavailable"]
OF_SERVICE = "kubernetes.io/service-name"
"""Label of an EndpointSlice that names its Service."""
MODE, MODES = "service.antrea.io/load-balancer-mode", ("nat", "dsr")
"""Annotation of a Service, and its values."""
OF_NODES = frozenset(
    [
        ("TCP", port)
        for port in (22, 179, 2379, 2380, 6443, 10248, 10249, 10250, 10255, 10256, 10257, 10259, 10349)
    ]
    + [("UDP", port) for port in (68, 500, 546, 3784, 4500, 4784, 4789, 6081, 7471)]
)
"""Ports of a Node's own addresses that no Service gets."""
ZONE = "topology.kubernetes.io/zone"
"""Label of a Node."""


class Endpoint(NamedTuple):
    """An address and port behind a port of a Service."""

    ip: str
    port: int

    def __str__(self) -> str:
        return f"[{self.ip}]:{self.port}" if ":" in self.ip else f"{self.ip}:{self.port}"


class Balanced(NamedTuple):
    """A packet that AntreaProxy sends to one of several Endpoints; to none, it is rejected."""

    service: Service
    endpoints: tuple[Endpoint, ...]
    why: str
    """Which Endpoints these are, as a noun phrase."""
    refused: bool = False
    """Whether the packet is dropped instead: by loadBalancerSourceRanges, or by externalTrafficPolicy Local."""
    node_port: str = ""
    """The Node at whose NodePort the Service is asked; empty: it is asked by an address of its own."""

    @property
    def name(self) -> str:
        """namespace/name of the Service."""
        return f"{self.service.metadata.namespace}/{self.service.metadata.name}"

    @property
    def sticky(self) -> bool:
        """Whether a client stays with the Endpoint of its first connection."""
        return self.service.spec.session_affinity == "ClientIP"


class _Candidate(NamedTuple):
    """An Endpoint, as one Node sees it."""

    endpoint: Endpoint
    state: State
    is_local: bool
    zone_hint: bool | None
    """Whether it is for the Node's zone; None: it has no hints for zones."""
    node_hint: bool | None


def balanced(world: World, packet: Packet) -> Balanced | None:
    """None: AntreaProxy leaves the packet as it is."""
    if (entered := asked_by_node_port(world, packet)) is not None:
        return _at_node_port(world, packet, *entered)
    pod = packet.source.pod
    entered = _requested_service(world, packet) or _requested_service_at_node(world, packet)
    if pod is None or entered is None:
        return None
    service, port = entered
    node, version = pod.spec.node_name, family(packet.destination.ip)
    if _guarded(service, packet):
        return Balanced(service, (), "Endpoints for a sender outside loadBalancerSourceRanges", refused=True)
    candidates = [
        candidate
        for candidate in _candidates(world, service, port, node)
        if family(candidate.endpoint.ip) == version
    ]
    internal = packet.destination.ip in set(readable_ips(service.spec.cluster_ips))
    # what Pods send to an external address does not ask for its source to be kept: externalTrafficPolicy is not for them
    if local := internal and service.spec.internal_traffic_policy == "Local":
        candidates = [candidate for candidate in candidates if candidate.is_local]
    chosen, why = _chosen(candidates, node, hinted=not local)
    if local:
        why += f" on Node {node} (internalTrafficPolicy Local)"
    return Balanced(service, tuple(sorted({candidate.endpoint for candidate in chosen})), why)


def why_unserved(world: World, packet: Packet) -> str:
    """Why AntreaProxy rejects a packet that policies have let through: no Service has its port; empty: it does not.

    Nodes route the addresses of Services to the switch where AntreaProxy serves them all, and only there.
    """
    end, port = packet.destination, packet.port
    known = world.proxy is not None and world.proxy.all_addresses and packet.protocol in PORTED and port
    if not known or packet.service or end.pod is not None or end.host or _requested_service(world, packet):
        return ""
    names = sorted(
        f"{service.metadata.namespace}/{service.metadata.name}" for service in world.serving(end.ip)
    )
    if not names:
        return ""
    whose = f"Service {names[0]}" if len(names) == 1 else f"Services {', '.join(names)}"
    return f"{packet.protocol} port {port} of {end.ip} is not among those of {whose}: AntreaProxy rejects the packet."


def service_entered(world: World, packet: Packet) -> str:
    """Return namespace/name of the Service at whose address the packet of a host outside arrives; empty: at none.

    Cluster IPs count where AntreaProxy serves Services for such clients, too.
    """
    source, there = packet.source, packet.destination
    if packet.service or packet.node_port or packet.protocol not in PORTED:
        return ""
    if source.pod is not None or source.host or there.pod is not None or there.host:
        return ""
    services = [
        (service, port)
        for service in world.services.values()
        if has_addresses(service) and there.ip in service_ips(service)
        for port in service.spec.ports
        if (port.protocol, port.port) == (packet.protocol, packet.port)
    ]
    service, _ = min(services, key=_age, default=(None, None))
    if service is None or (there.service and not is_served_outside(world, there.ip)):
        return ""
    return f"{service.metadata.namespace}/{service.metadata.name}"


def is_served_outside(world: World, ip: str) -> bool:
    """Whether AntreaProxy serves a Service at this address for clients outside the cluster."""
    return world.proxy is not None and world.proxy.all_addresses and bool(world.serving(ip))


def _at_node_port(world: World, packet: Packet, service: Service, port: ServicePort) -> Balanced:
    """Balance a packet at a NodePort. Packets of Pods need not keep their source, so externalTrafficPolicy does not apply."""
    node, version = packet.destination.host, family(packet.destination.ip)
    candidates = [
        candidate
        for candidate in _candidates(world, service, port, node)
        if family(candidate.endpoint.ip) == version
    ]
    chosen, why = _chosen(candidates, node, hinted=True)
    refused = False
    if packet.source.pod is None and service.spec.external_traffic_policy == "Local":
        somewhere = bool(chosen)
        chosen, why = _chosen(
            [candidate for candidate in candidates if candidate.is_local], node, hinted=False
        )
        why += f" on Node {node} (externalTrafficPolicy Local)"
        refused = somewhere and not chosen
    endpoints = tuple(sorted({candidate.endpoint for candidate in chosen}))
    return Balanced(service, endpoints, why, refused=refused, node_port=node)


def translated(
    world: World, packet: Packet, service: str, endpoint: Endpoint, *, node_port: str = ""
) -> Packet:
    """The packet after the choice of an Endpoint of Service `service` (namespace/name), asked at `node_port`."""
    names, there = dict(packet.names).get(endpoint.ip, ()), world.owner(endpoint.ip)
    return msgspec.structs.replace(
        packet,
        destination=msgspec.structs.replace(there, names=names, names_of=packet.destination.names_of),
        port=endpoint.port,
        service=service,
        node_port=node_port,
    )


def is_direct(world: World, name: str, asked_node: str, there: str, v: int) -> bool:
    """Whether Endpoints of a Service (namespace/name) on Node `there` get packets as they came to Node `asked_node`."""
    service = world.services.get(_key(name))
    if service is None or world.proxy is None or not world.proxy.direct_default:
        return False
    mode = service.metadata.annotations.get(MODE, "").strip().lower()
    if (mode if mode in MODES else world.proxy.direct_default) != "dsr":
        return False
    ends = (world.nodes.get(asked_node), world.nodes.get(there))
    return world.proxy.tunnels or are_neighbours(*ends, v)


def are_neighbours(asked_node: Node | None, there: Node | None, v: int) -> bool:
    """Whether both have annotation `node.antrea.io/link`, and that of Node `asked_node` names a network with an address of the other."""
    if asked_node is None or there is None:
        return False
    said = [node.metadata.annotations.get(LINK, "") for node in (asked_node, there)]
    if not all(said):
        return False
    ends = there.metadata.annotations.get(TRANSPORT_ADDRESSES, "").split(",")
    addresses = list(readable_ips(end.strip() for end in ends)) or sorted(internal_ips(there))
    networks = list(_networks(said[0].split()[1:]))
    return any(ip_address(ip) in network for ip in addresses if family(ip) == v for network in networks)


def _networks(cidrs: Iterable[str]) -> Iterator[IPv4Network | IPv6Network]:
    """Yield the addresses with a prefix length."""
    for word in cidrs:
        with contextlib.suppress(ValueError):
            yield ip_interface(word).network


def service_end(world: World, text: str, v: int) -> End:
    """A Service named as `namespace/name`, by its ClusterIP of a family. Raises Invalid."""
    service = world.services.get(_key(text))
    if service is None:
        raise Invalid(text, "there is neither such a Pod nor such a Service, or the Pod has ended")
    if not has_addresses(service):
        raise Invalid(text, "the Service has no ClusterIP; name a Pod behind it")
    for ip in readable_ips(service.spec.cluster_ips):
        if family(ip) == v:
            return world.owner(ip)
    raise Invalid(text, f"the Service has no IPv{v} address")


def service_families(world: World, text: str) -> set[int]:
    """Families in which a Service has a ClusterIP."""
    service = world.services.get(_key(text))
    return {family(ip) for ip in readable_ips(service.spec.cluster_ips)} if service else set()


def end_name(end: End) -> str:
    """The Pod or the address, for people."""
    return pod_name(end.pod) if end.pod else end.ip


def _key(text: str) -> tuple[str, str]:
    space, _, name = text.partition("/")
    return space, name


# the Service


def _requested_service(world: World, packet: Packet) -> tuple[Service, ServicePort] | None:
    """The Service and port that the packet is for, if AntreaProxy serves them."""
    if world.proxy is None or packet.protocol not in PORTED or packet.service:
        return None
    services = [
        (service, port)
        for service in world.serving(packet.destination.ip)
        for port in service.spec.ports
        if (port.protocol, port.port) == (packet.protocol, packet.port)
    ]
    return min(services, key=_age, default=None)


def _requested_service_at_node(world: World, packet: Packet) -> tuple[Service, ServicePort] | None:
    """The Service with an external IP that is an address of the sender's own Node, which serves it there.

    Which ports are in use on the Node is not known here: those that every Node needs are left out.
    """
    proxy, pod, there = world.proxy, packet.source.pod, packet.destination
    if proxy is None or not (proxy.all_addresses and proxy.node_addresses) or pod is None or packet.service:
        return None
    if pod.spec.node_name != there.host or packet.protocol not in PORTED:
        return None
    if (packet.protocol, packet.port) in OF_NODES:
        return None
    services = [
        (service, port)
        for service in world.services.values()
        if there.ip in {*readable_ips(service.spec.external_ips), *balanced_ips(service)}
        and world.proxied(service)
        and family(there.ip) in {family(ip) for ip in readable_ips(service.spec.cluster_ips)}
        for port in service.spec.ports
        if (port.protocol, port.port) == (packet.protocol, packet.port)
    ]
    return min(services, key=_age, default=None)


def asked_by_node_port(world: World, packet: Packet) -> tuple[Service, ServicePort] | None:
    """The Service whose NodePort is asked, by a host outside the Node, or a Pod of it, if AntreaProxy serves it there."""
    source, there = packet.source, packet.destination
    known = world.proxy is not None and world.proxy.all_addresses and packet.protocol in PORTED
    if not known or packet.service or not there.host or there.ip not in internal_ips(world.nodes[there.host]):
        return None
    if source.host == there.host or (source.pod is not None and source.pod.spec.node_name != there.host):
        return None
    for service in world.services.values():
        families = {family(ip) for ip in readable_ips(service.spec.cluster_ips)}
        if family(there.ip) not in families or not world.proxied(service):
            continue
        for port in service.spec.ports:
            if (port.protocol, port.node_port) == (packet.protocol, packet.port) and packet.port:
                return service, port
    return None


def _age(claim: tuple[Service, ServicePort]) -> tuple[str, str]:
    """Sort key of objects that claim the same address and port: the oldest has it."""
    meta = claim[0].metadata
    return meta.creation_timestamp, f"{meta.namespace}/{meta.name}"


def _guarded(service: Service, packet: Packet) -> bool:
    """Whether the packet is for an address of a load balancer, and its sender in none of the networks that may ask."""
    ip = packet.destination.ip
    if ip not in balanced_ips(service) or ip in set(readable_ips(service.spec.cluster_ips)):
        return False
    sender = ip_address(packet.source.ip)
    ranges = [_network(text) for text in service.spec.load_balancer_source_ranges]
    ranges = [network for network in ranges if network is None or network.version == sender.version]
    return bool(ranges) and not any(network is not None and sender in network for network in ranges)


def _network(text: str) -> IPv4Network | IPv6Network | None:
    """None if it cannot be read: then it has no member."""
    address, slash, length = text.strip().partition("/")
    try:
        return ip_network(f"{stored_ip(address)}{slash}{length}", strict=False)
    except ValueError:
        return None


# its Endpoints


def _candidates(world: World, service: Service, port: ServicePort, node: str) -> Iterator[_Candidate]:
    zone = _zone(world, node)
    for endpoint_slice in _slices(world, service):
        for number in _numbers(endpoint_slice.ports or (), port):
            for endpoint in endpoint_slice.endpoints or ():
                for ip in readable_ips(endpoint.addresses[:1]):
                    yield _Candidate(
                        Endpoint(ip, number),
                        _state(endpoint),
                        endpoint.node_name == node,
                        _hinted(endpoint.hints.for_zones if endpoint.hints else None, zone),
                        _hinted(endpoint.hints.for_nodes if endpoint.hints else None, node)
                        if world.proxy is not None and world.proxy.node_hints
                        else None,
                    )


def _slices(world: World, service: Service) -> Iterator[EndpointSlice]:
    meta = service.metadata
    for endpoint_slice in world.objects.endpoint_slices:
        if (
            endpoint_slice.metadata.namespace == meta.namespace
            and endpoint_slice.metadata.labels.get(OF_SERVICE) == meta.name
        ):
            yield endpoint_slice


def _numbers(ports: Iterable[EndpointPort], wanted: ServicePort) -> Iterator[int]:
    for port in ports:
        same = ((port.name or ""), (port.protocol or "TCP")) == (wanted.name, wanted.protocol)
        if same and port.port is not None and 0 < port.port < 1 << 16:
            yield port.port


def _state(endpoint: SliceEndpoint) -> State:
    conditions = endpoint.conditions
    if conditions.ready is not False:
        return "ready"
    return "draining" if conditions.serving is not False and conditions.terminating else "unavailable"


def _hinted(hints: Sequence[NamedHint] | None, name: str) -> bool | None:
    names = {hint.name for hint in hints or () if hint.name}
    return name in names if names else None


def _zone(world: World, node: str) -> str:
    node_object = world.nodes.get(node)
    return node_object.metadata.labels.get(ZONE, "") if node_object else ""


def _chosen(candidates: Sequence[_Candidate], node: str, *, hinted: bool) -> tuple[list[_Candidate], str]:
    """Return the ready candidates that hints name, if all have hints and one names this Node; without any, those that drain."""
    ready = [candidate for candidate in candidates if candidate.state == "ready"]
    if not ready:
        draining = [candidate for candidate in candidates if candidate.state == "draining"]
        return draining, "Endpoints that terminate, as none is ready" if draining else "ready Endpoints"
    hints: tuple[tuple[Callable[[_Candidate], bool | None], str], ...] = (
        (lambda candidate: candidate.node_hint, f"ready Endpoints with a hint for Node {node}"),
        (lambda candidate: candidate.zone_hint, f"ready Endpoints with a hint for the zone of Node {node}"),
    )
    for hint, why in hints if hinted else ():
        if all(hint(candidate) is not None for candidate in ready) and any(
            hint(candidate) for candidate in ready
        ):
            return [candidate for candidate in ready if hint(candidate)], why
    return ready, "ready Endpoints"
