"""Log lines, flags and files as klog has them."""

from __future__ import annotations

import logging
import re
import sys
from typing import TYPE_CHECKING

import click
import pytest
from click.testing import CliRunner

from antrea.errors import Unavailable
from antrea.outside.log import klog
from antrea.outside.log.klog_file import SeverityFile

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

HEAD = re.compile(r"^[IWEF]\d{4} \d\d:\d\d:\d\d\.\d{6} [ \d]{7} test_outside_klog\.py:\d+\] ")
log = klog.logger("antrea.test")


@pytest.fixture(autouse=True)
def root_as_before() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    for handler in list(root.handlers):
        if handler not in handlers:
            root.removeHandler(handler)
            handler.close()
    for handler in handlers:
        if handler not in root.handlers:
            root.addHandler(handler)
    root.setLevel(level)


def read(capsys: pytest.CaptureFixture[str]) -> list[str]:
    out = capsys.readouterr().err.splitlines()
    return [line[0] + " " + line[match.end() :] if (match := HEAD.match(line)) else line for line in out]


def test_klog_a_line_is_a_constant_sentence_and_quoted_fields(capsys: pytest.CaptureFixture[str]) -> None:
    klog.start(klog.Options(), "antrea-test")
    log.info("Assigned Egress IP", egress="web", ip="1.1.1.1", port=3, ok=True, none=None, rate=0.5)
    log.info(
        'Quote " and\nnewline',
        pods=["b", "a"],
        labels={"x": 1},
        kinds=frozenset({"b", "a"}),
        path=ValueError("x"),
    )
    log.warning("Unknown key")
    log.error("Sync failed", error=ValueError("no such port"), port="a")
    log.error("Sync failed", error=ValueError())
    both = [Unavailable("OVSDB"), KeyError("x"), ExceptionGroup("inner", [OSError(), Unavailable("OVSDB")])]
    log.error("Ended", error=ExceptionGroup("unhandled errors in a TaskGroup", both))
    assert read(capsys) == [
        'I "Assigned Egress IP" egress="web" ip="1.1.1.1" port=3 ok=true none=null rate=0.5',
        'I "Quote \\" and\\nnewline" pods=["b", "a"] labels={"x": 1} kinds=["a", "b"] path="x"',
        'W "Unknown key"',
        'E "Sync failed" err="no such port" port="a"',
        'E "Sync failed" err="ValueError"',
        "E \"Ended\" err=\"OVSDB; KeyError: 'x'; OSError\"",
    ]  # fmt: skip


def test_klog_a_librarys_line_is_printed_as_it_is_and_its_traceback_follows(
    capsys: pytest.CaptureFixture[str],
) -> None:
    klog.start(klog.Options(), "antrea-test")
    try:
        raise KeyError("x")
    except KeyError:
        logging.getLogger("some.library").exception("%s broke", "it")
    out = read(capsys)
    assert out[0] == "E it broke"
    assert out[1].startswith("Traceback")
    assert out[-1] == "KeyError: 'x'"


def test_klog_verbose_lines_need_v_and_v_can_change_while_running(capsys: pytest.CaptureFixture[str]) -> None:
    klog.start(klog.Options(v=2), "antrea-test")
    log.v(2).info("Two")
    log.v(3).info("Three")
    assert (log.v(2).enabled, log.v(3).enabled, klog.verbosity()) == (True, False, 2)
    klog.set_verbosity(4)
    log.v(3).info("Three again")
    assert read(capsys) == ['I "Two"', 'I "Three again"']


def test_klog_the_manifests_flags_log_to_files_by_severity_and_to_stderr(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    klog.start(
        klog.Options(logtostderr=False, alsologtostderr=True, log_dir=str(tmp_path / "d")), "antrea-test"
    )
    log.info("One")
    log.warning("Two")
    log.error("Three")
    assert read(capsys) == ['I "One"', 'W "Two"', 'E "Three"']
    sentences = {}
    for severity in ("INFO", "WARNING", "ERROR"):
        link = tmp_path / "d" / f"antrea-test.{severity}"
        name = str(link.readlink())
        assert re.fullmatch(rf"antrea-test\.[^.]+\.\w+\.log\.{severity}\.\d{{8}}-\d{{6}}\.\d+", name)
        head, *body = link.read_text().splitlines()
        assert head.startswith("Log file created at: ")
        sentences[severity] = [line.split("] ", 1)[1] for line in body if HEAD.match(line)]
    assert sentences == {
        "INFO": ['"One"', '"Two"', '"Three"'],
        "WARNING": ['"Two"', '"Three"'],
        "ERROR": ['"Three"'],
    }


def test_klog_without_alsologtostderr_only_errors_reach_stderr(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    klog.start(klog.Options(logtostderr=False, log_dir=str(tmp_path)), "antrea-test")
    log.warning("Two")
    log.error("Three")
    assert read(capsys) == ['E "Three"']


def test_klog_a_file_that_is_full_is_followed_by_a_new_one_and_old_ones_are_removed(tmp_path: Path) -> None:
    handler = SeverityFile(str(tmp_path), "antrea-test", "INFO", max_bytes=400, max_files=2)
    handler.setFormatter(klog.KlogFormatter())
    for number in range(12):
        handler.handle(
            logging.LogRecord("x", logging.INFO, __file__, 1, f"line {number:02d} {'x' * 60}", None, None)
        )
    handler.close()
    files = [p for p in tmp_path.iterdir() if not p.is_symlink()]
    assert len(files) == 2
    assert all(p.stat().st_size <= 400 for p in files)
    assert "line 11" in (tmp_path / "antrea-test.INFO").read_text()


def test_klog_a_directory_that_cannot_be_written_does_not_stop_the_program(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    klog.start(
        klog.Options(logtostderr=False, alsologtostderr=True, log_dir=str(tmp_path / "file")), "antrea-test"
    )
    log.info("One")
    assert read(capsys) == ['I "One"']


def test_klog_flags_are_spelled_as_go_spells_them() -> None:
    seen: list[klog.Options] = []

    @click.command()
    @klog.flags
    @click.option("--config", default="")
    def program(log: klog.Options, config: str) -> None:
        seen.append(log)
        sys.stdout.write(config)

    manifest = "--config=/etc/a.conf --logtostderr=false --log_dir=/var/log/antrea --alsologtostderr --log_file_max_size=100 --log_file_max_num=4 --v=2"
    result = CliRunner().invoke(program, manifest.split())
    assert (result.exit_code, result.output) == (0, "/etc/a.conf")
    assert CliRunner().invoke(program, ["--alsologtostderr=true", "-v", "4"]).exit_code == 0
    assert CliRunner().invoke(program, []).exit_code == 0
    assert seen == [
        klog.Options(2, False, True, logging.ERROR, "/var/log/antrea", 100, 4),
        klog.Options(v=4, alsologtostderr=True),
        klog.Options(),
    ]
    assert CliRunner().invoke(program, ["--v=eleven"]).exit_code == 2
