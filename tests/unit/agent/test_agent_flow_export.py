"""The part that exports records: what it shows, and that the API takes what it shows."""

from __future__ import annotations

import msgspec
import pytest
from agent_context import agent_parts

from antrea.agent.feature_set import folders_on
from antrea.agent.flow_export.part import FlowExportPart
from antrea.agent.part import idle_metrics
from antrea.apis.crd.info import AgentCondition
from antrea.config.agent import AgentConfig
from antrea.engine import Facts


def part(*, enable: bool) -> FlowExportPart:
    text = {"featureGates": {"FlowExporter": True}, "flowExporter": {"enable": enable}}
    parts = agent_parts(Facts(), msgspec.convert(text, AgentConfig))
    return next(one for one in parts if isinstance(one, FlowExportPart))


def test_the_condition_of_a_collector_that_is_away_is_one_that_the_api_takes() -> None:
    [(name, check)] = part(enable=True).conditions().items()
    assert check() == "not connected yet"
    found = {"type": name, "status": "True", "lastHeartbeatTime": ""}
    assert msgspec.convert(found, AgentCondition).type == "FlowCollectorUnreachable"


@pytest.mark.parametrize("enable", [False, True])
def test_it_has_a_condition_while_it_exports_alone_and_its_metrics_always(enable: bool) -> None:
    found = part(enable=enable)
    assert bool(found.conditions()["FlowCollectorUnreachable"]()) == enable
    assert "antrea_agent_flow_collector_reconnection_count 0" in found.metrics()


def test_metrics_that_dashboards_expect_are_0_while_the_gate_is_off() -> None:
    assert "antrea_agent_denied_connection_count 0\n" in idle_metrics(folders_on(()))
    assert "antrea_agent_denied_connection_count" not in idle_metrics(folders_on(("FlowExporter",)))
