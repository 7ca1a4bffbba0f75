"""Explanation of each observation in a sentence, by the objects that this Node's switch follows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from antrea.apis.crd.traceflow import DIVERSION
from antrea.config.agent import AgentConfig
from antrea.facts.ovs import OvsPort, PodInterface
from antrea.facts.service import Service
from antrea.features.network_policy.agent.deciding_rule import deciding_rule
from antrea.features.network_policy.agent.priority import IN, OUT
from antrea.features.pod_connectivity.tunnel import TUNNEL_PORT
from antrea.features.traceflow.observation import (
    DROPPED,
    FORWARDING,
    MIRRORED,
    POLICY,
    RECEIVED,
    diversion_at,
)
from antrea.openflow.fields import AP_CONJ_ID, TARGET_OF_PORT

if TYPE_CHECKING:
    from antrea.apis.crd.traceflow import Observation
    from antrea.engine import Facts
    from antrea.features.network_policy.agent.priority import DirectionTables
    from antrea.features.traceflow.observation import TracedPacket


def explanation(facts: Facts, packet: TracedPacket, observation: Observation) -> str:
    """Return one sentence without a full stop."""
    if observation.component == "SpoofGuard":
        return f"{observation.src_pod_ip} is an address of Pod {packet.trace.pod}"
    if observation.component == "LB":
        return _balanced(facts, packet, observation)
    if observation.component == POLICY:
        return _policy(facts, packet, observation)
    if observation.component == "Egress":
        return _egress(observation)
    if observation.component == DIVERSION:
        return _diverted(facts, packet, observation)
    if observation.component == FORWARDING and observation.action == RECEIVED:
        return f"it came in by {_port(facts, packet.packet_in.in_port)}"
    return f"it leaves by {_port(facts, packet.packet_in.value(TARGET_OF_PORT))}"


def _balanced(facts: Facts, packet: TracedPacket, observation: Observation) -> str:
    address = packet.destination
    names = sorted(f"{row.namespace}/{row.name}" for row in facts.all(Service) if address in row.ips)
    service = f" of Service {', '.join(names)}" if names else ""
    source = f", and {observation.translated_src_ip} the sender" if observation.translated_src_ip else ""
    return f"{observation.translated_dst_ip} is the Endpoint{service} that AntreaProxy chose{source}"


def _policy(facts: Facts, packet: TracedPacket, observation: Observation) -> str:
    for here, side in ((OUT, "sends"), (IN, "receives")):
        if observation.component_info in (here.rule.name, here.metric.name):
            return (
                _rule(facts, packet, observation, here)
                or f"a rule for the Pod that {side} it cannot be enforced, see the policy's status"
            )
        if observation.component_info == here.default.name:
            return f"a NetworkPolicy isolates the Pod that {side} it, and no rule allows it"
        if observation.component_info == here.antrea.name:
            return f"a rule for the Pod that {side} it cannot be enforced, see the policy's status"
    return "a rule on requests (l7Protocols) selects it, and the L7 engine judges them"


def _rule(facts: Facts, packet: TracedPacket, observation: Observation, here: DirectionTables) -> str:
    """Return the sentence on a rule; empty if no rule decided."""
    passed = observation.component_info == here.rule.name and observation.action != DROPPED
    number = packet.packet_in.value(here.register if passed else AP_CONJ_ID)
    if not number or (not passed and observation.component_info == here.rule.name):
        return ""
    decided = deciding_rule(facts, number)
    if decided is None:
        return "the rule is gone meanwhile"
    named = f"rule {decided.rule.name}" if decided.rule.name else "a rule"
    side = "sent" if here is OUT else "received"
    return f"{named} of {decided.policy} with action {decided.rule.action or 'Allow'} selects it as {side}, at priority {decided.priority} of its table"


def _egress(observation: Observation) -> str:
    if not observation.egress:
        return f"it leaves with the Egress IP {observation.egress_ip} of this Node"
    text = f"Egress {observation.egress} selects the Pod, and Node {observation.egress_node} has its address {observation.egress_ip}"
    ports = observation.egress_ports
    return f"{text}; the Pod alone has source ports {ports} of it" if ports else text


def _diverted(facts: Facts, packet: TracedPacket, observation: Observation) -> str:
    row = diversion_at(facts, packet)
    if row is None:
        return f"the labels of the Pod are not known yet, and a {DIVERSION} redirects"
    selects = f"{DIVERSION} {row.name} selects the Pod"
    if observation.action == MIRRORED:
        return f"{selects}: a copy goes to {row.target}"
    if observation.action == DROPPED:
        return f"{selects} and redirects, and {row.target} is missing"
    back = f", and comes back by {row.returned}" if row.returned else ""
    return f"{selects}: it goes to {row.target}{back}"


def _port(facts: Facts, number: int) -> str:
    """Describe the port of the switch, and its owner."""
    for pod in facts.all(PodInterface):
        if pod.ofport == number:
            return f"port {pod.name} of Pod {pod.pod}"
    name = next((row.name for row in facts.all(OvsPort) if row.ofport == number), str(number))
    config = facts.get(AgentConfig)
    return (
        f"port {name}, the {config.tunnel_type} tunnel" if config and name == TUNNEL_PORT else f"port {name}"
    )
