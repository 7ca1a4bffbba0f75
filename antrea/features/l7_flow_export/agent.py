"""Requests in flow records: connections of annotated Pods are copied to a port of the switch, where an engine reads them.

The copies of one connection have the same two ends in both directions, also for a Service, whose address the client has used:
the engine finds no requests in half a connection. Of UDP only connections to port 53, as the client has it, are copied: a
Service of another port's Endpoints is one, too. Upstream copies what goes to a Pod (ingress) or comes from it (egress), which
is half of each connection; here these are the connections that others open to the Pod, and those that it opens.
parity: pkg/agent/controller/l7flowexporter, pkg/agent/openflow/pod_connectivity.go trafficControlMarkFlows (priority)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

import msgspec

from antrea.apis import core
from antrea.apis.annotation import L7_EXPORT
from antrea.engine import Act, Unit
from antrea.facts.fact import Fact
from antrea.facts.ovs import OvsPort, PodInterface
from antrea.features.framework.admission import OF_THIS_NODE, Watched
from antrea.features.framework.agent_feature import AgentFeature
from antrea.host.link import Link
from antrea.host.ovs_port import TYPE_KEY, Port
from antrea.openflow.action import (
    CT_IPV6_DST,
    CT_NW_DST,
    CT_TP_DST,
    IP_DST,
    IPV6_DST,
    TCP_DST,
    UDP_DST,
    goto,
    move,
    output,
)
from antrea.openflow.cookie import Category
from antrea.openflow.fields import (
    NOT_HAIRPIN_CT_MARK,
    OUTPUT_TO_OF_PORT_REG_MARK,
    TARGET_OF_PORT,
    TRAFFIC_CONTROL_L7_EXPORT_REG_MARK,
    TRAFFIC_CONTROL_TARGET_OF_PORT,
)
from antrea.openflow.flow import Flow, flows_of
from antrea.openflow.match import ct_state, ct_udp_dst, in_port, tcp, tcp6, udp, udp6
from antrea.openflow.priority import Priority
from antrea.openflow.table import NEXT
from antrea.openflow.tables import OUTPUT, TRAFFIC_CONTROL
from antrea.rank import Rank

if TYPE_CHECKING:
    from collections.abc import Iterator

    from antrea.engine import Facts
    from antrea.openflow.field import Match

DIRECTIONS: Final = ("ingress", "egress", "both")
MAX_LENGTH: Final = 64
"""Maximum number of characters of a value that are kept, for an Event."""


class RequestedPod(Fact, frozen=True):
    """An annotated Pod of this Node."""

    namespace: str
    name: str
    uid: str
    value: str

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"


class RequestedNamespace(Fact, frozen=True):
    """A Namespace with its annotation."""

    name: str
    value: str
    """Value; empty without the annotation."""

    @property
    def key(self) -> str:
        return self.name


def requested_pod(pod: core.Pod) -> RequestedPod | None:
    """Make the row; None without the annotation, and for Pods in the host network, which have no port."""
    meta = pod.metadata
    value = meta.annotations.get(L7_EXPORT)
    if value is None or pod.spec.host_network:
        return None
    return RequestedPod(meta.namespace, meta.name, meta.uid, value[:MAX_LENGTH])


def requested_namespace(namespace: core.Namespace) -> RequestedNamespace:
    """Make the row of a Namespace."""
    return RequestedNamespace(
        namespace.metadata.name, namespace.metadata.annotations.get(L7_EXPORT, "")[:MAX_LENGTH]
    )


def direction(facts: Facts, pod: str) -> str:
    """Connections to the Pod, from it, or both, as its annotation or else that of its Namespace asks; empty: none.

    parity: pkg/agent/controller/l7flowexporter (the Pod's comes first; capitals do not matter)
    """
    row: RequestedPod | RequestedNamespace | None = facts.get(RequestedPod, pod)
    row = row or facts.get(RequestedNamespace, pod.partition("/")[0])
    value = row.value.lower() if row else ""
    return value if value in DIRECTIONS else ""


GATE: Final = "L7FlowExporter"
TAP: Final = "antrea-l7-flow0"
"""Port other than those of the L7 engine of policies, which forwards what comes to it."""
PORT_TYPE: Final = "l7-flow-export"
"""antrea-type of the port."""
FIRST, ANSWER = ct_state("-rpl-inv+trk"), ct_state("+rpl-inv+trk")
"""Packets of the end that has opened a connection, and of the other one. OVS reads the address that the client has sent to of
valid connections alone, and a match has to state that."""
VALID: Final = ct_state("-inv+trk")
ENDS: Final = (
    (tcp, CT_NW_DST, IP_DST, TCP_DST),
    (tcp6, CT_IPV6_DST, IPV6_DST, TCP_DST),
    (udp, CT_NW_DST, IP_DST, UDP_DST),
    (udp6, CT_IPV6_DST, IPV6_DST, UDP_DST),
)
"""Fields with the client's destination by protocol, each before the one that gets it."""
DNS_PORT: Final = 53
flow = flows_of(Category.POD_CONNECTIVITY)


class RequestEngine(msgspec.Struct, frozen=True):
    """Entry: the engine runs while it is wanted."""

    rank: ClassVar[int] = Rank.REPORT
    category: ClassVar[int] = 0
    key: ClassVar[str] = "engine"


class RecordWrongDirection(Act, frozen=True):
    """Event on a Pod whose annotation has no effect."""

    namespace: str
    name: str
    uid: str
    value: str


def export_port(facts: Facts, pod: PodInterface) -> Iterator[Port | Link | RequestEngine]:
    """Yield the entries that all such Pods share, while there is one."""
    if direction(facts, pod.pod):
        yield Port(name=TAP, type="internal", external_ids=((TYPE_KEY, PORT_TYPE),), no_flood=True)
        yield Link(TAP, 0)
        yield RequestEngine()


def copy_flows(facts: Facts, pod: PodInterface) -> Iterator[Flow]:
    """Mark packets of its connections, and send copies of marked packets to the port.

    Below those of diversions; packets that policies judge by application protocols go to the L7 engine alone.
    """
    wanted = direction(facts, pod.pod)
    target = facts.get(OvsPort, TAP) if wanted else None
    if target is None or target.type != PORT_TYPE:
        return
    then = [
        TRAFFIC_CONTROL_TARGET_OF_PORT(target.ofport).load,
        TRAFFIC_CONTROL_L7_EXPORT_REG_MARK.load,
        goto(NEXT),
    ]
    for match in packets(pod, wanted):
        tracked_match = (*match, NOT_HAIRPIN_CT_MARK.match)
        for protocol in (tcp, tcp6):
            yield flow(TRAFFIC_CONTROL, Priority.LOW, *tracked_match, protocol, then=then)
        for protocol in (udp, udp6):
            yield flow(
                TRAFFIC_CONTROL, Priority.LOW, *tracked_match, protocol, ct_udp_dst(DNS_PORT), then=then
            )
    marked = (OUTPUT_TO_OF_PORT_REG_MARK.match, TRAFFIC_CONTROL_L7_EXPORT_REG_MARK.match)
    out, copied = output(TARGET_OF_PORT), output(TRAFFIC_CONTROL_TARGET_OF_PORT)
    for protocol, asked_for, address, port in ENDS:
        back = [move(asked_for, address), move(CT_TP_DST, port)]
        yield flow(OUTPUT, Priority.HIGH + 1, *marked, protocol, FIRST, then=[out, *back, copied])
        yield flow(OUTPUT, Priority.HIGH + 1, *marked, protocol, ANSWER, then=[out, copied])


def packets(pod: PodInterface, wanted: str) -> Iterator[tuple[Match, ...]]:
    """Yield matches of connections to the Pod, from it, or both."""
    to, by = TARGET_OF_PORT(pod.ofport).match, in_port(pod.ofport)
    if wanted == "both":
        yield from ((to, VALID), (by, VALID))
    else:
        first, answer = (to, by) if wanted == "ingress" else (by, to)
        yield from ((first, FIRST), (answer, ANSWER))


def wrong_direction(_: Facts, pod: RequestedPod) -> Iterator[RecordWrongDirection]:
    """Yield an Event if the value is invalid."""
    if pod.value.lower() not in DIRECTIONS:
        yield RecordWrongDirection(
            pod.key,
            (pod.uid, pod.value),
            namespace=pod.namespace,
            name=pod.name,
            uid=pod.uid,
            value=pod.value,
        )


FEATURES = (
    AgentFeature(
        name=GATE,
        gate=GATE,
        within="FlowExporter",
        tables=(TRAFFIC_CONTROL,),
        watched=(
            Watched("/api/v1/pods", core.Pod, RequestedPod, requested_pod, field_selector=OF_THIS_NODE),
            Watched("/api/v1/namespaces", core.Namespace, RequestedNamespace, requested_namespace),
        ),
        units=(
            Unit(PodInterface, export_port),
            Unit(PodInterface, copy_flows),
            Unit(RequestedPod, wrong_direction),
        ),
        category=Category.POD_CONNECTIVITY,
        sweep_after=(RequestedPod, RequestedNamespace),
        replay_after=(RequestedPod, RequestedNamespace),
        own_ports=frozenset({PORT_TYPE}),
    ),
)
