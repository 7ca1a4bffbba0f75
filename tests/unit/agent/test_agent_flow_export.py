"""The part that exports records: what it shows, and that the API takes what it shows."""

from __future__ import annotations

import asyncio
import itertools
import math
import threading
import time
from typing import TYPE_CHECKING

import msgspec
import pytest
from agent_context import agent_parts

from antrea.agent.feature_set import folders_on
from antrea.apis.crd.info import AgentCondition
from antrea.config.agent import AgentConfig
from antrea.engine import Facts
from antrea.errors import Unavailable
from antrea.features.flow_export.agent_part.part import FlowExportPart, next_poll
from antrea.features.framework.agent_part import idle_metrics
from antrea.openflow.tracked_connection import HostOriginal, TrackedConnection

if TYPE_CHECKING:
    from collections.abc import Sequence

    from antrea.openflow.tracked_connection import Key


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
    """Records have whole seconds: the rate of polls that drift is wrong by a second now and then.

    Polls that drift are never nearer than what one takes and a period; on a busy machine some others are not, either.
    """
    begun: list[float] = []

    def nearest() -> float:
        return min((later - earlier for earlier, later in itertools.pairwise(begun)), default=math.inf)

    async def look(_: FlowExportPart) -> None:
        begun.append(time.monotonic())
        await asyncio.sleep(0.15)

    found = part(enable=True)
    monkeypatch.setattr(found, "_poll_seconds", 0.2)
    monkeypatch.setattr(FlowExportPart, "_poll_once", look)
    polling = asyncio.create_task(found._poll())
    async with asyncio.timeout(20):
        while nearest() >= 0.25:  # noqa: ASYNC110 (time)
            await asyncio.sleep(0.01)
    polling.cancel()
    await asyncio.gather(polling, return_exceptions=True)


def test_a_poll_that_takes_longer_than_a_period_is_followed_by_a_pause() -> None:
    assert next_poll(10, 1, 10.9) == 11
    assert next_poll(10, 1, 11.1) == 12.1


FROM_HOST = TrackedConnection(
    (6, "10.1.0.1", 61000, "10.1.0.6", 80, 0), "10.1.0.6", 80, "10.1.0.1", 61000, 1, 60, 1, 60, "", 2, 0, "ESTABLISHED",
)  # fmt: skip


async def test_the_loop_goes_on_while_the_kernel_is_asked_for_clients(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loop_goes_on = threading.Event()

    def asked(keys: Sequence[Key]) -> list[HostOriginal | None]:
        assert loop_goes_on.wait(5)
        return [HostOriginal("198.51.100.7", 40000, "192.0.2.1", 30001) for _ in keys]

    monkeypatch.setattr("antrea.features.flow_export.agent_part.part.host_originals", asked)
    found = part(enable=True)
    asyncio.get_running_loop().call_later(0.05, loop_goes_on.set)
    await found._ask_host([FROM_HOST])
    assert found._originals.with_original(FROM_HOST).client == ("198.51.100.7", 40000)


async def test_a_connection_keeps_its_source_while_the_kernel_does_not_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refused(_: Sequence[Key]) -> list[HostOriginal | None]:
        raise Unavailable("connections of the kernel: timed out")

    monkeypatch.setattr("antrea.features.flow_export.agent_part.part.host_originals", refused)
    found = part(enable=True)
    await found._ask_host([FROM_HOST])
    assert found._originals.with_original(FROM_HOST) == FROM_HOST
    assert found._originals.lacking([FROM_HOST]) == [FROM_HOST]
