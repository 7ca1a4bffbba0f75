"""`down` ends what the record lists and nothing else, also after `up` was killed at any moment."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from antrea.errors import Invalid
from lab import cgroup, cluster, namespace
from lab.process import launch, wait_for
from lab.record import Process, Record
from lab.settings import Settings

if TYPE_CHECKING:
    from lab.cluster import Lab

COMMAND = [sys.executable, "-c", "from lab.main import main; main()"]


def remains(record: Record) -> dict[str, list[str]]:
    """Everything on this machine that carries the lab's name or runs below its directory."""
    where = str(record.directory)
    processes = []
    for place in Path("/proc").iterdir():
        if place.name.isdigit() and int(place.name) != os.getpid():
            try:
                text = (place / "cmdline").read_text() + (place / "cgroup").read_text()
            except (FileNotFoundError, ProcessLookupError):
                continue
            if f"{where}/" in text or f"{cgroup.top_name(record)}/" in text:
                processes.append(text)
    return {
        "processes": processes,
        "mounts": [m for m in namespace.mounts() if m.startswith(where)],
        "cgroups": [str(p) for h in cgroup.mounted() for p in h.mount.glob(cgroup.top_name(record))],
        "directories": [where] if record.directory.exists() else [],
    }


NOTHING: dict[str, list[str]] = {"processes": [], "mounts": [], "cgroups": [], "directories": []}


MOMENTS = ("underlay", "etcd", "kube-scheduler")


@pytest.mark.parametrize(
    "moment", ["node-1", *(pytest.param(moment, marks=pytest.mark.wide) for moment in MOMENTS)]
)
def test_down_after_a_killed_up_leaves_nothing(moment: str, lab: Lab) -> None:
    """The session's own lab runs beside it all the time, and goes on."""
    record = Record(f"k{os.getpid()}")
    words = [*COMMAND, "up", "--name", record.name, "--nodes", "1", "--cni", "reference"]
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as starter:
        try:
            wait_for(
                f"{moment} in the record",
                lambda: record.file.exists() and moment in record.file.read_text(),
                seconds=60,
                step=0.005,
            )
        finally:
            starter.send_signal(signal.SIGKILL)

    cluster.down(record)

    assert remains(record) == NOTHING
    assert lab.api.ready()


def test_down_is_idempotent_and_leaves_a_foreign_process_with_a_recorded_pid_alone() -> None:
    record = Record(f"f{os.getpid()}")
    with subprocess.Popen(["sleep", "60"]) as foreign:
        with record.locked():
            record.note(Process("gone", foreign.pid, 1))
        cluster.down(record)
        cluster.down(record)
        alive = foreign.poll() is None
        foreign.kill()

    assert alive
    assert remains(record) == NOTHING


def test_a_daemon_is_in_the_record_before_it_runs_and_does_not_hold_the_lab() -> None:
    """Its first act is to read the record, where it finds itself. If it kept the lock, `down` would wait for it."""
    record = Record(f"p{os.getpid()}")
    try:
        with record.locked():
            process = launch(record, "reader", ["sh", "-c", f"cat {record.file}; exec sleep 600"])
        log = record.directory / "logs/reader.log"
        wait_for("the record in the daemon's log", log.read_text, seconds=60)

        assert log.read_text() == record.file.read_text()
        assert record.processes() == {"reader": process}
    finally:
        cluster.down(record)


def test_a_name_cannot_be_taken_twice_and_the_running_lab_is_unharmed(lab: Lab) -> None:
    with pytest.raises(Invalid, match=f"the lab '{lab.record.name}' is up; `antrea-lab down --name"):
        cluster.up(lab.record, Settings(nodes=1, cni="reference"), print)

    assert lab.api.ready()
