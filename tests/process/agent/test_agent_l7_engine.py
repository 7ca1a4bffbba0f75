"""The agent's side of the L7 engine: orders that follow rules, facts that follow the engine, and a log of its verdicts."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import os
import shutil
import time
from typing import TYPE_CHECKING, Any, Self

import msgspec
import pytest

from antrea.engine import Facts
from antrea.errors import Unavailable
from antrea.features.l7_network_policy.agent_part import engine as engine_control
from antrea.features.l7_network_policy.agent_part.engine import L7EngineControl
from antrea.features.l7_network_policy.agent_part.files import EngineFiles
from antrea.features.l7_network_policy.agent_part.part import forget_connections
from antrea.features.network_policy.l7.rules import GONE
from antrea.features.network_policy.l7.tenant import L7Engine, LoadedTenant, Tenant, UsedVlan
from antrea.outside.suricata import command
from antrea.outside.suricata.command import CommandSocket
from antrea.outside.vswitch.conntrack import tracked

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

ONE, TWO = (
    Tenant(rule=f"r{vlan}", version=f"r{vlan} v1", vlan=vlan, signatures=f"rules of {vlan}\n")
    for vlan in (1, 2)
)
CHANGED = Tenant(rule="r1", version="r1 v2", vlan=3, signatures="other rules\n")
BEFORE = Tenant(rule="r1", version="r1 v1", vlan=1, signatures="other rules\n", is_old=True)


class FakeSuricata:
    """Speaks its protocol, with the files that its container would have copied."""

    def __init__(self, files: EngineFiles) -> None:
        self._files = files
        self.orders: list[dict[str, Any]] = []
        self.refuses = self.hangs = False
        self._writers: list[asyncio.StreamWriter] = []

    async def __aenter__(self) -> Self:
        shutil.rmtree(self._files.active, ignore_errors=True)
        shutil.copytree(self._files.wanted, self._files.active)
        self._files.log.write_text("Notice: threads: Engine started.\n")
        self._server = await asyncio.start_unix_server(self._serve, self._files.socket)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for writer in self._writers:
            writer.close()
        self._files.socket.unlink(missing_ok=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        while line := await reader.readline():
            order = json.loads(line)
            if self.hangs:
                continue
            if order.get("command", "uptime") != "uptime":
                self.orders.append(order)
            refused = self.refuses and "command" in order
            answer = {"return": "NOK", "message": "bad rule"} if refused else {"return": "OK"}
            writer.write(json.dumps(answer).encode() + b"\n")

    @property
    def commands(self) -> list[tuple[str, int]]:
        return [(one["command"], one.get("arguments", {}).get("id", 0)) for one in self.orders]


class Agent:
    def __init__(self, folder: Path) -> None:
        self.facts, self.files = Facts(), EngineFiles(folder)
        self.forgotten: list[int] = []
        self.used: set[int] = set()
        self.control = L7EngineControl(self.facts, self.files, self._forget, self._is_used)

    async def _forget(self, vlan: int) -> None:
        self.forgotten.append(vlan)

    async def _is_used(self, vlan: int) -> bool:
        return vlan in self.used

    def texts(self) -> dict[int, str]:
        """Of the files of the engine."""
        return {vlan: found.text for vlan, found in self.files.loaded().items()}

    def current(self, rule: str) -> int:
        """The VLAN of new connections."""
        drained(self.facts)
        return max(self.facts.by(LoadedTenant, "rule", rule), key=lambda row: row.since).vlan

    def loaded(self) -> dict[int, str]:
        drained(self.facts)
        return {row.vlan: row.outdated for row in self.facts.all(LoadedTenant)}

    def versions(self) -> dict[int, str]:
        """Of VLANs that no other version gets."""
        drained(self.facts)
        return {row.vlan: row.version for row in self.facts.all(UsedVlan)}

    def why_not(self) -> str | None:
        drained(self.facts)
        row = self.facts.get(L7Engine, "self")
        return row.why_not if row else None


def drained(facts: Facts) -> None:
    """As a pass of the engine takes in what feeds wrote."""
    for _ in facts.drain():
        pass


async def until(true: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not true():  # noqa: ASYNC110 (files have no event)
            await asyncio.sleep(0.01)


@pytest.fixture
async def agent(tmp_path: Path) -> AsyncIterator[Agent]:
    found = Agent(tmp_path)
    task = asyncio.create_task(found.control.run(found.facts))
    yield found
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def test_tenants_of_the_files_are_loaded_by_the_start_and_others_by_orders(agent: Agent) -> None:
    await agent.control.resync([ONE])
    await until(lambda: "not running" in (agent.why_not() or ""))
    assert agent.loaded() == {}
    async with FakeSuricata(agent.files) as engine:
        await until(lambda: agent.loaded() == {1: ""})
        assert (engine.commands, agent.why_not()) == ([], "")
        await agent.control.apply([TWO], [])
        await until(lambda: agent.loaded() == {1: "", 2: ""})
        assert engine.commands == [("register-tenant", 2), ("register-tenant-handler", 2)]
        await agent.control.apply([], [TWO])
        await until(lambda: agent.loaded() == {1: ""} and agent.forgotten == [2])
        await until(lambda: len(engine.orders) == 4)
        assert engine.commands[2:] == [("unregister-tenant-handler", 2), ("unregister-tenant", 2)]
        assert agent.texts() == {1: ONE.signatures}
    await until(lambda: agent.loaded() == {})
    assert "not running" in (agent.why_not() or "")


async def test_connections_of_before_a_change_keep_their_tenant_and_it_takes_the_change_later(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_control, "OVERLAP", 0.5)
    monkeypatch.setattr(engine_control, "USE", 0.1)
    await agent.control.resync([ONE])
    agent.used = {1}
    async with FakeSuricata(agent.files) as engine:
        await until(lambda: agent.loaded() == {1: ""})
        await agent.control.apply([CHANGED, BEFORE], [])
        await until(lambda: agent.loaded() == {1: "the L7 engine has not loaded the change yet", 3: ""})
        assert (agent.current("r1"), agent.texts()) == (3, {1: ONE.signatures, 3: CHANGED.signatures})
        await until(lambda: ("reload-tenant", 1) in engine.commands)
        await until(lambda: agent.texts() == {1: CHANGED.signatures, 3: CHANGED.signatures})
        assert set(agent.loaded()) == {1, 3}, "a connection has it"
        agent.used = set()
        await until(lambda: agent.loaded() == {3: ""})
        await agent.control.apply([], [BEFORE])
        await until(lambda: ("unregister-tenant", 1) in engine.commands)
        await until(lambda: agent.texts() == {3: CHANGED.signatures})


async def test_a_change_that_is_undone_at_once_gives_new_connections_the_first_tenant_again(
    agent: Agent,
) -> None:
    await agent.control.resync([ONE])
    async with FakeSuricata(agent.files) as engine:
        await until(lambda: agent.loaded() == {1: ""})
        await agent.control.apply([CHANGED, BEFORE], [])
        await until(lambda: agent.loaded().get(3) == "" and agent.current("r1") == 3)
        undone = msgspec.structs.replace(CHANGED, signatures=ONE.signatures, is_old=True)
        await agent.control.apply([ONE, undone], [])
        await until(lambda: agent.current("r1") == 1 and agent.loaded()[1] == "")
        assert ("reload-tenant", 1) not in engine.commands


async def test_a_vlan_of_a_rule_that_is_gone_loses_its_connections_before_another_rule_has_it(
    agent: Agent,
) -> None:
    await agent.control.resync([ONE])
    async with FakeSuricata(agent.files) as engine:
        await until(lambda: agent.loaded() == {1: ""})
        other = Tenant(rule="r9", version="r9 v1", vlan=1, signatures="rules of nine\n")
        await agent.control.apply([other], [ONE])
        await until(lambda: agent.loaded() == {1: ""} and agent.texts() == {1: other.signatures})
        assert agent.forgotten == [1]
        assert engine.commands[:2] == [("unregister-tenant-handler", 1), ("unregister-tenant", 1)]


async def test_signatures_that_the_engine_refuses_leave_those_of_before_and_are_not_tried_again(
    agent: Agent,
) -> None:
    await agent.control.resync([ONE])
    async with FakeSuricata(agent.files) as engine:
        await until(lambda: agent.loaded() == {1: ""})
        engine.refuses = True
        await agent.control.apply([CHANGED, BEFORE, TWO], [])
        await until(lambda: "judged as before" in agent.loaded().get(1, "") and len(engine.orders) == 2)
        assert (set(agent.loaded()), agent.current("r1")) == ({1}, 1)
        engine.refuses = False
        await agent.control.apply([ONE], [CHANGED])
        await until(lambda: agent.loaded() == {1: ""})


async def test_an_engine_that_hangs_judges_nothing_and_is_named_until_it_answers_again(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "PING_PATIENCE", 0.2)
    monkeypatch.setattr(command, "TIMEOUT", 0.2)
    monkeypatch.setattr(engine_control, "PING", 0.1)
    await agent.control.resync([ONE])
    async with FakeSuricata(agent.files) as engine:
        await until(lambda: agent.loaded() == {1: ""})
        engine.hangs = True
        await until(lambda: agent.loaded() == {} and "does not answer" in (agent.why_not() or ""))
        engine.hangs = False
        await until(lambda: agent.loaded() == {1: ""} and agent.why_not() == "")


async def test_an_engine_without_tenants_is_stopped_and_not_started_again(agent: Agent) -> None:
    await agent.control.resync([ONE])
    async with FakeSuricata(agent.files) as engine:
        await until(lambda: agent.loaded() == {1: ""})
        await agent.control.apply([], [ONE])
        await until(lambda: ("shutdown", 0) in engine.commands)
        assert not (agent.files.wanted / "suricata.yaml").exists()


async def test_an_agent_that_starts_again_adopts_the_engine_and_removes_the_rest_with_the_sweep(
    agent: Agent, tmp_path: Path
) -> None:
    await agent.control.resync([ONE, TWO])
    async with FakeSuricata(agent.files) as engine:
        await until(lambda: agent.loaded() == {1: "", 2: ""})
        second = Agent(tmp_path)
        task = asyncio.create_task(second.control.run(second.facts))
        try:
            await until(lambda: second.loaded() == {1: "", 2: ""})
            await second.control.resync([ONE])
            assert not engine.orders
            await second.control.sweep(Tenant.category)
            await until(lambda: second.forgotten == [2] and ("unregister-tenant", 2) in engine.commands)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def test_an_engine_that_answers_nonsense_is_no_engine(tmp_path: Path) -> None:
    async def nonsense(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"[1]\n")
        writer.close()

    server = await asyncio.start_unix_server(nonsense, path := tmp_path / "s")
    with pytest.raises(Unavailable):
        await CommandSocket.connect(path)
    server.close()
    with pytest.raises(Unavailable):
        await CommandSocket.connect(tmp_path / "nobody")


async def test_connections_of_a_vlan_are_forgotten() -> None:
    line = "tcp,orig=(src=10.0.0.1,dst=10.0.0.2,sport=1,dport=80),reply=(src=10.0.0.2,dst=10.0.0.1,sport=80,dport=1)"
    mine, other = (
        tracked(65520, f"{line},zone=65520,mark=131,labels={label:#x},protoinfo=(state=ESTABLISHED)")
        for label in (7 << 64 | 5, 8 << 64 | 5)
    )

    class Connections:
        forgotten: list[Any] = []  # noqa: RUF012

        async def connections(self, zone: int) -> list[Any]:
            return [mine, other] if zone == 65520 else []

        async def forget(self, found: list[Any]) -> None:
            self.forgotten += found

    conntrack: Any = Connections()
    await forget_connections(conntrack, 7)
    assert conntrack.forgotten == [mine]


async def test_an_engine_that_the_kernel_has_ended_for_want_of_memory_is_named(tmp_path: Path) -> None:
    """As long as it is away, and some time after."""
    agent = Agent(tmp_path)
    (tmp_path / "out-of-memory").write_text(str(time.clock_gettime(time.CLOCK_BOOTTIME)))
    task = asyncio.create_task(agent.control.run(agent.facts))
    await until(lambda: "is at its limit" in (agent.why_not() or ""))
    assert agent.control.memory_trouble()
    (tmp_path / "out-of-memory").write_text("-900.0\n")
    await until(lambda: "is not ready" in (agent.why_not() or ""))
    assert not agent.control.memory_trouble()
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def test_connections_of_a_rule_that_is_gone_are_ended_beside_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its tenant stays until there are none, over a restart of the engine too; without another rule they are judged anew."""
    monkeypatch.setattr(engine_control, "USE", 0.1)
    agent = Agent(tmp_path)
    agent.used = {ONE.vlan, TWO.vlan}
    await agent.control.resync((ONE, TWO))
    async with FakeSuricata(agent.files) as engine:
        task = asyncio.create_task(agent.control.run(agent.facts))
        await until(lambda: len(agent.loaded()) == 2)
        await agent.control.apply((), (ONE,))
        await until(lambda: agent.texts().get(ONE.vlan) == GONE)
        assert engine.commands == [("reload-tenant", ONE.vlan)]
        assert [*agent.loaded()] == [TWO.vlan]
        assert (agent.files.wanted / f"tenant-{ONE.vlan}.rules").read_text() == GONE
        agent.used.discard(ONE.vlan)
        await until(lambda: ("unregister-tenant", ONE.vlan) in engine.commands)
        assert agent.forgotten == [ONE.vlan]
        await agent.control.apply((), (TWO,))
        await until(lambda: ("unregister-tenant", TWO.vlan) in engine.commands)
        assert agent.forgotten == [ONE.vlan, TWO.vlan]
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


