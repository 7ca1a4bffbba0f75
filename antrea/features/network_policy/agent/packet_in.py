"""Packets from rules to the agent: what the switch records on them, and the meter that limits them.

A rule that denies sends its packets to a group, which lets one copy be counted and dropped and sends the other to the agent;
registers hold their origin and what the agent does with them.
parity: pkg/agent/openflow/network_policy.go initGroups, initLoggingFlows
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from antrea.config.agent import AgentConfig
from antrea.facts.flow_destination import FlowDestination
from antrea.features.framework.agent_feature import RealizedPipeline
from antrea.features.framework.gate import EnabledGates
from antrea.openflow import action
from antrea.openflow.action import controller, goto, resubmit
from antrea.openflow.cookie import Category
from antrea.openflow.fields import (
    DISPOSITION_ALLOW_REG_MARK,
    DISPOSITION_DROP_REG_MARK,
    OUTPUT_TO_CONTROLLER_REG_MARK,
    PACKET_IN_LOGGING_REG_MARK,
    PACKET_IN_OPERATION,
    PACKET_IN_REJECT_REG_MARK,
    PACKET_IN_STORE_DENY_REG_MARK,
    PACKET_IN_TABLE,
    PacketIn,
)
from antrea.openflow.flow import Flow, flows_of
from antrea.openflow.group import Bucket, Group, GroupType
from antrea.openflow.meter import Meter, PacketInMeter, packet_in_meter
from antrea.openflow.priority import Priority
from antrea.openflow.tables import DNAT, EGRESS_METRIC, EGRESS_RULE, INGRESS_METRIC, INGRESS_RULE, OUTPUT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from antrea.engine import Facts
    from antrea.openflow.field import Action
    from antrea.openflow.table import Table

GROUPS = "group"
"""Pool of the numbers of groups, of all features."""
LOG, REJECT = PACKET_IN_LOGGING_REG_MARK.value, PACKET_IN_REJECT_REG_MARK.value
STORE = PACKET_IN_STORE_DENY_REG_MARK.value
ALL = LOG | REJECT | STORE
NEXT_TABLES = (EGRESS_RULE, EGRESS_METRIC, INGRESS_RULE, INGRESS_METRIC, DNAT)
"""Tables where the other copy continues."""
flow = flows_of(Category.NETWORK_POLICY)


def load_operations(facts: Facts, table: Table, operations: int) -> list[Action]:
    """Mark the packet with what the agent does with it, and which table's rule requests that; waits for the pipeline."""
    realized = facts.get(RealizedPipeline)
    number = realized.pipeline.id(table.name) if realized else 0
    return [PACKET_IN_OPERATION(operations).load, PACKET_IN_TABLE(number).load]


def export_operation(facts: Facts) -> int:
    """Return the operation that has denied connections exported; 0 while no flow records are exported."""
    gates, config = facts.get(EnabledGates), facts.get(AgentConfig)
    if not gates or not config or "FlowExporter" not in gates:
        return 0
    return STORE if config.flow_exporter.enable or facts.all(FlowDestination) else 0


def drop_and_report(facts: Facts, table: Table, operations: int) -> tuple[Action, ...]:
    """Drop what no rule of Kubernetes allows, and send a copy to the agent."""
    operation, where = load_operations(facts, table, operations)
    mark, to_agent = DISPOSITION_DROP_REG_MARK.load, OUTPUT_TO_CONTROLLER_REG_MARK.load
    return (mark, operation, to_agent, where, goto(OUTPUT))


def report_allowed(facts: Facts, table: Table) -> list[Action]:
    """Send a copy to the agent after a flow that lets the packet pass."""
    marks = (DISPOSITION_ALLOW_REG_MARK, OUTPUT_TO_CONTROLLER_REG_MARK)
    return [*(mark.load for mark in marks), *load_operations(facts, table, LOG), goto(OUTPUT)]


def copy_to_agent(facts: Facts, onward: Table) -> Action:
    """Send the packet to the agent, and to `onward`, which is one of `NEXT_TABLES`."""
    return action.group(_number(facts, onward))


def _number(facts: Facts, onward: Table) -> int:
    return facts.id(GROUPS, f"policy {onward.name}")


# units


def packet_in_entries(facts: Facts, realized: RealizedPipeline) -> Iterator[Flow | Group | Meter]:
    """Yield entries of every Node, with or without policies."""
    config = facts.get(AgentConfig)
    if config is None:
        return
    category = Category.NETWORK_POLICY
    to_agent = (OUTPUT_TO_CONTROLLER_REG_MARK.load, resubmit(OUTPUT))
    for onward in filter(realized.pipeline.has, NEXT_TABLES):
        buckets = (Bucket(0, (resubmit(onward),)), Bucket(1, to_agent))
        yield Group(_number(facts, onward), GroupType.ALL, buckets, category)
    yield packet_in_meter(PacketInMeter.NETWORK_POLICY, config.packet_in_rate, category)
    for operations in range(1, ALL + 1):
        yield flow(
            OUTPUT,
            Priority.NORMAL,
            PACKET_IN_OPERATION(operations).match,
            OUTPUT_TO_CONTROLLER_REG_MARK.match,
            then=[
                action.meter(PacketInMeter.NETWORK_POLICY),
                controller(PacketIn.NETWORK_POLICY, operations),
            ],
        )
