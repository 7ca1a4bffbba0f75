"""The audit log merges equal lines, puts full files aside, and survives disks that do not."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import re
import time
from typing import TYPE_CHECKING

from antrea.config.agent_sections import AuditLogging
from antrea.outside.log.audit_log import AuditLog
from antrea.outside.log.rotated_file import RotatedFile

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

LARGE = 700_000
TIME = re.compile(r"^\d{4}/\d\d/\d\d \d\d:\d\d:\d\d\.\d{6} ")


@contextlib.asynccontextmanager
async def running(path: Path, limits: AuditLogging) -> AsyncIterator[AuditLog]:
    log = AuditLog(path, limits)
    work = asyncio.create_task(log.run())
    await asyncio.sleep(0)
    try:
        yield log
    finally:
        work.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await work


async def until(true: Callable[[], object]) -> None:
    async with asyncio.timeout(30):
        while not true():  # noqa: ASYNC110 (of another thread, or of a clock)
            await asyncio.sleep(0.02)


def found(directory: Path, pattern: str) -> list[Path]:
    return list(directory.glob(pattern))


def lines(path: Path) -> list[str]:
    return [TIME.sub("", line) for line in path.read_text().splitlines()] if path.exists() else []


async def test_what_repeats_within_a_second_is_one_line_with_their_number(tmp_path: Path) -> None:
    path = tmp_path / "networkpolicy" / "np.log"
    async with running(path, AuditLogging()) as log:
        for _ in range(3):
            log.line("dropped", repeats=True)
            log.line("allowed", repeats=False)
        log.line("once", repeats=True)
        assert lines(path) == ["allowed"] * 3
        await until(lambda: len(lines(path)) == 5)
        count = re.fullmatch(r"dropped \[3 packets in (\d+\.\d{6})s\]", lines(path)[3])
        assert count
        assert float(count[1]) >= 1
        assert lines(path)[4] == "once"
        log.line("dropped", repeats=True)
        log.line("dropped", repeats=True)
    assert re.fullmatch(r"dropped \[2 packets in \d+\.\d{6}s\]", lines(path)[5])
    assert TIME.match(path.read_text())
    assert path.stat().st_mode & 0o777 == 0o600


async def test_a_disk_that_takes_nothing_costs_lines_which_are_counted(tmp_path: Path) -> None:
    blocked = tmp_path / "networkpolicy"
    blocked.write_text("a file")
    async with running(blocked / "np.log", AuditLogging()) as log:
        log.line("lost", repeats=False)
        assert "antrea_agent_audit_log_lost_count 1\n" in log.text()
        blocked.unlink()
        log.line("kept", repeats=False)
    assert lines(blocked / "np.log") == ["kept"]


async def test_a_full_file_is_compressed_beside_the_new_one(tmp_path: Path) -> None:
    path = tmp_path / "np.log"
    async with running(path, AuditLogging(max_size=1)) as log:
        log.line("a" * LARGE, repeats=False)
        log.line("b" * LARGE, repeats=False)
        await until(lambda: found(tmp_path, "np-*.log.gz"))
    (aside,) = found(tmp_path, "np-*")
    assert re.fullmatch(r"np-\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d\.\d{3}\.log\.gz", aside.name)
    assert TIME.sub("", gzip.decompress(aside.read_bytes()).decode()) == "a" * LARGE + "\n"
    assert lines(path) == ["b" * LARGE]


def test_the_newest_files_stay_and_old_ones_go(tmp_path: Path) -> None:
    path, now = tmp_path / "np.log", time.time()
    ages = (1, 2, 3, 40)
    for days in ages:
        when = time.strftime("%Y-%m-%dT%H-%M-%S", time.gmtime(now - days * 86400))
        (tmp_path / f"np-{when}.000.log{'.gz' if days == 2 else ''}").write_bytes(b"old")
    stranger = tmp_path / "np-notes.log"
    stranger.write_text("of somebody else")
    (tmp_path / "np-9999-99-99T99-99-99.000.log").write_text("of nobody's calendar")

    def left(limits: AuditLogging) -> int:
        RotatedFile(path, limits).tidy()
        return len(list(tmp_path.glob("np-2*")))

    unlimited = AuditLogging(max_backups=0, max_age=0, compress=False)
    assert left(unlimited) == 4
    assert left(AuditLogging(max_backups=0, max_age=28, compress=False)) == 3
    assert left(AuditLogging(max_backups=2, max_age=0, compress=False)) == 2
    assert left(AuditLogging(max_backups=2, max_age=0, compress=True)) == 2
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".gz", ".gz", ".log", ".log"]
    assert stranger.read_text() == "of somebody else"
