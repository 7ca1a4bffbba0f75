"""The part that exports records: what it shows, and that the API takes what it shows."""

from __future__ import annotations

import asyncio
import itertools
import time

import msgspec
import pytest
from agent_context import agent_parts

from antrea.agent.feature_set import folders_on
from antrea.agent.flow_export.part import FlowExportPart, next_poll
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


async def test_polls_come_at_a_fixed_rate_whatever_they_take(monkeypatch: pytest.MonkeyPatch) -> None:
    """Records have whole seconds: the rate of polls that drift is wrong by a second now and then."""
    begun: list[float] = []

    async def look(_: FlowExportPart) -> None:
        begun.append(time.monotonic())
        await asyncio.sleep(0.15)

    found = part(enable=True)
    monkeypatch.setattr(found, "_poll_seconds", 0.2)
    monkeypatch.setattr(FlowExportPart, "_look", look)
    polling = asyncio.create_task(found._poll())
    async with asyncio.timeout(20):
        while len(begun) < 6:  # noqa: ASYNC110 (time)
            await asyncio.sleep(0.01)
    polling.cancel()
    await asyncio.gather(polling, return_exceptions=True)
    assert min(later - earlier for earlier, later in itertools.pairwise(begun)) < 0.25


def test_a_poll_that_takes_longer_than_a_period_is_followed_by_a_pause() -> None:
    assert next_poll(10, 1, 10.9) == 11
    assert next_poll(10, 1, 11.1) == 12.1