@contextlib.asynccontextmanager
async def without_one(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[FakeSuricata]:
    """The engine beside which ONE has just gone; connections have its VLAN, and TWO is there."""
    monkeypatch.setattr(engine_control, "USE", 0.1)
    agent.used = {ONE.vlan}
    await agent.control.resync((ONE, TWO))
    async with FakeSuricata(agent.files) as engine:
        await until(lambda: len(agent.loaded()) == 2)
        await agent.control.apply((), (ONE,))
        yield engine


async def test_a_vlan_is_kept_for_its_version_until_no_connection_has_it(
    tmp_path: Path, agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another rule with its number would have to forget connections of which the server may send next."""
    async with without_one(agent, monkeypatch) as engine:
        await until(lambda: agent.texts().get(ONE.vlan) == GONE)
        assert agent.versions() == {ONE.vlan: ONE.version, TWO.vlan: TWO.version}
        second = Agent(tmp_path)
        await second.control.resync((TWO,))
        assert second.versions() == agent.versions()
        agent.used.clear()
        await until(lambda: ("unregister-tenant", ONE.vlan) in engine.commands)
        await until(lambda: agent.versions() == {TWO.vlan: TWO.version})


@pytest.mark.parametrize("is_reported", [False, True])
async def test_a_rule_that_comes_back_judges_the_connections_that_it_had(
    agent: Agent, monkeypatch: pytest.MonkeyPatch, is_reported: bool
) -> None:
    """None is forgotten, whether or not the engine was told meanwhile that the rule is gone."""
    async with without_one(agent, monkeypatch) as engine:
        if is_reported:
            await until(lambda: agent.texts().get(ONE.vlan) == GONE)
        await agent.control.apply((ONE,), ())
        await until(lambda: len(agent.loaded()) == 2 and agent.texts()[ONE.vlan] == ONE.signatures)
        assert engine.commands == [("reload-tenant", ONE.vlan)] * 2 * is_reported
        assert agent.forgotten == []


async def test_an_engine_that_ends_as_a_rule_goes_ends_the_connections_of_the_rule_when_it_starts(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it starts with has the VLAN from the moment on in which the rule goes, until no connection has it."""
    monkeypatch.setattr(engine_control, "USE", 0.1)
    agent.used = {ONE.vlan}
    await agent.control.resync((ONE, TWO))
    file = agent.files.wanted / f"tenant-{ONE.vlan}.rules"
    async with FakeSuricata(agent.files):
        await until(lambda: len(agent.loaded()) == 2)
        await agent.control.apply((), (ONE,))
        assert file.read_text() == GONE
    await until(lambda: "not running" in (agent.why_not() or ""))
    assert agent.forgotten == []
    async with FakeSuricata(agent.files) as engine:
        await until(lambda: [*agent.loaded()] == [TWO.vlan] and agent.texts()[ONE.vlan] == GONE)
        agent.used = set()
        await until(lambda: ("unregister-tenant", ONE.vlan) in engine.commands)
        assert ("reload-tenant", ONE.vlan) not in engine.commands
        await until(lambda: not file.exists())


async def test_without_an_engine_the_connections_of_the_last_rule_that_goes_are_judged_anew(
    agent: Agent,
) -> None:
    """No flow sends them to an engine any more, and none is started."""
    await agent.control.resync((ONE,))
    async with FakeSuricata(agent.files):
        await until(lambda: agent.loaded() == {ONE.vlan: ""})
    await until(lambda: "not running" in (agent.why_not() or ""))
    await agent.control.apply((), (ONE,))
    await until(lambda: agent.forgotten == [ONE.vlan])
    assert not (agent.files.wanted / "suricata.yaml").exists()


async def test_what_an_agent_that_starts_again_sweeps_is_ended_though_the_engine_ends_meanwhile(
    agent: Agent, tmp_path: Path
) -> None:
    await agent.control.resync([ONE, TWO])
    async with FakeSuricata(agent.files):
        await until(lambda: len(agent.loaded()) == 2)
    second = Agent(tmp_path)
    await second.control.resync([ONE])
    file = second.files.wanted / f"tenant-{TWO.vlan}.rules"
    assert file.read_text() == TWO.signatures
    await second.control.sweep(Tenant.category)
    assert file.read_text() == GONE


async def test_a_change_that_the_disk_has_no_room_for_is_named_and_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The agent goes on, and the engine judges as before."""
    agent = Agent(tmp_path)
    await agent.control.resync((ONE,))
    async with FakeSuricata(agent.files) as engine:
        task = asyncio.create_task(agent.control.run(agent.facts))
        await until(lambda: len(agent.loaded()) == 1)

        def full(*_: Any) -> str:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        with monkeypatch.context() as patched:
            patched.setattr(agent.files, "begin", full)
            await agent.control.apply((CHANGED, BEFORE), ())
            await until(lambda: "No space left on device" in agent.loaded()[ONE.vlan])
            assert (engine.commands, task.done()) == ([], False)
        await until(lambda: agent.current("r1") == CHANGED.vlan)
        assert engine.commands[0] == ("register-tenant", CHANGED.vlan)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
