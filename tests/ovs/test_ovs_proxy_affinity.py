"""ClientIP affinity for longer than a flow can live: what a client has learned is given the rest of its time, in a real switch."""

from __future__ import annotations

import asyncio
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest
from policy_switch import ports
from proxy_switch import CLUSTER, POD, REMOTE, WEB, endpoint, install, trace

from antrea.engine import Facts
from antrea.facts.service import Service
from antrea.features.framework.agent_feature import RealizedPipeline
from antrea.features.proxy.agent_part.kept_affinity import KIND, Kept, KeptAffinity, KeptChoice, choice_of
from antrea.features.proxy.agent_part.long_affinity import LongAffinity, renewed
from antrea.outside.disk.state_file import read_bytes, unsealed
from antrea.outside.vswitch.ofctl import Ofctl

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Sequence

    from ovs_bridge import OvsBridge

    from antrea.outside.vswitch.ofctl import Refusal

DAY = 86_400
FAKE_TIME = Path("/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1")
AGE = re.compile(r"cookie=0x30[0-9a-f]*, duration=([0-9.]+)s,")
LONG = msgspec.structs.replace(WEB, affinity_seconds=DAY)


@pytest.fixture(scope="module")
def bridge(ovs: OvsBridge) -> OvsBridge:
    ovs.add_ports(ports())
    return ovs


class Aged:
    """The switch, whose flows are said to be as old as `seconds`."""

    def __init__(self, bridge: OvsBridge, seconds: int) -> None:
        self._ofctl = Ofctl(bridge.process.directory / "br-int.mgmt")
        self._seconds = seconds

    async def lines(self, command: str, *arguments: str) -> AsyncIterator[str]:
        async for line in self._ofctl.lines(command, *arguments):
            yield re.sub(r"duration=[^,]+", f"duration={self._seconds}.5s", line)

    async def bundle(self, lines: Sequence[str]) -> Refusal | None:
        return await self._ofctl.bundle(lines)


def learned(bridge: OvsBridge) -> list[str]:
    """Learned flows with their time to live, without counters."""
    return [line for line in bridge.dump() if line.startswith("cookie=0x30")]


@pytest.mark.parametrize("six", [False, True], ids=["IPv4", "IPv6"])
async def test_a_client_stays_for_all_of_a_day(bridge: OvsBridge, six: bool) -> None:
    facts = install(bridge, LONG, endpoint(POD.ips[six]), endpoint(REMOTE[six], "n2"))
    first = trace(bridge, POD.ips[six], CLUSTER[six], learns=True)
    before = learned(bridge)
    assert [line.count("hard_timeout=65535") for line in before] == [1]
    assert await LongAffinity(facts, Aged(bridge, 20_864)).renew() == 0
    assert await LongAffinity(facts, Aged(bridge, 30_000)).renew() == 1
    assert learned(bridge) == [before[0].replace("hard_timeout=65535", "hard_timeout=56400")]
    assert await LongAffinity(facts, Aged(bridge, 30_000)).renew() == 0, "its last time to live"
    assert {trace(bridge, POD.ips[six], CLUSTER[six]).to for _ in range(8)} == {first.to}
    # what was learned falls with its Service as before
    realized = facts.get(RealizedPipeline)
    assert realized is not None
    bridge.ofctl("del-flows", f"table={realized.pipeline.id('ServiceLB')}")
    assert learned(bridge) == []


@pytest.mark.parametrize("seconds", [10_800, 65_535])
async def test_what_a_flow_can_live_for_is_left_to_the_switch(bridge: OvsBridge, seconds: int) -> None:
    service = msgspec.structs.replace(WEB, affinity_seconds=seconds)
    facts = install(bridge, service, endpoint(POD.ips[0]))
    trace(bridge, POD.ips[0], CLUSTER[0], learns=True)
    assert f"hard_timeout={seconds}" in learned(bridge)[0]
    assert await LongAffinity(facts, Aged(bridge, 30_000)).renew() == 0


@pytest.mark.parametrize("age", [86_400, 90_000])
def test_a_flow_whose_time_is_over_is_not_renewed(age: int) -> None:
    line = (
        f"cookie=0x30000000007, duration={age}.1s, table=3, hard_timeout=65535, priority=200,tcp actions=drop"
    )
    assert renewed(line, {7: DAY}) is None
    assert renewed(line.replace(str(age), "30000"), {8: DAY}) is None


