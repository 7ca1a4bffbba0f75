"""An agent begins with what antrea-controller said last, and keeps what it hears from then on."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, cast

import pytest

from antrea.agent import controller_state
from antrea.agent.cni.policy_gate import PolicyGate
from antrea.agent.controller_state import ControllerStateCache
from antrea.agent.feature_set import active
from antrea.apis import controlplane as cp
from antrea.apis.meta import ObjectMetadata
from antrea.engine import Facts
from antrea.facts.service import Service
from antrea.features.network_policy.agent.received import SentAppliedGroup, SentPolicy
from antrea.outside.controlplane.state_cache import CachedState, StateCacheFile

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from antrea.facts.fact import Fact
    from antrea.outside.controlplane.client import Controlplane

RULE = cp.NetworkPolicyRule(
    direction="Out",
    from_=cp.NetworkPolicyPeer(),
    to=cp.NetworkPolicyPeer(to_services=(cp.ServiceReference(name="web", namespace="ns"),)),
    enable_logging=False,
)
POLICY = SentPolicy(cp.NetworkPolicy(metadata=ObjectMetadata(name="u", uid="u"), rules=(RULE,)))
SERVICE = Service("ns", "web", ("10.96.0.10",), (("TCP", 80),))
OTHER = Service("ns", "other", ("10.96.0.11",), (("TCP", 80),))


class Controller:
    """What has been heard of it; None: nothing whole."""

    processed, trouble = 0.0, ""

    def __init__(self, rows: list[Fact] | None) -> None:
        self.listeners: list[Callable[[], None]] = []
        self._rows = rows

    def rows(self) -> list[Fact] | None:
        return self._rows


class File(StateCacheFile):
    """Tells when it was written."""

    written: asyncio.Event

    async def write(self, word: CachedState) -> None:
        await super().write(word)
        self.written.set()


@pytest.fixture(autouse=True)
def own_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controller_state, "FILE", tmp_path / "controller-state")
    monkeypatch.setattr(controller_state, "StateCacheFile", File)
    monkeypatch.setattr(File, "written", asyncio.Event(), raising=False)


@contextlib.asynccontextmanager
async def agent(
    rows: list[Fact] | None,
) -> AsyncIterator[tuple[Facts, Controller, PolicyGate, ControllerStateCache]]:
    """One that has begun."""
    facts, controller = Facts(), Controller(rows)
    word = PolicyGate(facts, controller, fail_open=False)
    memory = ControllerStateCache(facts, cast("Controlplane", controller), word, active({"Egress"}))
    running = asyncio.create_task(memory.run())
    await asyncio.sleep(0)
    try:
        yield facts, controller, word, memory
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def written(within: float = 60) -> bool:
    try:
        return await asyncio.wait_for(File.written.wait(), within)
    except TimeoutError:
        return False


async def test_what_was_kept_is_there_for_the_next_agent() -> None:
    async with agent([POLICY]) as (facts, controller, word, _):
        assert facts.all(SentPolicy) == []
        for row in (POLICY, SERVICE, OTHER):
            facts.put(row)
        word.earlier = frozenset({"u1"})
        controller.listeners[-1]()
        assert await written()
    async with agent(None) as (facts, _, word, _):
        assert facts.all(SentPolicy) == [POLICY]
        assert facts.all(Service) == [SERVICE]
        assert word.earlier == {"u1"}


async def test_the_file_of_an_earlier_version_is_renamed_and_read() -> None:
    async with agent([POLICY]) as (_, controller, gate, _):
        gate.earlier = frozenset({"u1"})
        controller.listeners[-1]()
        assert await written()
    controller_state.FILE.rename(controller_state.FILE.with_name("last-word"))
    async with agent(None) as (facts, _, gate, _):
        assert facts.all(SentPolicy) == [POLICY]
        assert gate.earlier == {"u1"}
    assert [path.name for path in controller_state.FILE.parent.iterdir()] == ["controller-state"]


async def test_the_file_of_an_earlier_version_does_not_replace_a_newer_one() -> None:
    controller_state.FILE.write_bytes(b"newer")
    controller_state.FILE.with_name("last-word").write_bytes(b"older")
    controller_state.adopt_former_file(controller_state.FILE)
    assert controller_state.FILE.read_bytes() == b"newer"
    assert not controller_state.FILE.with_name("last-word").exists()


async def test_a_service_that_changes_is_kept_without_a_word_of_the_controller() -> None:
    async with agent([SentAppliedGroup("g")]) as (_, _, _, memory):
        memory.save()
        assert await written()


async def test_a_run_after_a_failure_saves_what_it_missed_and_restores_nothing_older() -> None:
    async with agent([POLICY]) as (facts, _, _, memory):
        facts.put(POLICY)
        memory.save()
        assert await written()
        facts.put(OTHER)
        File.written.clear()
        again = asyncio.create_task(memory.run())
        assert await written()
        again.cancel()
        await asyncio.gather(again, return_exceptions=True)
        facts.drop(SentPolicy, POLICY.key)
        again = asyncio.create_task(memory.run())
        await asyncio.sleep(0)
        assert facts.all(SentPolicy) == [], "the file still has it"
        again.cancel()
        await asyncio.gather(again, return_exceptions=True)


async def test_what_is_not_whole_is_not_kept() -> None:
    async with agent(None) as (_, controller, _, memory):
        controller.listeners[-1]()
        memory.save()
        assert not await written(within=0.1)
