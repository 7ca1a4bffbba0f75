"""Configurations that come, fail and are overtaken at any moment, and Events that have to wait."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Awaitable, Callable  # noqa: TC003 (dataclass fields)
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from antrea.apis.core import ObjectReference
from antrea.config.agent import AgentConfig
from antrea.errors import Invalid, Unavailable
from antrea.features.framework.config_validation import accept_agent
from antrea.outside.kube.answer import Listed
from antrea.outside.kube.config_map import ConfigMap
from antrea.outside.kube.event_recorder import EventRecorder
from antrea.outside.reload.configuration import Configuration
from antrea.outside.reload.supervisor import Running, through_changes

if TYPE_CHECKING:
    from pathlib import Path

    from antrea.features.framework.gate import EnabledGates

GOOD, OTHER, BAD = "defaultMTU: 1300", "defaultMTU: 1310", "transportInterface: ens9"
VOICE = EventRecorder(ObjectReference("Node", "n1"), "antrea-agent", "n1")


async def nothing(_: int) -> None:
    """Works at once, for ever."""


@dataclass
class Program:
    """An agent and the API server beside it; `work` and `ready` do what the test wants, by the MTU that is in effect."""

    configuration: Configuration[AgentConfig, EnabledGates]
    work: Callable[[int], Awaitable[None]] = nothing
    ready: Callable[[int], Awaitable[None]] = nothing
    blameless: Callable[[], bool] = lambda: False
    create: Callable[[str], Awaitable[None]] | None = None
    """What the API server does with an Event."""
    texts: asyncio.Queue[str] = field(default_factory=asyncio.Queue)
    events: list[str] = field(default_factory=list)
    built: list[int] = field(default_factory=list)
    news: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def watch(self, *_: Any) -> AsyncIterator[Listed[ConfigMap]]:
        while True:
            yield Listed((ConfigMap({AgentConfig.file: await self.texts.get()}),))

    async def create_event(self, _about: Any, reason: str, message: str, **_: Any) -> None:
        if self.create:
            await self.create(reason)
        self.events.append(f"{reason}: {message}")
        await self.tell()

    async def tell(self) -> None:
        async with self.news:
            self.news.notify_all()

    async def until(self, true: Callable[[], object]) -> None:
        async with asyncio.timeout(30), self.news:
            await self.news.wait_for(true)

    def start(self) -> Running:
        mtu, kube = self.configuration.now.config.default_mtu, self
        if self.configuration.now.config.transport_interface:
            mtu = 9
        self.built.append(mtu)

        async def life() -> None:
            await self.tell()
            await self.work(mtu)
            await asyncio.Event().wait()

        async def ready() -> None:
            await self.ready(mtu)

        return Running(life(), ready, lambda: "rain", kube, blameless=self.blameless, patience=0.2)  # type: ignore[arg-type]


@asynccontextmanager
async def running(path: Path, text: str, **does: Any) -> AsyncIterator[Program]:
    (path / "conf").write_text(text)
    program = Program(Configuration(AgentConfig, accept_agent, path / "conf", path / "kept"), **does)
    life = asyncio.create_task(through_changes(program.configuration, program.start, VOICE, asyncio.Event()))
    try:
        yield program
        assert not life.done(), life
    finally:
        life.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await life


@pytest.fixture(autouse=True)
def _pod(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POD_NAMESPACE", "kube-system")


async def refuses(mtu: int) -> None:
    if mtu == 9:
        raise Invalid("transportInterface", "ens9 is no interface")


async def test_a_program_that_works_late_does_not_prove_the_text_that_has_overtaken_it(
    tmp_path: Path,
) -> None:
    late = asyncio.Event()

    async def ready(mtu: int) -> None:
        await (late.wait() if mtu == 1300 else asyncio.Event().wait())

    async def work(mtu: int) -> None:
        if mtu == 9:
            raise Invalid("transportInterface", "ens9 is no interface")
        try:
            await asyncio.Event().wait()
        finally:
            # it takes its time to end, and works at last
            late.set()
            await asyncio.sleep(0)
            await asyncio.sleep(0)

    async with running(tmp_path, GOOD, work=work, ready=ready) as program:
        await program.until(lambda: program.built == [1300])
        program.texts.put_nowait(BAD)
        await program.until(lambda: program.events)
        assert program.built == [1300, 9, 1300]
        assert "ens9" in program.events[0]


async def test_the_listener_does_not_wait_for_an_event_and_none_is_lost_while_the_api_server_is_away(
    tmp_path: Path,
) -> None:
    away, asked = True, 0

    async def create(_: str) -> None:
        nonlocal asked
        asked += 1
        await program.tell()
        if away:
            raise Unavailable("kube-apiserver: Connection refused")

    async with running(tmp_path, GOOD, create=create) as program:
        program.texts.put_nowait("defaultMTU: many")
        await program.until(lambda: asked)
        program.texts.put_nowait("defaultMTU: 1310")
        await program.until(lambda: program.built == [1300, 1310])
        away = False
        await program.until(lambda: len(program.events) == 2)
    assert [event.split(":")[0] for event in program.events] == ["ConfigRejected", "ConfigAccepted"]


async def test_a_mounted_text_that_fails_at_work_does_not_end_an_agent_that_has_a_good_one(
    tmp_path: Path,
) -> None:
    (tmp_path / "conf").write_text(GOOD)
    Configuration(AgentConfig, accept_agent, tmp_path / "conf", tmp_path / "kept").works()
    os.utime(tmp_path / "kept", (1000, 1000))
    async with running(tmp_path, BAD, work=refuses) as program:
        program.texts.put_nowait(BAD)
        await program.until(lambda: program.events)
        assert program.built == [9, 1300]
        assert "ens9" in program.configuration.now.rejected
        program.texts.put_nowait(OTHER)
        await program.until(lambda: len(program.events) == 2)
    assert program.events[1].startswith("ConfigAccepted")


@pytest.mark.parametrize("why", [Unavailable("port 10350: Address already in use"), RuntimeError("a bug")])
async def test_a_program_that_ends_before_it_works_with_what_was_changed_does_not_end_the_process(
    tmp_path: Path, why: Exception
) -> None:
    async def work(mtu: int) -> None:
        if mtu == 1310:
            raise why

    async with running(tmp_path, GOOD, work=work) as program:
        await program.until(lambda: program.built)
        program.texts.put_nowait(OTHER)
        await program.until(lambda: program.events)
        assert str(why) in program.events[0]
        assert program.built[-1] == 1300


async def test_a_start_that_cannot_go_on_says_nothing_against_what_was_mounted(tmp_path: Path) -> None:
    (tmp_path / "kept").write_text(GOOD)
    os.utime(tmp_path / "kept", (1000, 1000))

    async def work(_: int) -> None:
        raise Unavailable("port 10350: Address already in use")

    (tmp_path / "conf").write_text(OTHER)
    program = Program(Configuration(AgentConfig, accept_agent, tmp_path / "conf", tmp_path / "kept"), work)
    with pytest.raises(Unavailable):
        await through_changes(program.configuration, program.start, VOICE, asyncio.Event())
    assert program.built == [1310]


async def test_a_program_that_cannot_go_on_for_a_moment_is_built_again(tmp_path: Path) -> None:
    async def work(mtu: int) -> None:
        if mtu == 1310 and program.built.count(1310) == 1:
            raise Unavailable("port 10350: Address already in use")

    async with running(tmp_path, GOOD, work=work) as program:
        await program.until(lambda: program.built)
        program.texts.put_nowait(OTHER)
        await program.until(lambda: program.built == [1300, 1310, 1310])
        program.texts.put_nowait("defaltMTU: 1310")
        await program.until(lambda: program.events)
    assert program.events[0].startswith("UnknownConfigKey")


@pytest.mark.parametrize("away", [True, False], ids=["the API server is away", "something else"])
async def test_a_configuration_is_taken_back_for_what_takes_long_unless_it_is_not_to_blame(
    tmp_path: Path, *, away: bool
) -> None:
    back, looked = asyncio.Event(), 0

    async def ready(mtu: int) -> None:
        if mtu == 1310:
            await back.wait()

    def blameless() -> bool:
        nonlocal looked
        looked += 1
        if looked == 3:
            back.set()
        return away

    async with running(tmp_path, GOOD, ready=ready, blameless=blameless) as program:
        await program.until(lambda: program.built)
        program.texts.put_nowait(OTHER)
        if away:
            async with asyncio.timeout(30):
                await back.wait()
            assert program.built == [1300, 1310]
        else:
            await program.until(lambda: program.events)
            waits = "antrea-agent.conf: after 0.2 s the program still waits for rain"
            assert program.events == [f"ConfigRejected: {waits}; the last good configuration stays in effect"]
