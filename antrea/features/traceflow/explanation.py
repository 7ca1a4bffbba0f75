"""Why each observation is as it is, in a sentence: by the objects that this Node's switch follows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from antrea.facts.ovs import OvsPort, PodInterface
from antrea.facts.service import Service
from antrea.features.network_policy.agent.deciding_rule import deciding_rule
from antrea.features.network_policy.agent.priority import IN, OUT
from antrea.features.traceflow.observation import (
    DROPPED,
    FORWARDING,
    MIRRORED,
    POLICY,
    RECEIVED,
    STEERING,
    steering_at,
)
from antrea.openflow.fields import AP_CONJ_ID, TARGET_OF_PORT

if TYPE_CHECKING:
    from antrea.apis.crd.traceflow import Observation
    from antrea.engine import Facts
    from antrea.features.network_policy.agent.priority import DirectionTables
    from antrea.features.traceflow.observation import TracedPacket


def explanation(facts: Facts, packet: TracedPacket, one: Observation) -> str:
    """One sentence without a full stop."""
    if one.component == "SpoofGuard":
        return f"{one.src_pod_ip} is an address of Pod {packet.trace.pod}"
    if one.component == "LB":
        return _balanced(facts, packet, one)
    if one.component == POLICY:
        return _policy(facts, packet, one)
    if one.component == "Egress":
        return _egress(one)
    if one.component == STEERING:
        return _steered(facts, packet, one)
    if one.component == FORWARDING and one.action == RECEIVED:
        return f"it came in by {_port(facts, packet.found.in_port)}"
    return f"it leaves by {_port(facts, packet.found.value(TARGET_OF_PORT))}"


def _balanced(facts: Facts, packet: TracedPacket, one: Observation) -> str:
    asked = packet.destination
    names = sorted(f"{row.namespace}/{row.name}" for row in facts.all(Service) if asked in row.ips)
    service = f" of Service {', '.join(names)}" if names else ""
    source = f", and {one.translated_src_ip} the sender" if one.translated_src_ip else ""
    return f"{one.translated_dst_ip} is the Endpoint{service} that AntreaProxy chose{source}"


def _policy(facts: Facts, packet: TracedPacket, one: Observation) -> str:
    for here, side in ((OUT, "sends"), (IN, "receives")):
        if one.component_info in (here.rule.name, here.metric.name):
            return (
                _rule(facts, packet, one, here)
                or f"a rule for the Pod that {side} it cannot be enforced, see the policy's status"
            )
        if one.component_info == here.default.name:
            return f"a NetworkPolicy isolates the Pod that {side} it, and no rule allows it"
        if one.component_info == here.antrea.name:
            return f"a rule for the Pod that {side} it cannot be enforced, see the policy's status"
    return "a rule on requests (l7Protocols) selects it, and the L7 engine judges them"


def _rule(facts: Facts, packet: TracedPacket, one: Observation, here: DirectionTables) -> str:
    """Empty: no rule decided."""
    passed = one.component_info == here.rule.name and one.action != DROPPED
    number = packet.found.value(here.register if passed else AP_CONJ_ID)
    if not number or (not passed and one.component_info == here.rule.name):
        return ""
    decided = deciding_rule(facts, number)
    if decided is None:
        return "the rule is gone meanwhile"
    named = f"rule {decided.rule.name}" if decided.rule.name else "a rule"
    side = "sent" if here is OUT else "received"
    return f"{named} of {decided.policy} with action {decided.rule.action or 'Allow'} selects it as {side}, at priority {decided.priority} of its table"


def _egress(one: Observation) -> str:
    if not one.egress:
        return f"it leaves with the Egress IP {one.egress_ip} of this Node"
    return f"Egress {one.egress} selects the Pod, and Node {one.egress_node} has its address {one.egress_ip}"


def _steered(facts: Facts, packet: TracedPacket, one: Observation) -> str:
    row = steering_at(facts, packet)
    if row is None:
        return "the labels of the Pod are not known yet, and a TrafficControl redirects"
    target = row.target.name if row.target else "its target"
    if one.action == MIRRORED:
        return f"TrafficControl {row.name} selects the Pod: a copy goes to {target}"
    if one.action == DROPPED:
        return f"TrafficControl {row.name} selects the Pod and redirects, and {target} is missing"
    back = f", and comes back by {row.returned.name}" if row.returned else ""
    return f"TrafficControl {row.name} selects the Pod: it goes to {target}{back}"


def _port(facts: Facts, number: int) -> str:
    """The port of the switch, and whose it is."""
    for pod in facts.all(PodInterface):
        if pod.ofport == number:
            return f"port {pod.name} of Pod {pod.pod}"
    name = next((row.name for row in facts.all(OvsPort) if row.ofport == number), str(number))
    return f"port {name}"
