"""What the controller said last is read as it was written, or not at all."""

from __future__ import annotations

import asyncio
import contextlib
import os
from typing import TYPE_CHECKING

import pytest

from antrea.apis import controlplane as cp
from antrea.apis.meta import ObjectMetadata
from antrea.facts.pod import LocalPod
from antrea.facts.service import Service
from antrea.features.network_policy.agent.received import KINDS as SENT
from antrea.features.network_policy.agent.received import SentAppliedGroup, SentAppliedMember, SentPolicy
from antrea.outside.controlplane import state_cache
from antrea.outside.controlplane.state_cache import CachedState, StateCacheFile

if TYPE_CHECKING:
    from pathlib import Path

    from antrea.facts.fact import Fact

MEMBER = cp.GroupMember(
    pod=cp.PodReference(name="a", namespace="ns"),
    ips=(bytes(16),),
    ports=(cp.NamedPort(port=80, name="web"),),
)
RULE = cp.NetworkPolicyRule(
    direction="In",
    from_=cp.NetworkPolicyPeer(address_groups=("p",)),
    to=cp.NetworkPolicyPeer(),
    services=(cp.Service(port="web"),),
    enable_logging=True,
)
POLICY = cp.NetworkPolicy(
    metadata=ObjectMetadata(name="u", uid="u", generation=3, annotations={"a": "b"}),
    rules=(RULE,),
    applied_to_groups=("g",),
    priority=5.0,
    tier_priority=250,
)
KINDS: tuple[type[Fact], ...] = (*SENT, Service)
SERVICE = Service("ns", "web", ("10.96.0.10", "fd00:96::a"), (("TCP", 80),))
ROWS: list[Fact] = [SentPolicy(POLICY), SentAppliedGroup("g"), SentAppliedMember("g", MEMBER), SERVICE]
WORD = CachedState(ROWS, ("u1", "u2"))


def write(path: Path, word: CachedState = WORD) -> None:
    asyncio.run(StateCacheFile(path, KINDS).write(word))


def test_what_was_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "new" / "word"
    write(path)
    assert StateCacheFile(path, KINDS).read() == WORD
    assert path.stat().st_mode & 0o777 == 0o600
    write(path, CachedState([], ()))
    assert StateCacheFile(path, KINDS).read() == CachedState([], ())
    assert [one.name for one in path.parent.iterdir()] == ["word"]


def test_without_a_file_there_is_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert StateCacheFile(tmp_path / "word", KINDS).read() == CachedState([], ())
    assert not caplog.text


@pytest.mark.parametrize("at", [0, 20, 60, 200, -1])
def test_a_file_with_a_wrong_byte_counts_for_nothing_and_that_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, at: int
) -> None:
    path = tmp_path / "word"
    write(path)
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)
    assert StateCacheFile(path, KINDS).read() == CachedState([], ())
    assert "The cached controller state is damaged" in caplog.text
    assert (tmp_path / "word.damaged").read_bytes() == data


@pytest.mark.parametrize("size", [0, 10, 51, 300])
def test_a_file_that_ends_too_early_counts_for_nothing(tmp_path: Path, size: int) -> None:
    path = tmp_path / "word"
    write(path)
    os.truncate(path, size)
    assert StateCacheFile(path, KINDS).read() == CachedState([], ())


def test_kinds_that_are_no_longer_watched_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "word"
    write(path)
    assert StateCacheFile(path, [SentPolicy]).read() == CachedState([SentPolicy(POLICY)], ("u1", "u2"))


def test_rows_of_another_shape_count_for_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "word"
    write(path, CachedState([LocalPod("ns", "a")], ()))

    class Other(SentPolicy, frozen=True):
        """What an older release had under this name."""

    Other.__name__ = "LocalPod"
    assert StateCacheFile(path, [Other]).read() == CachedState([], ())
    assert "The cached controller state is damaged" in caplog.text


def test_a_word_that_is_too_long_is_not_kept_and_neither_is_the_one_before(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "word"
    write(path)
    monkeypatch.setattr(state_cache, "MAX_BYTES", path.stat().st_size - 1)
    assert StateCacheFile(path, KINDS).read() == CachedState([], ())
    caplog.clear()
    write(path)
    assert "Failed to save the controller state" in caplog.text
    assert not path.exists()


def test_a_disk_that_takes_nothing_is_said_once_and_the_file_before_stays(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "word"
    write(path)
    (tmp_path / "word.new").mkdir()
    keeper = StateCacheFile(path, KINDS)
    for _ in range(2):
        asyncio.run(keeper.write(CachedState([], ())))
    assert caplog.text.count("Failed to save the controller state") == 1
    assert keeper.read() == WORD


async def test_changes_are_written_down_and_what_is_not_whole_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_cache, "EVERY_SECONDS", 0.001)
    keeper = StateCacheFile(tmp_path / "word", KINDS)
    changed, asked = asyncio.Event(), asyncio.Event()
    rows: list[list[Fact] | None] = [None]

    def now() -> list[Fact] | None:
        asked.set()
        return rows[0]

    task = asyncio.create_task(keeper.follow(changed, now, lambda: {"u1"}))
    try:
        changed.set()
        await asyncio.wait_for(asked.wait(), 30)
        assert keeper.read() == CachedState([], ())
        rows[0] = ROWS
        async with asyncio.timeout(30):
            while keeper.read() != CachedState(ROWS, ("u1",)):
                changed.set()
                await asyncio.sleep(0.001)
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def test_what_changed_just_before_the_end_is_written_down(tmp_path: Path) -> None:
    """A policy, and then a Pod of ours that is replaced while no controller runs: the next one starts with it."""
    keeper, changed = StateCacheFile(tmp_path / "word", KINDS), asyncio.Event()
    rows: list[Fact] = []
    task = asyncio.create_task(keeper.follow(changed, lambda: rows, lambda: {"u1"}))
    changed.set()
    async with asyncio.timeout(30):
        while not (tmp_path / "word").exists():  # noqa: ASYNC110 (another thread)
            await asyncio.sleep(0.001)
    rows += ROWS
    changed.set()
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    assert keeper.read() == CachedState(ROWS, ("u1",))
