"""The whole answer to one question, as it is printed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from antrea.errors import Invalid
from antrea.explain.change import changes
from antrea.explain.packet import ANY_PORT, PORTED, Packet, port_of
from antrea.explain.verdict import Half, Told, Verdict, judged

if TYPE_CHECKING:
    from antrea.explain.packet import End
    from antrea.explain.world import World

PING = {4: 8, 6: 128}
"""Type of an echo request."""


class Asked(Told, frozen=True):
    """The packet, its ends by name and by address."""

    source: str
    source_ip: str
    destination: str
    destination_ip: str
    what: str


class Answer(Told, frozen=True):
    """The verdict, where it is made, both directions, and what would turn it over."""

    packet: Asked
    verdict: Verdict
    direction: str
    """Ingress or Egress: which half decides."""
    sentence: str
    egress: Half
    ingress: Half
    changes: tuple[str, ...]
    """What would turn the verdict over, all of it in this order; empty: no policy can."""


def packet_of(world: World, source: str, destination: str, port: str, *, v: int, source_port: int) -> Packet:
    """The packet that is meant; `v` is 4 or 6, 0 for what both ends have. Raises Invalid."""
    protocol, number, code = port_of(port)
    families = world.families(source) & world.families(destination)
    if not families:
        raise Invalid(destination, f"{source} and {destination} have no address family in common")
    v = v or min(families)
    first, last = world.end(source, v), world.end(destination, v)
    if first.host and "/" in source and last.pod and last.pod.spec.node_name != first.host:
        # what a Node sends to Pods of others leaves by its gateway
        first = msgspec.structs.replace(first, ip=world.gateway(first.host, v) or first.ip)
    ends = first, last
    if protocol in PORTED:
        return Packet(*ends, protocol, number, source_port or ANY_PORT)
    return Packet(*ends, protocol, icmp_type=PING[v] if number is None else number, icmp_code=code or 0)


def answer(world: World, packet: Packet) -> Answer:
    """What becomes of it and why."""
    found = judged(world, packet)
    half = found.decisive
    asked = Asked(*_end(packet.source), *_end(packet.destination), packet.what)
    return Answer(
        asked,
        found.verdict,
        half.direction,
        half.sentence,
        found.egress,
        found.ingress,
        changes(world, packet),
    )


def _end(end: End) -> tuple[str, str]:
    return end.name, end.ip