@pytest.mark.parametrize("six", [False, True], ids=["IPv4", "IPv6"])
async def test_what_clients_have_learned_outlives_the_switch(
    bridge: OvsBridge, tmp_path: Path, six: bool
) -> None:
    rows = (LONG, endpoint(POD.ips[six]), endpoint(REMOTE[six], "n2"))
    ofctl, process = Ofctl(bridge.process.directory / "br-int.mgmt"), bridge.process
    facts = install(bridge, *rows)

    async def settled() -> None:
        install(bridge, *rows)

    def kept() -> KeptAffinity:
        return KeptAffinity(facts, ofctl, process.directory, tmp_path / "affinity")

    first = trace(bridge, POD.ips[six], CLUSTER[six], learns=True)
    before = learned(bridge)
    assert len(before) == 1
    assert await kept().sync(settled) == 0
    assert not (tmp_path / "affinity").exists(), "nothing is known of Services yet"
    facts.synced(Service)
    assert await kept().sync(settled) == 0
    rest = kept_until(tmp_path / "affinity") - time.clock_gettime(time.CLOCK_BOOTTIME)
    assert DAY - 60 < rest <= DAY, "no change of the clock moves it"
    process.kill("ovs-vswitchd")
    process.start_switch()
    bridge.vsctl(
        "set", "bridge", "br-int", f"external_ids:restarted={six}"
    )  # returns when the bridge is there
    assert learned(bridge) == []
    # another agent, too: it has the file alone
    agent = kept()
    assert await agent.sync(settled) == 1
    assert learned(bridge) == before
    assert {trace(bridge, POD.ips[six], CLUSTER[six]).to for _ in range(8)} == {first.to}
    assert await agent.sync(settled) == 0


def kept_until(file: Path) -> float:
    """Of the only choice in it."""
    (choice,) = msgspec.json.decode(unsealed(KIND, read_bytes(file)), type=Kept).choices
    return choice.until


@pytest.fixture
def clock(bridge: OvsBridge, tmp_path: Path) -> Iterator[Callable[[float], None]]:
    """The switch reads a clock that jumps by so many seconds; its monotonic one goes on as it is."""
    if not FAKE_TIME.exists():
        pytest.skip("libfaketime is not installed")
    file, process = tmp_path / "clock", bridge.process

    def jump(seconds: float) -> None:
        fresh = file.with_suffix(".new")
        fresh.write_text(f"{seconds:+.0f}\n")
        fresh.replace(file)

    def restart(environ: dict[str, str]) -> None:
        process.kill("ovs-vswitchd")
        process.start_switch(environ)
        bridge.vsctl("set", "bridge", "br-int", f"external_ids:restarted={len(environ)}")

    jump(0)
    only_this = dict.fromkeys(
        ("FAKETIME_DONT_FAKE_MONOTONIC", "DONT_FAKE_MONOTONIC", "FAKETIME_NO_CACHE"), "1"
    )
    restart({**only_this, "FAKETIME_TIMESTAMP_FILE": str(file), "LD_PRELOAD": str(FAKE_TIME)})
    yield jump
    restart({})


@pytest.mark.parametrize("days", [2, -2])
async def test_a_clock_that_jumps_ends_no_choice_and_keeps_none_for_longer(
    bridge: OvsBridge,
    clock: Callable[[float], None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    days: int,
) -> None:
    rows = (LONG, endpoint(POD.ips[0]), endpoint(REMOTE[0], "n2"))
    facts = install(bridge, *rows)
    facts.synced(Service)
    ofctl, directory = Ofctl(bridge.process.directory / "br-int.mgmt"), bridge.process.directory
    kept, long = KeptAffinity(facts, ofctl, directory, tmp_path / "affinity"), LongAffinity(facts, ofctl)

    async def settled() -> None:
        """It never lost anything."""

    first = trace(bridge, POD.ips[0], CLUSTER[0], learns=True)
    before = learned(bridge)
    assert (len(before), await kept.sync(settled)) == (1, 0)
    until = kept_until(tmp_path / "affinity")
    clock(days * DAY)
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + days * DAY)
    await asyncio.sleep(3)  # the switch looks for flows whose time is over once a second
    assert (await kept.sync(settled), await long.renew()) == (0, 0)
    assert learned(bridge) == before
    assert abs(kept_until(tmp_path / "affinity") - until) < 2
    assert {trace(bridge, POD.ips[0], CLUSTER[0]).to for _ in range(8)} == {first.to}
    (age,) = [float(one[1]) for line in stated(bridge) if (one := AGE.match(line))]
    assert 0 <= age < 60


def stated(bridge: OvsBridge) -> list[str]:
    """Flows with their age."""
    return [line.strip() for line in bridge.ofctl("dump-flows").splitlines()]


def test_a_choice_is_kept_for_the_rest_of_its_time() -> None:
    line = "cookie=0x30000000007, duration=100.1s, table=3, hard_timeout=10800, priority=200,tcp actions=drop"
    assert choice_of(line, {7: 10_800}, 1000.0) == KeptChoice(7, line, 11_700.0)
    assert choice_of(line, {8: 10_800}, 1000.0) is None
    long = line.replace("10800", "65535")
    assert choice_of(long, {7: DAY}, 0.0) == KeptChoice(7, long, DAY - 100.0)
    assert choice_of(line.replace("duration=100", "duration=10800"), {7: 10_800}, 0.0) is None


def test_a_damaged_file_is_no_choice(tmp_path: Path) -> None:
    file = tmp_path / "affinity"
    file.write_bytes(b"antrea affinity 3\n" + bytes(99))
    KeptAffinity(Facts(), Ofctl(tmp_path), tmp_path, file)
    assert (tmp_path / "affinity.damaged").exists()
