"""What the user of a program is told, by Events, of each configuration that he writes."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

import pytest

from antrea.apis.core import ObjectReference
from antrea.config.agent import AgentConfig
from antrea.errors import Invalid
from antrea.features.framework.config_validation import accept_agent
from antrea.outside.kube.answer import Listed
from antrea.outside.kube.config_map import ConfigMap
from antrea.outside.kube.event_recorder import EventRecorder
from antrea.outside.reload.configuration import Configuration
from antrea.outside.reload.supervisor import Running, through_changes

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

NONE = "ens9 is no interface"


class Api:
    """Stands where kube-apiserver stands: it has one ConfigMap, which changes, and takes Events."""

    def __init__(self) -> None:
        self.texts: asyncio.Queue[str] = asyncio.Queue()
        self.events: asyncio.Queue[tuple[str, str]] = asyncio.Queue()
        self.others: dict[str, str] = {}

    async def watch(self, *_: Any) -> AsyncIterator[Listed[ConfigMap]]:
        while True:
            text = await self.texts.get()
            yield Listed((ConfigMap({AgentConfig.file: text, **self.others}),))

    async def create_event(
        self, _about: Any, reason: str, message: str, *, warning: bool, component: str, host: str, at: float
    ) -> None:
        assert (component, host) == ("antrea-agent", "n1")
        self.events.put_nowait((f"{reason} {'Warning' if warning else 'Normal'}", message))

    async def told(self, text: str) -> tuple[str, str]:
        """The next Event after this was written."""
        self.texts.put_nowait(text)
        async with asyncio.timeout(30):
            return await self.events.get()


@pytest.fixture
async def api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Api]:
    """Of an agent that works with every configuration but one with an interface."""
    monkeypatch.setenv("POD_NAMESPACE", "kube-system")
    (tmp_path / "conf").write_text("")
    mine: Any = Api()
    configuration = Configuration(
        AgentConfig,
        accept_agent,
        tmp_path / "conf",
        tmp_path / "kept",
        lambda _, files: [f"{name} differs" for name in files if name != AgentConfig.file],
    )

    async def work() -> None:
        if configuration.now.config.transport_interface:
            raise Invalid("transportInterface", NONE)
        await asyncio.Event().wait()

    async def ready() -> None:
        if configuration.now.config.transport_interface:
            await asyncio.Event().wait()

    def start() -> Running:
        return Running(work(), ready, lambda: "nothing", mine)

    recorder = EventRecorder(ObjectReference("Node", "n1"), "antrea-agent", "n1")
    running = asyncio.create_task(through_changes(configuration, start, recorder, asyncio.Event()))
    yield mine
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running


ACCEPTED = ("ConfigAccepted Normal", "antrea-agent.conf: accepted and in effect, after one that was refused")


@pytest.mark.parametrize("corrected", ["", "defaultMTU: 1300"], ids=["as it was", "as another"])
async def test_a_refusal_is_told_and_so_is_its_end(api: Api, corrected: str) -> None:
    reason, message = await api.told("defaultMTU: many")
    assert (reason, message.startswith("antrea-agent.conf: defaultMTU")) == ("ConfigRejected Warning", True)
    assert await api.told(corrected) == ACCEPTED
    # once, and nothing is told of what was never refused
    api.texts.put_nowait("defaultMTU: 1400")
    assert (await api.told("ovsBridge: br-x"))[0] == "ConfigNeedsRestart Warning"


async def test_an_unknown_key_is_told_once_also_when_the_program_is_rebuilt(api: Api) -> None:
    reason, message = await api.told("defaltMTU: 1400")
    assert (reason, "did you mean defaultMTU" in message) == ("UnknownConfigKey Warning", True)
    api.texts.put_nowait("{defaltMTU: 1400, defaultMTU: 1300}")
    assert (await api.told("defaultMTU: many"))[0] == "ConfigRejected Warning"
    assert await api.told("defaultMTU: 1350") == ACCEPTED
    assert (await api.told("defaltMTU: 1400"))[0] == "UnknownConfigKey Warning"


async def test_a_key_that_nothing_acts_on_is_told_once(api: Api) -> None:
    why = "antrea-agent.conf: multicast.igmpQueryInterval: has no effect: multicast is not built yet"
    text = "multicast: {igmpQueryInterval: 60s}"
    assert await api.told(text) == ("ConfigKeyWithoutEffect Warning", why)
    api.texts.put_nowait(f"{{{text}, defaultMTU: 1300}}")
    assert (await api.told("defaultMTU: many"))[0] == "ConfigRejected Warning"


async def test_what_other_files_contradict_is_told_once(api: Api) -> None:
    api.others = {"antrea-controller.conf": "x"}
    assert await api.told("") == ("GateNotInBothFiles Warning", "antrea-controller.conf differs")
    api.texts.put_nowait("defaultMTU: 1400")
    assert (await api.told("ovsBridge: br-x"))[0] == "ConfigNeedsRestart Warning"


async def test_what_passes_every_check_and_fails_at_work_is_never_called_accepted(api: Api) -> None:
    refused = (
        "ConfigRejected Warning",
        f"transportInterface: {NONE}; the last good configuration stays in effect",
    )
    assert await api.told("transportInterface: ens9") == refused
    assert (await api.told("defaultMTU: many"))[0] == "ConfigRejected Warning"
    assert await api.told("transportInterface: ens8") == refused
    assert await api.told("defaultMTU: 1300") == ACCEPTED


@pytest.mark.parametrize("asked", [True, False], ids=["told to end", "reconfigured"])
async def test_only_a_process_that_is_told_to_end_says_goodbye_and_still_works_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, asked: bool
) -> None:
    monkeypatch.setenv("POD_NAMESPACE", "kube-system")
    (tmp_path / "conf").write_text("")
    api: Any = Api()
    configuration = Configuration(AgentConfig, accept_agent, tmp_path / "conf", tmp_path / "kept")
    end, said, started = asyncio.Event(), [], asyncio.Semaphore(0)

    async def work() -> None:
        started.release()
        try:
            await asyncio.Event().wait()
        finally:
            said.append("ended")

    async def ready() -> None: ...

    async def farewell() -> None:
        said.append("goodbye")

    def start() -> Running:
        return Running(work(), ready, lambda: "nothing", api, farewell=farewell)

    recorder = EventRecorder(ObjectReference("Node", "n1"), "antrea-agent", "n1")
    running = asyncio.create_task(through_changes(configuration, start, recorder, end))
    async with asyncio.timeout(30):
        await started.acquire()
        if not asked:
            api.texts.put_nowait("defaultMTU: 1400")
            await started.acquire()
            assert said == ["ended"]
            said.clear()
        end.set()
        await running
    assert said == ["goodbye", "ended"]


@pytest.mark.parametrize("where", ["in the program", "in who listens"])
async def test_a_configuration_that_cannot_work_is_taken_back_whatever_fails_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """Else the process ends, and kubelet waits up to five minutes before it starts the next."""
    monkeypatch.setenv("POD_NAMESPACE", "kube-system")
    (tmp_path / "conf").write_text("")
    api: Any = Api()
    configuration = Configuration(AgentConfig, accept_agent, tmp_path / "conf", tmp_path / "kept")
    failing = asyncio.Event()

    async def fails() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            raise RuntimeError("a bug")

    async def work() -> None:
        async with asyncio.TaskGroup() as tasks:
            if configuration.now.config.transport_interface:
                if where == "in the program":
                    tasks.create_task(fails())
                    await asyncio.sleep(0)
                failing.set()
                raise Invalid("transportInterface", NONE)
            await asyncio.Event().wait()

    async def watch(*_: Any) -> AsyncIterator[Listed[ConfigMap]]:
        if configuration.now.config.transport_interface and where == "in who listens":
            await failing.wait()
            raise RuntimeError("Session is closed")
        async for listed in Api.watch(api):
            yield listed

    api.watch = watch

    async def ready() -> None:
        if configuration.now.config.transport_interface:
            await asyncio.Event().wait()

    recorder = EventRecorder(ObjectReference("Node", "n1"), "antrea-agent", "n1")
    life = through_changes(configuration, lambda: Running(work(), ready, str, api), recorder, asyncio.Event())
    running = asyncio.create_task(life)
    assert (await api.told("transportInterface: ens9"))[0] == "ConfigRejected Warning"
    assert not running.done()
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running
