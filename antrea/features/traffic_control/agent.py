"""TrafficControl in the agent: ports on the bridge, and flows that mirror packets to them or redirect packets by them.

Redirect fails closed: while its target is not on the bridge, packets of its Pods are dropped. Upstream's flows go on to
name the number of a port that is gone.
parity: pkg/agent/openflow/pod_connectivity.go trafficControlMarkFlows, trafficControlCommonFlows
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from antrea.apis import core
from antrea.apis.crd.traffic_control import TrafficControl
from antrea.config.agent import AgentConfig
from antrea.engine import Act, Unit
from antrea.facts.node import LocalLink, Transport
from antrea.facts.ovs import OvsPort, PodInterface
from antrea.features.framework.admission import Watched
from antrea.features.framework.agent_feature import AgentFeature
from antrea.features.pod_connectivity.tunnel import TUNNEL_PORT
from antrea.features.traffic_control.port import PORT_TYPE
from antrea.features.traffic_control.row import (
    PATH,
    SteeredNamespace,
    SteeredPod,
    Steering,
    is_known,
    steered_namespace,
    steering,
    steerings_of,
)
from antrea.host.link import Link
from antrea.host.ovs_port import INDEX_KEY
from antrea.host.tunnel_neighbour import TunnelNeighbour, next_hop
from antrea.openflow.action import DROP, goto, output
from antrea.openflow.cookie import Category
from antrea.openflow.fields import (
    FROM_TC_RETURN_REG_MARK,
    OUTPUT_TO_OF_PORT_REG_MARK,
    TARGET_OF_PORT,
    TRAFFIC_CONTROL_MIRROR_REG_MARK,
    TRAFFIC_CONTROL_REDIRECT_REG_MARK,
    TRAFFIC_CONTROL_TARGET_OF_PORT,
)
from antrea.openflow.flow import Flow, flows_of
from antrea.openflow.match import in_port
from antrea.openflow.priority import Priority
from antrea.openflow.table import NEXT, Stage
from antrea.openflow.tables import CLASSIFIER, OUTPUT, TRAFFIC_CONTROL

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from antrea.engine import Facts
    from antrea.host.ovs_port import Port
    from antrea.openflow.field import Action, Match

GATE = "TrafficControl"
DEVICE_NAME_MAX = 15
"""Octets (linux/if.h IFNAMSIZ, without its end)."""
REDIRECTED, CLOSED = Priority.NORMAL + 2, Priority.NORMAL + 4
"""Where the two ends of a packet are Pods of one Node: Redirect before Mirror, and then what its sender's TrafficControl wants."""
flow = flows_of(Category.POD_CONNECTIVITY)


class RecordOverlap(Act, frozen=True):
    """Write an Event on a TrafficControl that a Pod does not follow because of an older one."""

    name: str
    uid: str
    message: str


def taken(facts: Facts, port: Port) -> bool:
    """Whether the name cannot be that of a TrafficControl's port: it is the Node's, the agent's or a Pod's."""
    config, link = facts.need(AgentConfig), facts.need(Transport)
    found = facts.get(OvsPort, port.name)
    own = {config.host_gateway, config.ovs_bridge, TUNNEL_PORT, link.interface, link.device, "lo"}
    other = found is not None and found.type != PORT_TYPE
    return port.name in own or other or bool(facts.get(PodInterface, port.name))


def usable(facts: Facts, port: Port | None) -> OvsPort | None:
    """The port as it stands on the bridge; None while it does not."""
    found = facts.get(OvsPort, port.name) if port else None
    return found if found is not None and found.type == PORT_TYPE else None


# units


def control_ports(facts: Facts, row: Steering) -> Iterator[Port | Link | TunnelNeighbour]:
    """Target and return port; those of several TrafficControls that are the same are one."""
    facts.need(OvsPort, facts.need(AgentConfig).host_gateway)  # the ports of the bridge are known
    for port in (row.target, row.returned):
        if port and 0 < len(port.name.encode()) <= DEVICE_NAME_MAX and not taken(facts, port):
            if port.type == "":
                yield from device_port(facts, port)
                continue
            yield port
            if port.type == "internal":
                yield Link(port.name, 0, category=int(Category.POD_CONNECTIVITY))
            yield from remote_end(facts, port)


def remote_end(facts: Facts, port: Port) -> Iterator[TunnelNeighbour]:
    """OVS in user space sends to the remote end of a tunnel what it has the MAC address for."""
    link, remote = facts.need(Transport), dict(port.options).get("remote_ip")
    if remote and link.device != link.interface and (hop := next_hop(link, remote)):
        yield TunnelNeighbour(link.device, hop)


def device_port(facts: Facts, port: Port) -> Iterator[Port]:
    """While the device exists: on the userspace datapath a port outlives its device, and does not see the next one of that name."""
    if link := facts.get(LocalLink, port.name):
        ids = (*port.external_ids, (INDEX_KEY, str(link.index)))
        yield msgspec.structs.replace(port, external_ids=ids)


