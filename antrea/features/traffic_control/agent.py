"""TrafficControl in the agent: ports on the bridge, and flows that mirror packets to them or redirect packets by them.

Redirect fails closed: while its target is not on the bridge, packets of its Pods are dropped. Upstream's flows continue to name
the number of a port that is gone.
parity: pkg/agent/openflow/pod_connectivity.go trafficControlMarkFlows, trafficControlCommonFlows
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from antrea.apis import core
from antrea.apis.crd.traffic_control import TrafficControl
from antrea.config.agent import AgentConfig
from antrea.engine import Act, Unit
from antrea.facts.node import LocalLink
from antrea.facts.ovs import OvsPort, PodInterface
from antrea.features.framework.admission import OF_THIS_NODE, Watched
from antrea.features.framework.agent_feature import AgentFeature
from antrea.features.framework.diversion import ways
from antrea.features.traffic_control.port import PORT_TYPE
from antrea.features.traffic_control.row import (
    PATH,
    SteeredNamespace,
    SteeredPod,
    Steering,
    selections,
    steered_namespace,
    steered_pod,
    steering,
    steerings_of,
)
from antrea.features.traffic_control.switch_port import CONTROL_PORTS, obstacle, usable
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
    from antrea.openflow.field import Action, Match

GATE = "TrafficControl"
REDIRECTED, CLOSED = Priority.NORMAL + 2, Priority.NORMAL + 4
"""Priorities where the two ends of a packet are Pods of one Node: Redirect before Mirror, and then the sender's TrafficControl.
"""
flow = flows_of(Category.POD_CONNECTIVITY)


class RecordTrouble(Act, frozen=True):
    """Event on a TrafficControl that this Node does not realize as it is."""

    about: Steering
    reason: str
    message: str


# units


def control_flows(facts: Facts, row: Steering) -> Iterator[Flow]:
    """Yield flows that all TrafficControls share, and the path of packets that come back."""
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
    """Yield flows for packets of one Pod, by the oldest TrafficControl that selects it."""
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
    """Return the TrafficControl that counts for a Pod; None while it is unknown which does."""
    first = next(iter(selections(facts, pod.pod)), None)
    return first.row if first and first.is_certain else None


def closed_of(facts: Facts, pod: PodInterface) -> Iterator[Match]:
    """Packets of a Pod that would bypass an inspection.

    Its target is not there, or labels are not known that decide whether a Redirect counts for this Pod. A Redirect that is
    known not to select the Pod closes nothing, whatever else is unknown.
    """
    closed: dict[Match, None] = {}
    is_certain = True
    for row, selects in selections(facts, pod.pod):
        is_certain = is_certain and selects
        if row.redirects and not (is_certain and usable(facts, row.target)):
            closed |= dict.fromkeys(ways(pod, row.direction))
        if selects:
            break
    yield from closed


def overlaps(facts: Facts, pod: PodInterface) -> Iterator[RecordTrouble]:
    """An Event for each TrafficControl that the Pod does not follow."""
    first, *others = steerings_of(facts, pod.pod) or (None,)
    for row in others:
        if first is not None and row is not None:
            message = f"Pod {pod.pod} follows the older TrafficControl {first.name}: change appliedTo of one of them"
            yield RecordTrouble(f"{row.name}/{pod.pod}", first.name, row, "TrafficControlOverlapped", message)


def missing_ports(facts: Facts, row: Steering) -> Iterator[RecordTrouble]:
    """An Event for each port that cannot be on the bridge, where Pods follow the TrafficControl."""
    facts.need(OvsPort, facts.need(AgentConfig).host_gateway)
    missing = [
        (port, why) for port in (row.target, row.returned) if port and (why := obstacle(facts, row, port))
    ]
    if not missing or row not in (steering_of(facts, pod) for pod in facts.all(PodInterface)):
        return
    for port, why in missing:
        lost = "dropped" if row.redirects else "not copied"
        outcome = (
            f"packets of its Pods are {lost}" if port == row.target else "redirected packets do not come back"
        )
        message = f"Port {port.name!r}: {why}: {outcome}"
        yield RecordTrouble(
            f"{row.name}/port/{port.name}", (row.uid, why), row, "TrafficControlPortMissing", message
        )


FEATURE = AgentFeature(
    name=GATE,
    gate=GATE,
    tables=(TRAFFIC_CONTROL,),
    watched=(
        Watched(PATH, TrafficControl, Steering, steering),
        Watched("/api/v1/pods", core.Pod, SteeredPod, steered_pod, field_selector=OF_THIS_NODE),
        Watched("/api/v1/namespaces", core.Namespace, SteeredNamespace, steered_namespace),
    ),
    units=(
        CONTROL_PORTS,
        Unit(Steering, control_flows),
        Unit(PodInterface, mark_flows),
        Unit(PodInterface, overlaps),
        Unit(Steering, missing_ports),
    ),
    category=Category.POD_CONNECTIVITY,
    sweep_after=(Steering, SteeredPod, SteeredNamespace, LocalLink),
    replay_after=(Steering, SteeredPod, SteeredNamespace, LocalLink),
    own_ports=frozenset({PORT_TYPE}),
)
FEATURES = (FEATURE,)
