"""Verdicts of the switches of the Nodes on a packet, from their agents' /ovstracing."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from antrea.antctl.failure import Failure
from antrea.antctl.proxy.command import Identity
from antrea.antctl.remote import agent
from antrea.antctl.request import Server, ask
from antrea.explain.packet import PORTED, family
from antrea.explain.rule import EGRESS
from antrea.explain.service import Endpoint, translated
from antrea.explain.verdict import Printed, Verdict
from antrea.openflow.audit_trace import enforced_part

if TYPE_CHECKING:
    from collections.abc import Mapping

    from antrea.explain.answer import Answer, AtEndpoint, Through
    from antrea.explain.packet import Packet
    from antrea.explain.verdict import Half
    from antrea.explain.world import World

SECONDS = 15.0
STEP = re.compile(r"^ *\d+\. (\w+): (.*)$")
TABLES = {
    "Egress": ("DNAT", "AntreaPolicyEgressRule", "EgressRule", "EgressDefaultRule", "EgressMetric"),
    "Ingress": (
        "IngressSecurityClassifier",
        "AntreaPolicyIngressRule",
        "IngressRule",
        "IngressDefaultRule",
        "IngressMetric",
    ),
}
"""Tables of network policies by direction."""
AFTER = {"Egress": ("L3Forwarding", "ConntrackCommit"), "Ingress": ("ConntrackCommit",)}
"""Tables that a packet reaches after it has passed all policies of a direction."""
OUTPUT = "Output"
"""Where packets leave by a port, and where the agent is sent copies of those that it logs or rejects."""
COPY = re.compile(r"\bcontroller\(.*\buserdata=01\.([0-9a-f]{2})\b")
"""A copy for the agent, as policies ask for it, and what the agent does with it."""
REJECT = 2
"""The bit of a copy whose sender the agent answers."""
TRANSLATED = re.compile(r"\bnat\(dst=[^)]*\)")
"""Translation of a Service's address to an Endpoint by AntreaProxy."""
REJECTED = "userdata=04"
"""Mark of the copy that goes to the agent for a packet to a Service without an Endpoint."""
DROP: Verdict = "Drop"
Trace = Callable[[str, "Packet"], str]
"""Function that returns the trace of a packet in the switch of a Node. Raises Failure."""


class SwitchVerdict(Printed, frozen=True, kw_only=True, omit_defaults=False):
    """One direction on the Node of its Pod."""

    node: str
    direction: str
    agrees: bool | None
    """Whether the switch does as explained; None: it could not be asked."""
    does: Verdict | None = None
    """Verdict of the switch on the packet."""
    flows: tuple[str, ...] = ()
    """The flows of policies that the packet meets there."""
    why: str = ""
    """Why it could not be asked."""


def switches(
    kubernetes: Server, world: World, packet: Packet, answer: Answer, *, insecure: bool
) -> list[SwitchVerdict]:
    """The answer of each Node about the direction that it judges."""
    kubernetes = kubernetes._replace(seconds=kubernetes.seconds or SECONDS)

    def trace(node: str, traced: Packet) -> str:
        return _trace(kubernetes, node, traced, insecure=insecure)

    if answer.through is not None:
        return chosen(trace, world, packet, answer.through)
    return compared(trace, packet, answer.egress, answer.ingress)


def compared(trace: Trace, packet: Packet, egress: Half | None, ingress: Half) -> list[SwitchVerdict]:
    """The same by `trace`; without `egress`, of ingress alone."""
    says = []
    for half, end in ((egress, packet.source), (ingress, packet.destination)):
        if half is None or half.reason == "exempt" or end.pod is None:
            continue
        node = end.pod.spec.node_name
        try:
            says.append(read(trace(node, packet), node, half))
        except Failure as error:
            says.append(SwitchVerdict(node=node, direction=half.direction, agrees=None, why=error.message))
            continue
        if half.direction == EGRESS and half.verdict != "Allow":
            # no packet comes to the other Node
            break
    return says