def control_flows(facts: Facts, row: Steering) -> Iterator[Flow]:
    """What all TrafficControls share, and the way of packets that come back."""
    marked = OUTPUT_TO_OF_PORT_REG_MARK.match
    copied = [output(TARGET_OF_PORT), output(TRAFFIC_CONTROL_TARGET_OF_PORT)]
    yield flow(OUTPUT, Priority.HIGH + 1, marked, TRAFFIC_CONTROL_MIRROR_REG_MARK.match, then=copied)
    sent = [output(TRAFFIC_CONTROL_TARGET_OF_PORT)]
    yield flow(OUTPUT, Priority.HIGH + 1, marked, TRAFFIC_CONTROL_REDIRECT_REG_MARK.match, then=sent)
    yield flow(
        TRAFFIC_CONTROL, Priority.HIGH, marked, FROM_TC_RETURN_REG_MARK.match, then=[goto(Stage.OUTPUT)]
    )
    if back := usable(facts, row.returned):
        then = [FROM_TC_RETURN_REG_MARK.load, goto(Stage.ROUTING)]
        yield flow(CLASSIFIER, Priority.NORMAL, in_port(back.ofport), then=then)


def mark_flows(facts: Facts, pod: PodInterface) -> Iterator[Flow]:
    """What happens to packets of one Pod: that which the oldest TrafficControl wants that selects it."""
    closed = tuple(closed_of(facts, pod))
    yield from (flow(TRAFFIC_CONTROL, CLOSED, match, then=DROP) for match in closed)
    row = steering_of(facts, pod)
    target = usable(facts, row.target) if row else None
    if row is None or target is None:
        return
    mark = TRAFFIC_CONTROL_REDIRECT_REG_MARK if row.redirects else TRAFFIC_CONTROL_MIRROR_REG_MARK
    then: Sequence[Action] = [TRAFFIC_CONTROL_TARGET_OF_PORT(target.ofport).load, mark.load, goto(NEXT)]
    priority = REDIRECTED if row.redirects else Priority.NORMAL
    for match in ways(pod, row.direction):
        yield flow(TRAFFIC_CONTROL, priority + (match == in_port(pod.ofport)), match, then=then)


def steering_of(facts: Facts, pod: PodInterface) -> Steering | None:
    """The TrafficControl that counts for a Pod; None while it is not known which does."""
    return next(iter(steerings_of(facts, pod.pod)), None) if is_known(facts, pod.pod) else None


def closed_of(facts: Facts, pod: PodInterface) -> Iterator[Match]:
    """Packets of a Pod that would bypass an inspection: its target is not there, or the Pod's labels are not known."""
    if not is_known(facts, pod.pod):
        if any(row.redirects for row in facts.all(Steering)):
            yield from ways(pod)
    elif (row := steering_of(facts, pod)) and row.redirects and usable(facts, row.target) is None:
        yield from ways(pod, row.direction)


def closed_ways(facts: Facts) -> Iterator[Match]:
    """The same of all Pods."""
    if facts.all(Steering):
        for pod in facts.all(PodInterface):
            yield from closed_of(facts, pod)


def ways(pod: PodInterface, direction: str = "Both") -> Iterator[Match]:
    """Packets to a Pod (Ingress), and from it (Egress)."""
    if direction != "Egress":
        yield TARGET_OF_PORT(pod.ofport).match
    if direction != "Ingress":
        yield in_port(pod.ofport)


def overlaps(facts: Facts, pod: PodInterface) -> Iterator[RecordOverlap]:
    """An Event for each TrafficControl that the Pod does not follow."""
    first, *others = steerings_of(facts, pod.pod) or (None,)
    for row in others:
        if first is not None and row is not None:
            message = f"Pod {pod.pod} follows the older TrafficControl {first.name}: change appliedTo of one of them"
            yield RecordOverlap(
                f"{row.name}/{pod.pod}", first.name, name=row.name, uid=row.uid, message=message
            )


FEATURE = AgentFeature(
    name=GATE,
    gate=GATE,
    tables=(TRAFFIC_CONTROL,),
    watched=(
        Watched(PATH, TrafficControl, Steering, steering),
        Watched("/api/v1/namespaces", core.Namespace, SteeredNamespace, steered_namespace),
    ),
    units=(
        Unit(Steering, control_ports),
        Unit(Steering, control_flows),
        Unit(PodInterface, mark_flows),
        Unit(PodInterface, overlaps),
    ),
    category=Category.POD_CONNECTIVITY,
    sweep_after=(Steering, SteeredPod, SteeredNamespace, LocalLink),
    replay_after=(Steering, SteeredPod, SteeredNamespace, LocalLink),
    own_ports=frozenset({PORT_TYPE}),
)
FEATURES = (FEATURE,)
