"""Flow of the switch behind each observation, and the reason: additional fields, which upstream's clients skip."""

from __future__ import annotations

from collections.abc import Callable
from ipaddress import ip_address, ip_network
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from antrea.apis.crd.traceflow import DIVERSION
from antrea.apis.shown import one_line
from antrea.features.framework.agent_feature import RealizedPipeline
from antrea.features.network_policy.agent.priority import IN, OUT
from antrea.features.traceflow.explanation import explanation
from antrea.features.traceflow.observation import FORWARDING, POLICY, RECEIVED
from antrea.openflow.cookie import Category
from antrea.openflow.fields import AP_CONJ_ID
from antrea.openflow.packet import ICMP, ICMPV6, SCTP, TCP, UDP
from antrea.openflow.packet_in import CT_LABEL, CT_MARK, PKT_MARK
from antrea.openflow.tables import (
    CLASSIFIER,
    EGRESS_MARK,
    ENDPOINT_DNAT,
    OUTPUT,
    SPOOF_GUARD,
    TRAFFIC_CONTROL,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from antrea.apis.crd.traceflow import Observation
    from antrea.engine import Facts
    from antrea.features.network_policy.agent.priority import DirectionTables
    from antrea.features.traceflow.observation import TracedPacket
    from antrea.openflow.flow import Flow

MAX_LENGTH = 512
"""Maximum number of characters of a flow or an explanation."""
PROTOCOLS = {
    "tcp": TCP, "udp": UDP, "sctp": SCTP, "icmp": ICMP, "tcp6": TCP, "udp6": UDP, "sctp6": SCTP, "icmp6": ICMPV6,
}  # fmt: skip
MARKS = {"ct_mark": CT_MARK, "ct_label": CT_LABEL, "pkt_mark": PKT_MARK}


FlowKey = tuple[str, int, tuple[str, ...]]
"""Key of a flow, see `Flow.key`."""
FlowsOf = Callable[[Callable[[FlowKey], bool]], "Iterable[Flow]"]
"""Function that returns the wanted flows whose keys pass a test."""


class Place(NamedTuple):
    """Tables in which the flow of an observation is looked up, and fields that the packet had there but no longer has at its
    end.
    """

    tables: tuple[str, ...]
    had: Mapping[str, str] = {}

    def holds(self, key: FlowKey) -> bool:
        """Whether a flow with this key is a candidate: for a rule, the one flow with its action."""
        rule = self.had.get("conj_id")
        return key[0] in self.tables and (rule is None or f"conj_id={rule}" in key[2])


def detailed(
    facts: Facts, packet: TracedPacket, observed: tuple[Observation, ...], flows_of: FlowsOf
) -> tuple[Observation, ...]:
    """Return the observations with table, flow and explanation."""
    realized = facts.get(RealizedPipeline)
    if realized is None:
        return observed
    places = [place_of(observation, packet) for observation in observed]
    met = flows_of(lambda key: any(place.holds(key) for place in places))
    kept = [row for row in met if row.category != Category.TRACEFLOW]
    return tuple(
        msgspec.structs.replace(
            observation,
            table=flow.table if flow else place.tables[0],
            flow=one_line(flow.named(realized.pipeline))[:MAX_LENGTH] if flow else "",
            explanation=one_line(explanation(facts, packet, observation))[:MAX_LENGTH],
        )
        for observation, place in zip(observed, places, strict=True)
        for flow in (flow_at(packet, place, kept),)
    )


def place_of(observation: Observation, packet: TracedPacket) -> Place:
    """Return the tables in which the observation was decided."""
    if observation.component == "SpoofGuard":
        return Place((SPOOF_GUARD.name,), {"src": packet.source or packet.read.source})
    if observation.component == FORWARDING:
        return Place((CLASSIFIER.name if observation.action == RECEIVED else OUTPUT.name,))
    if observation.component == "LB":
        return Place((ENDPOINT_DNAT.name,), _endpoint(packet))
    if observation.component == "Egress":
        return Place((EGRESS_MARK.name,))
    if observation.component == DIVERSION:
        return Place((TRAFFIC_CONTROL.name,))
    for here in (OUT, IN):
        if observation.component_info in (here.rule.name, here.metric.name) and (
            number := _rule(observation, packet, here)
        ):
            return Place((here.antrea.name, here.rule.name, here.default.name), {"conj_id": str(number)})
    known = observation.component == POLICY and observation.component_info.endswith("Rule")
    return Place((observation.component_info if known else OUTPUT.name,))


def _rule(observation: Observation, packet: TracedPacket, here: DirectionTables) -> int:
    """Return the number of the rule that let the packet pass, or did not; 0 if unknown."""
    return packet.packet_in.value(
        here.register if observation.component_info == here.rule.name else AP_CONJ_ID
    )


def _endpoint(packet: TracedPacket) -> dict[str, str]:
    """Return the Endpoint in the registers before the packet was translated: policies reuse one of them."""
    register = "xxreg3" if packet.read.ipv6 else "reg3"
    return {register: hex(int(ip_address(packet.read.destination)))}


def flow_at(packet: TracedPacket, place: Place, flows: Iterable[Flow]) -> Flow | None:
    """Return the flow of highest priority that the packet met; None if there is none, or several are possible."""
    fit = [row for row in flows if place.holds(row.key) and _fits(packet, place, row)]
    best = [row for row in fit if row.priority == max(candidate.priority for candidate in fit)]
    return best[0] if len(best) == 1 else None


def _fits(packet: TracedPacket, place: Place, flow: Flow) -> bool:
    if flow.table == EGRESS_MARK.name and not _left_so(packet, flow):
        return False
    return all(_met(packet, place, term) for term in flow.match)


def _left_so(packet: TracedPacket, flow: Flow) -> bool:
    """Whether the packet has the source MAC address and the mark that the flow gives: no flow after it gives others."""
    for action in flow.actions:
        value, _, field = action.removeprefix("set_field:").partition("->")
        if field == "eth_src" and value != packet.read.source_mac.hex(":"):
            return False
        if field == "pkt_mark" and not _holds(_register(packet, field), value):
            return False
    return True


def _holds(held: int, text: str) -> bool:
    """Whether a number has the bits of `0x1/0xf`, or is the one number."""
    number, _, mask = text.partition("/")
    return held & (int(mask, 16) if mask else -1) == int(number, 16)


def _met(packet: TracedPacket, place: Place, term: str) -> bool:
    """Whether the packet fits a term; unknown fields fit, such as the state of its connection."""
    name, _, value = term.partition("=")
    read, packet_in, had = packet.read, packet.packet_in, place.had
    if not value:
        family = name == "ipv6" or name.endswith("6")
        return name != "arp" and family == read.ipv6 and PROTOCOLS.get(name, read.protocol) == read.protocol
    if name == "in_port":
        return value == str(packet_in.in_port)
    if name == "conj_id":
        return had.get(name) == value
    if name in ("nw_src", "ipv6_src", "nw_dst", "ipv6_dst"):
        end = had.get("src", read.source) if name.endswith("src") else read.destination
        return ip_address(end) in ip_network(value)
    if name.removeprefix("xx").startswith("reg") or name in MARKS:
        return _holds(int(had[name], 16) if name in had else _register(packet, name), value)
    return True


def _register(packet: TracedPacket, name: str) -> int:
    """Return what a register or a mark holds at the end of the packet's path."""
    packet_in = packet.packet_in
    if name in MARKS:
        return int.from_bytes(packet_in.fields.get(MARKS[name], b""))
    number = int(name.removeprefix("xx").removeprefix("reg"))
    if not name.startswith("xx"):
        return packet_in.registers.get(number, 0)
    value = 0
    for part in range(4 * number, 4 * number + 4):
        value = value << 32 | packet_in.registers.get(part, 0)
    return value
