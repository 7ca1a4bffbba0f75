"""What the switches of the Nodes do with the packet, by their agents' /ovstracing."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import msgspec

from antrea.antctl.failure import Failure
from antrea.antctl.proxy import Identity
from antrea.antctl.remote import agent
from antrea.antctl.request import Server, ask
from antrea.explain.packet import PORTED, family
from antrea.explain.rule import EGRESS
from antrea.explain.verdict import Told

if TYPE_CHECKING:
    from antrea.explain.answer import Answer
    from antrea.explain.packet import Packet
    from antrea.explain.verdict import Half

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
"""Of policies, in each direction."""
AFTER = {"Egress": ("L3Forwarding", "ConntrackCommit"), "Ingress": ("ConntrackCommit", "Output")}
"""Who gets there has passed all policies of the direction."""


class SwitchSays(Told, frozen=True, kw_only=True, omit_defaults=False):
    """One direction on the Node of its Pod."""

    node: str
    direction: str
    agrees: bool | None
    """Whether the switch does as explained; None: it could not be asked."""
    flows: tuple[str, ...] = ()
    """The flows of policies that the packet meets there."""
    why: str = ""
    """Why it could not be asked."""


def switches(kubernetes: Server, packet: Packet, found: Answer, *, insecure: bool) -> list[SwitchSays]:
    """What each Node says of the direction that it judges."""
    says = []
    kubernetes = kubernetes._replace(seconds=kubernetes.seconds or SECONDS)
    for half, end in ((found.egress, packet.source), (found.ingress, packet.destination)):
        if half.reason == "exempt" or end.pod is None:
            continue
        node = end.pod.spec.node_name
        try:
            trace = _trace(kubernetes, node, packet, insecure=insecure)
        except Failure as why:
            says.append(SwitchSays(node=node, direction=half.direction, agrees=None, why=why.message))
            continue
        says.append(read(trace, node, half))
        if half.direction == EGRESS and half.verdict != "Allow":
            # no packet comes to the other Node
            break
    return says


def read(trace: str, node: str, half: Half) -> SwitchSays:
    """What a trace says of one direction."""
    steps = [match.groups() for line in trace.splitlines() if (match := STEP.match(line))]
    flows = tuple(f"{table}: {match}" for table, match in steps if table in TABLES[half.direction])
    passes = any(table in AFTER[half.direction] for table, _ in steps)
    return SwitchSays(
        node=node, direction=half.direction, agrees=passes == (half.verdict == "Allow"), flows=flows
    )


def _trace(kubernetes: Server, node: str, packet: Packet, *, insecure: bool) -> str:
    """Raises Failure."""
    server = agent(kubernetes, node, insecure=insecure)
    token = Identity(kubernetes, server).headers()["Authorization"].removeprefix("Bearer ")
    access: Any = server.access
    told = ask(
        server._replace(access=msgspec.structs.replace(access, token=token)), "/ovstracing", question(packet)
    )
    return str(told["result"])


def question(packet: Packet) -> dict[str, str]:
    """As `antctl trace-packet` asks an agent."""
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
