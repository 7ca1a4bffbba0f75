"""The whole answer to one question, as it is printed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec

from antrea.apis.service_address import ADVERTISED
from antrea.errors import Invalid
from antrea.explain.address import service_ips
from antrea.explain.change import changes
from antrea.explain.objects import name_of
from antrea.explain.packet import ANY_PORT, PORTED, Packet, pod_name, port_of
from antrea.explain.path import path
from antrea.explain.rule import EGRESS, INGRESS
from antrea.explain.service import balanced, end_name, service_end, service_families, translated
from antrea.explain.steering import SteeredPacket, steered
from antrea.explain.verdict import Half, Printed, Verdict, judged

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from antrea.explain.l7 import Request
    from antrea.explain.packet import End
    from antrea.explain.service import Balanced
    from antrea.explain.world import World

PING = {4: 8, 6: 128}
"""Type of an echo request."""


class AskedPacket(Printed, frozen=True):
    """The packet, its ends by name and by address."""

    source: str
    source_ip: str
    destination: str
    destination_ip: str
    what: str
    names: tuple[str, ...] = ()
    """Domain names of the destination, for rules on names."""
    names_of: str = ""
    """The Node whose agent has these names, or none; empty: it was not asked."""
    own_names: tuple[str, ...] = ()
    """Names from DNS servers of the sender that are not trusted: for rules that drop or reject alone."""


class AtEndpoint(Printed, frozen=True):
    """Verdict on the packet if an Endpoint is chosen."""

    endpoint: str
    """namespace/name of the Pod, else the address."""
    ip: str
    port: int
    verdict: Verdict
    direction: str
    sentence: str
    egress: Half
    ingress: Half


class Through(Printed, frozen=True):
    """The choice of AntreaProxy."""

    service: str
    """namespace/name"""
    among: str
    """Which Endpoints are chosen from."""
    sticky: bool
    """Whether a client stays with the Endpoint of its first connection: sessionAffinity ClientIP."""
    endpoints: tuple[AtEndpoint, ...]
    refused: bool = False
    """Whether the packet is dropped: by loadBalancerSourceRanges, or by externalTrafficPolicy Local."""
    node_port: str = ""
    """The Node at whose NodePort the Service is asked; empty: it is asked by an address of its own."""


class Audited(Printed, frozen=True):
    """Verdict on the packet if all audited policies were enforced."""

    verdict: Verdict
    direction: str
    sentence: str


class Answer(Printed, frozen=True):
    """The verdict, where it is made, both directions, and what would turn it over."""

    packet: AskedPacket
    verdict: Verdict | Literal["Depends"]
    """Depends: on which Endpoint of a Service is chosen; then the rest is of the first that is refused."""
    direction: str
    """Ingress or Egress: which half decides."""
    sentence: str
    egress: Half
    ingress: Half
    changes: tuple[str, ...]
    """Changes that together would reverse the verdict, in order; empty: no policy can."""
    through: Through | None = None
    """Not None: AntreaProxy chooses an Endpoint before any policy is asked."""
    audit: Audited | None = None
    """Not None: with audited policies enforced it would be otherwise."""
    traffic_controls: tuple[SteeredPacket, ...] = ()
    """TrafficControls that mirror or redirect the packet if it passes all policies."""
    path: str = ""
    """Path to a Pod of another Node: a tunnel or a route; empty: there is none."""
    advertised: tuple[str, ...] = ()
    """For a sender outside the cluster: which Nodes advertise the address to which routers, by Service."""


def packet_of(
    world: World,
    source: str,
    destination: str,
    port: str,
    *,
    v: int,
    source_port: int,
    names: Iterable[str] = (),
    request: Request | None = None,
) -> Packet:
    """The packet that is meant; `v` is 4 or 6, 0 for what both ends have; `names` are those of the destination. Raises Invalid."""
    protocol, number, code = port_of(port)
    of_service = "/" in destination and destination not in world.pods
    there = service_families(world, destination) or {4, 6} if of_service else world.families(destination)
    families = world.families(source) & there
    if not families:
        raise Invalid(destination, f"{source} and {destination} have no address family in common")
    v = v or min(families)
    first = world.end(source, v)
    last = service_end(world, destination, v) if of_service else world.end(destination, v)
    if first.host and "/" in source and last.pod and last.pod.spec.node_name != first.host:
        # what a Node sends to Pods of others leaves by its gateway
        first = msgspec.structs.replace(first, ip=world.gateway(first.host, v) or first.ip)
    ends = first, msgspec.structs.replace(last, names=tuple(name.lower().rstrip(".") for name in names))
    if protocol in PORTED:
        return Packet(*ends, protocol, number, source_port or ANY_PORT, request=request)
    return Packet(*ends, protocol, icmp_type=PING[v] if number is None else number, icmp_code=code or 0)


def answer(world: World, packet: Packet) -> Answer:
    """Explain the verdict on a packet."""
    there = packet.destination
    untrusted_names = dict(packet.own_names).get(there.ip, ())
    asked_packet = AskedPacket(
        *_end(packet.source), *_end(there), packet.description, there.names, there.names_of, untrusted_names
    )
    if (balance := balanced(world, packet)) is not None:
        return _balanced(world, packet, asked_packet, balance)
    halves = judged(world, packet)
    half = halves.decisive
    return Answer(
        asked_packet,
        halves.verdict,
        half.direction,
        half.sentence,
        halves.egress,
        halves.ingress,
        changes(world, packet),
        audit=audited(world, packet),
        traffic_controls=steered(world, packet),
        path=path(world, packet),
        advertised=tuple(advertised(world, packet)),
    )


def advertised(world: World, packet: Packet) -> Iterator[str]:
    """Yield the condition Advertised of each Service with the address, for a sender that only routers lead there."""
    source = packet.source
    if source.pod is not None or source.host:
        return
    for service in sorted(world.services.values(), key=name_of):
        for condition in service.status.conditions:
            if condition.type == ADVERTISED and packet.destination.ip in service_ips(service):
                yield f"Service {'/'.join(name_of(service))} is {condition.message}"


def audited(world: World, packet: Packet) -> Audited | None:
    """None if it would be the same, and by the same rule."""
    now, then = judged(world, packet).decisive, judged(world.all_enforced(), packet).decisive
    if (now.verdict, now.sentence) == (then.verdict, then.sentence):
        return None
    return Audited(then.verdict, then.direction, then.sentence)


def _balanced(world: World, packet: Packet, asked_packet: AskedPacket, balance: Balanced) -> Answer:
    """The same of each Endpoint that may be chosen."""
    through = through_service(world, packet, balance)
    at_endpoints = through.endpoints
    if not at_endpoints:
        egress, ingress = _rejected(packet, balance)
        return Answer(asked_packet, egress.verdict, EGRESS, egress.sentence, egress, ingress, (), through)
    shown = next(
        (number for number, at_endpoint in enumerate(at_endpoints) if at_endpoint.verdict != "Allow"), 0
    )
    first = at_endpoints[shown]
    same = {at_endpoint.verdict for at_endpoint in at_endpoints} == {first.verdict}
    shown_packet = translated(
        world, packet, balance.name, balance.endpoints[shown], node_port=balance.node_port
    )
    return Answer(
        asked_packet,
        first.verdict if same else "Depends",
        first.direction,
        first.sentence if same else f"If Endpoint {first.endpoint} is chosen: {first.sentence}",
        first.egress,
        first.ingress,
        changes(world, shown_packet),
        through,
        audited(world, shown_packet),
        steered(world, shown_packet),
        path(world, shown_packet),
    )


def through_service(world: World, packet: Packet, balance: Balanced) -> Through:
    """The choice, and what becomes of the packet at each Endpoint."""
    at = balance.node_port
    packets = (
        translated(world, packet, balance.name, endpoint, node_port=at) for endpoint in balance.endpoints
    )
    endpoints = tuple(_at_endpoint(world, packet) for packet in packets)
    return Through(balance.name, balance.why, balance.sticky, endpoints, balance.refused, at)


def _at_endpoint(world: World, packet: Packet) -> AtEndpoint:
    end, halves = packet.destination, judged(world, packet)
    half = halves.decisive
    return AtEndpoint(
        end_name(end),
        end.ip,
        packet.port or 0,
        halves.verdict,
        half.direction,
        half.sentence,
        halves.egress,
        halves.ingress,
    )


def _rejected(packet: Packet, balance: Balanced) -> tuple[Half, Half]:
    """Both directions of a packet to a Service that has no Endpoint to choose."""
    verdict: Verdict = "Drop" if balance.refused else "Reject"
    does = "drops" if balance.refused else "rejects"
    text = f"Service {balance.name} has no {balance.why}: AntreaProxy {does} the packet before any policy is asked."
    pod = pod_name(packet.source.pod) if packet.source.pod else ""
    egress = Half(direction=EGRESS, pod=pod, verdict=verdict, reason="no Endpoint", sentence=text)
    nowhere = "The packet gets to no Endpoint."
    return egress, Half(direction=INGRESS, pod="", verdict="Allow", reason="exempt", sentence=nowhere)


def _end(end: End) -> tuple[str, str]:
    return end.name, end.ip
