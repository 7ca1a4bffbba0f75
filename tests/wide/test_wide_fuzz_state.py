"""No damage to a state file ends a start, and nothing of a damaged one is taken for what was written."""

from __future__ import annotations

import asyncio
import logging
import os
from typing import TYPE_CHECKING, Any

import pytest
from fuzzing import spoilt

from antrea.agent.switch.traffic_statistics import TrafficStatistics
from antrea.config.agent import AgentConfig
from antrea.engine import Facts, Record
from antrea.errors import Unavailable
from antrea.facts.pod import LocalPod
from antrea.features.framework.config_validation import accept_agent
from antrea.features.framework.traffic import SeenCounters
from antrea.features.network_policy.agent.connection_flush import Connection, FlushedConnection
from antrea.features.network_policy.agent_part.connection_flush import ConnectionFlusher
from antrea.outside.controlplane.state_cache import CachedState, StateCacheFile
from antrea.outside.disk.id_journal import FileJournal
from antrea.outside.disk.ipam import Ipam
from antrea.outside.disk.state_file import line_of
from antrea.outside.reload.configuration import Configuration

if TYPE_CHECKING:
    from pathlib import Path

    from fuzzing import Fuzz

pytestmark = [pytest.mark.wide, pytest.mark.timeout(7200)]
RECORDS = [Record("conjunction", f"policy-{number} é", number) for number in range(1, 30)]
ROWS = [
    FlushedConnection(f"pod-{n}", Connection("TCP", f"10.0.0.{n}", "10.0.1.1", 4000 + n, 80))
    for n in range(20)
]
PODS = tuple(LocalPod("a", f"pod-{number}") for number in range(20))
TEXT = "defaultMTU: 1300\nhostGateway: antrea-gw9\n"
NOBODY: Any = None


@pytest.fixture(autouse=True)
def quiet() -> None:
    """Each execution logs what is damaged."""
    logging.getLogger("antrea").setLevel(logging.CRITICAL)


def statistics(keep: Path) -> TrafficStatistics:
    return TrafficStatistics(Facts(), NOBODY, NOBODY, (), node="n1", tables={}, counters=NOBODY, keep=keep)


def test_wide_fuzz_state_the_journal_of_ids(fuzz: Fuzz, tmp_path: Path) -> None:
    path = tmp_path / "ids"
    whole = b"".join(map(line_of, RECORDS))
    for rnd in fuzz:
        data = spoilt(rnd, whole)
        path.write_bytes(data)
        journal = FileJournal(path)
        assert set(journal.read()) <= set(RECORDS)
        # what was said twice or cut at a line's end is whole
        assert journal.complete or len(journal.read()) < len(RECORDS) or data != whole
        standing = Facts(journal).ids.standing()
        assert set(standing.items()) <= {((one.pool, one.key), one.number) for one in RECORDS}
        journal.close()


def test_wide_fuzz_state_connections_that_were_cut(fuzz: Fuzz, tmp_path: Path) -> None:
    path = tmp_path / "severed"
    whole = b"".join(map(line_of, ROWS))
    for rnd in fuzz:
        path.write_bytes(spoilt(rnd, whole))
        facts = Facts()
        ConnectionFlusher(facts, "gw", NOBODY, NOBODY, path)
        assert set(facts.all(FlushedConnection)) <= set(ROWS)


def test_wide_fuzz_state_counters(fuzz: Fuzz, tmp_path: Path) -> None:
    path = tmp_path / "policy-counters"
    first = statistics(path)
    first._flows = {f"table={n},ip": SeenCounters(n, 100 * n, "p") for n in range(20)}
    asyncio.run(first._write())
    whole = path.read_bytes()
    for rnd in fuzz:
        data = spoilt(rnd, whole)
        path.write_bytes(data)
        again = statistics(path)
        again.read()
        assert again._flows == (first._flows if data == whole else None)


def test_wide_fuzz_state_the_last_word_of_the_controller(fuzz: Fuzz, tmp_path: Path) -> None:
    path = tmp_path / "controller-state"
    word = CachedState(list(PODS), ("u1", "u2"))
    asyncio.run(StateCacheFile(path, [LocalPod]).write(word))
    whole = path.read_bytes()
    for rnd in fuzz:
        data = spoilt(rnd, whole)
        path.write_bytes(data)
        assert StateCacheFile(path, [LocalPod]).read() == (word if data == whole else CachedState([], ()))


def test_wide_fuzz_state_the_last_good_configuration(fuzz: Fuzz, tmp_path: Path) -> None:
    path, file = tmp_path / "kept", tmp_path / "file"
    file.write_text(TEXT)
    Configuration(AgentConfig, accept_agent, file, path).works()
    whole = path.read_bytes()
    file.write_text("defaultMTU: 1400\n")
    for rnd in fuzz:
        data = spoilt(rnd, whole)
        path.write_bytes(data)
        os.utime(path, (4e9, 4e9))
        config = Configuration(AgentConfig, accept_agent, file, path).now.config
        assert (config.default_mtu, config.host_gateway) == (
            (1300, "antrea-gw9") if data == whole else (1400, "antrea-gw0")
        )


def test_wide_fuzz_state_address_reservations(fuzz: Fuzz, tmp_path: Path) -> None:
    names = [b"10.244.1.2", b"10.244.1.3", b"last_reserved_ip.0", b"lock", b".unfinished"]
    for rnd in fuzz:
        for name in names:
            chosen = (
                name if rnd.random() < 0.7 else spoilt(rnd, name, 3).replace(b"/", b"").replace(b"\0", b"")
            )
            place = os.path.join(os.fsencode(tmp_path), chosen[:200])  # noqa: PTH118 (octets)
            if chosen in (b"", b".", b"..") or os.path.lexists(place):
                continue
            if rnd.random() < 0.1:
                (os.mkdir if rnd.random() < 0.5 else os.mkfifo)(place)
            else:
                with open(place, "wb") as file:  # noqa: PTH123
                    file.write(spoilt(rnd, b"c1\r\neth0" if chosen[:1] == b"1" else b"10.244.1.3"))
        ipam = Ipam(("10.244.1.0/28",), tmp_path)

        async def use(ipam: Ipam = ipam) -> None:
            try:
                got = await ipam.allocate("c9", "eth0")
                assert (await ipam.allocate("c9", "eth0")) == got
                assert await ipam.held("c9", "eth0") == got.ips
                assert await ipam.release("c9", "eth0") == got.ips
                await ipam.gc(await ipam.containers())
            except Unavailable:
                # a directory where a file has to be
                return

        asyncio.run(use())
        for entry in tmp_path.iterdir():
            entry.rmdir() if entry.is_dir() else entry.unlink()