def chosen(trace: Trace, world: World, packet: Packet, through: Through) -> list[SwitchVerdict]:
    """The answer of each Node about a packet to a Service: which Endpoint its sender's has chosen, and of the directions for that one.

    None about one to a NodePort, which comes from the host.
    """
    pod = packet.source.pod
    if pod is None or through.node_port:
        return []
    node = pod.spec.node_name
    try:
        text = trace(node, packet)
    except Failure as error:
        return [SwitchVerdict(node=node, direction=EGRESS, agrees=None, why=error.message)]
    endpoint = _endpoint(text, through)
    if endpoint is None:
        return [_unbalanced(text, node, through)]
    says = [read(text, node, endpoint.egress)]
    if endpoint.egress.verdict != "Allow" or endpoint.ingress.reason == "exempt":
        return says
    after = translated(world, packet, through.service, Endpoint(endpoint.ip, endpoint.port))
    there = after.destination.pod
    if there is not None and there.spec.node_name == node:
        return [*says, read(text, node, endpoint.ingress)]
    return [*says, *compared(trace, after, None, endpoint.ingress)]


def _endpoint(trace: str, through: Through) -> AtEndpoint | None:
    """The Endpoint to which the switch translates, if it is one of those explained."""
    if (match := TRANSLATED.search(trace)) is None:
        return None
    for endpoint in through.endpoints:
        if f"nat(dst={Endpoint(endpoint.ip, endpoint.port)})" == match[0]:
            return endpoint
    return None


def _unbalanced(trace: str, node: str, through: Through) -> SwitchVerdict:
    """The switch chooses none of the Endpoints that are explained; that agrees if there is none."""
    match = TRANSLATED.search(trace)
    does: Verdict | None = None if match else "Reject" if REJECTED in trace else DROP
    flows = (f"EndpointDNAT: {match[0]}",) if match else ()
    agrees = not through.endpoints and does == (DROP if through.refused else "Reject")
    return SwitchVerdict(node=node, direction=EGRESS, agrees=agrees, does=does, flows=flows)


def read(trace: str, node: str, half: Half) -> SwitchVerdict:
    """The verdict of a trace in one direction."""
    flows: list[str] = []
    table, does = "", DROP
    for line in enforced_part(trace).splitlines():
        if match := STEP.match(line):
            table = match[1]
            if table in TABLES[half.direction]:
                flows.append(f"{table}: {match[2]}")
            if table in AFTER[half.direction]:
                does = "Allow"
        elif table == OUTPUT and does == DROP and (copy := COPY.search(line)) and int(copy[1], 16) & REJECT:
            does = "Reject"
    return SwitchVerdict(
        node=node, direction=half.direction, agrees=does == half.verdict, does=does, flows=tuple(flows)
    )


def _trace(kubernetes: Server, node: str, packet: Packet, *, insecure: bool) -> str:
    """Raises Failure."""
    return str(ask_agent(kubernetes, node, "/ovstracing", question(packet), insecure=insecure)["result"])


def ask_agent(kubernetes: Server, node: str, path: str, query: Mapping[str, str], *, insecure: bool) -> Any:
    """Return the answer of a Node's agent. Raises Failure."""
    server = agent(kubernetes, node, insecure=insecure)
    token = Identity(kubernetes, server).headers()["Authorization"].removeprefix("Bearer ")
    access: Any = server.access
    return ask(server._replace(access=msgspec.structs.replace(access, token=token)), path, query)


def question(packet: Packet) -> dict[str, str]:
    """Return the query by which `antctl trace-packet` asks an agent for this packet."""
    v = family(packet.source.ip)
    name = packet.protocol.lower()
    kind = name + ("6" if v == 6 else "")
    if packet.protocol in PORTED:
        terms = (kind, f"{name}_src={packet.source_port}", f"{name}_dst={packet.port}")
    else:
        field = "icmpv6" if v == 6 else "icmp"
        terms = (kind, f"{field}_type={packet.icmp_type}", f"{field}_code={packet.icmp_code}")
    return {
        "source": packet.source.name,
        "destination": packet.destination.name,
        "flow": ",".join(terms),
        "addressFamily": str(v),
    }
