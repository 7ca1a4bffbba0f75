"""Bandwidth of an Egress: a meter on the Node that has its address drops what all its Pods together send above it.

Among Egresses that share an address, which is one meter, the oldest with a bandwidth decides, then the first by name.
parity: pkg/agent/openflow/pipeline.go egressQoSFlow, pkg/agent/controller/egress/egress_controller.go realizeEgressQoS
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from antrea.apis.crd.part import Condition
from antrea.config.agent import AgentConfig
from antrea.engine import Unit
from antrea.facts.egress import Egress, EgressLimit, EgressMark
from antrea.facts.node import ThisNode
from antrea.features.egress.agent.allocated import unallocated_reason
from antrea.features.egress.agent.snat_mark import POOL
from antrea.features.egress.spec import KILO, MAX_KILOBITS
from antrea.features.framework import packet_mark
from antrea.features.framework.agent_feature import AgentFeature, RealizedPipeline
from antrea.features.framework.gate import EnabledGates
from antrea.features.framework.quantity import whole
from antrea.openflow import action
from antrea.openflow.action import goto
from antrea.openflow.cookie import Category
from antrea.openflow.fields import TO_GATEWAY_REG_MARK
from antrea.openflow.flow import Flow, flows_of
from antrea.openflow.meter import Meter, Rate
from antrea.openflow.priority import Priority
from antrea.openflow.table import Stage
from antrea.openflow.tables import EGRESS_QOS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from antrea.apis.crd.egress import Bandwidth
    from antrea.engine import Facts
    from antrea.openflow.field import Action

GATE: Final = "EgressTrafficShaping"
LIMITED: Final = "BandwidthLimited"
"""Type of a condition beyond upstream's."""
flow = flows_of(Category.EGRESS)


def limit_of(bandwidth: Bandwidth | None) -> EgressLimit | None:
    """Convert to the meter's units; None also for an invalid quantity, which admission refuses."""
    if bandwidth is None:
        return None
    try:
        rate, burst = whole(bandwidth.rate) // KILO, whole(bandwidth.burst) // KILO
    except ValueError:
        return None
    return EgressLimit(max(0, min(rate, MAX_KILOBITS)), max(0, min(burst, MAX_KILOBITS)))


def limited(facts: Facts) -> tuple[Action, ...]:
    """Actions that output by the gateway, through the meters if there are any."""
    return (TO_GATEWAY_REG_MARK.load, goto(EGRESS_QOS) if _shapes(facts) else goto(Stage.SWITCHING))


def pass_flow(facts: Facts, _: ThisNode) -> Iterator[Flow]:
    """Yield the flow for marks without a limit."""
    if _shapes(facts):
        yield flow(EGRESS_QOS, Priority.LOW, then=[goto(Stage.SWITCHING)])


def limit_entries(facts: Facts, mark: EgressMark) -> Iterator[Meter | Flow]:
    """Yield the meter, whose number is the mark, and the flow that uses it."""
    config, chosen = facts.get(AgentConfig), _chosen(facts, mark.ip)
    if config is None or chosen is None or chosen.limit is None or not _shapes(facts):
        return
    number, limit = facts.id(POOL, mark.ip), chosen.limit
    yield Meter(number, Rate.KBPS, limit.rate, limit.burst, Category.EGRESS)
    yield flow(
        EGRESS_QOS,
        Priority.NORMAL,
        packet_mark.match_egress_mark(config.ovs_datapath_type, number),
        then=[action.meter(number), goto(Stage.SWITCHING)],
    )


def limit_conditions(facts: Facts, egress: Egress, node: str) -> tuple[Condition, ...]:
    """Return the condition on the bandwidth at `node`, this one, which has the address; without a bandwidth, its removal."""
    if egress.limit is None:
        return (Condition(LIMITED),) if egress.judged else ()
    reason, message = _why_not(facts, egress, node)
    if reason:
        return (Condition(LIMITED, "False", reason=reason, message=message),)
    rate = f"{egress.limit.rate} kbit/s with bursts of {egress.limit.burst} kbit on Node {node}"
    return (Condition(LIMITED, "True", reason="Limited", message=rate),)


def _why_not(facts: Facts, egress: Egress, node: str) -> tuple[str, str]:
    """Return reason and message; empty if it is limited."""
    gates, chosen = facts.get(EnabledGates), _chosen(facts, egress.ip)
    if gates is None or GATE not in gates:
        return "FeatureDisabled", f"feature gate {GATE} of the agent is off on Node {node}"
    if not _shapes(facts):
        return "MetersUnsupported", f"the datapath of Node {node} has no meters"
    if why := facts.refusal(LIMITS, egress.ip):
        return "MeterRefused", f"the switch of Node {node} refuses the meter: {why}"
    if chosen and chosen.name != egress.name:
        return (
            "SharedAddress",
            f"Egress {chosen.name}, which is older, has the same address: its bandwidth counts",
        )
    return "", ""


def _chosen(facts: Facts, ip: str) -> Egress | None:
    limited = (egress for egress in facts.by(Egress, "ip", ip) if egress.limit)
    candidates = (egress for egress in limited if not unallocated_reason(facts, egress))
    return min(candidates, key=lambda egress: egress.precedence, default=None)


def _shapes(facts: Facts) -> bool:
    realized = facts.get(RealizedPipeline)
    return realized is not None and realized.pipeline.has(EGRESS_QOS)


LIMITS = Unit(EgressMark, limit_entries)
FEATURE = AgentFeature(
    name="EgressTrafficShaping",
    tables=(EGRESS_QOS,),
    gate=GATE,
    within="Egress",
    meters=True,
    units=(
        Unit(ThisNode, pass_flow),
        LIMITS,
    ),
)
