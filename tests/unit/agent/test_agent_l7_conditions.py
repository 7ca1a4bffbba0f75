"""Conditions of the L7 engines are ones that AntreaAgentInfo can have: another name would end the agent."""

from __future__ import annotations

import msgspec
import pytest

from antrea.apis.crd.info import AgentCondition
from antrea.features.l7_flow_export.agent_part import CONDITION


@pytest.mark.parametrize("name", [CONDITION, "L7EngineDown"])
def test_a_condition_of_an_engine_is_one_of_the_schema(name: str) -> None:
    row = {
        "type": name,
        "status": "True",
        "lastHeartbeatTime": "2026-01-01T00:00:00Z",
        "reason": name,
        "message": "",
    }
    assert msgspec.convert(row, AgentCondition).type == name
