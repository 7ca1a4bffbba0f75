"""Run commands, start daemons that are written down before they run, and wait for conditions with a deadline."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence  # noqa: TC003
from pathlib import Path  # noqa: TC003
from typing import TYPE_CHECKING, TypeVar

from antrea.errors import Unavailable

if TYPE_CHECKING:
    from lab.record import Process, Record

T = TypeVar("T")
TIME_FACTOR = float(os.environ.get("ANTREA_LAB_TIME_FACTOR", "1"))
"""Factor on all time limits of labs and of virtual machines, for a machine that is so much slower."""

# Runs as `bash -c LAUNCH NAME COMMAND...`: notes its own pid, joins the cgroups, lets go of the lab's lock and becomes
# the command. So a daemon that runs is in the record, whatever happens to the program that started it.
LAUNCH = r"""
set -eu
read -r stat < /proc/$$/stat
fields=(${stat##*) })
printf '{"kind":"process","name":"%s","pid":%d,"start":%s}\n' "$0" $$ "${fields[19]}" >> "$LAB_RECORD"
for cgroup in $LAB_CGROUPS; do echo $$ > "$cgroup/cgroup.procs"; done
for fd in $LAB_LOCKS; do exec {fd}>&-; done
unset LAB_RECORD LAB_CGROUPS LAB_LOCKS
exec "$@"
"""
ENVIRONMENT = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": "/root",
    "LANG": "C.UTF-8",
}


def run(
    argv: Sequence[str | Path], *, record: Record | None = None, stdin: str | None = None, seconds: float = 60
) -> str:
    """Run to the end and return what it printed. Raises Unavailable with the command's own words when it fails."""
    command = [str(a) for a in argv]
    try:
        done = subprocess.run(
            command,
            input=stdin,
            text=True,
            capture_output=True,
            timeout=seconds * TIME_FACTOR,
            pass_fds=record.held if record else (),
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise Unavailable(
            f"`{' '.join(command)}` did not end within {seconds * TIME_FACTOR:.0f} s"
        ) from error
    except FileNotFoundError as error:
        raise Unavailable(f"{command[0]} is not installed") from error
    if done.returncode:
        why = (done.stderr.strip() or done.stdout.strip())[-2000:]
        raise Unavailable(f"`{' '.join(command)[:300]}` ended with {done.returncode}: {why}")
    return done.stdout


def launch(
    record: Record,
    name: str,
    argv: Sequence[str | Path],
    *,
    cgroups: Sequence[Path] = (),
    env: Mapping[str, str] | None = None,
) -> Process:
    """Start a daemon in its own session; its output goes to logs/NAME.log of the lab. The caller holds the record."""
    log = record.directory / "logs" / f"{name}.log"
    log.parent.mkdir(exist_ok=True)
    shim = {
        "LAB_RECORD": str(record.file),
        "LAB_CGROUPS": " ".join(map(str, cgroups)),
        "LAB_LOCKS": " ".join(map(str, record.held)),
    }
    command = ["setsid", "--fork", "bash", "-c", LAUNCH, name, *(str(a) for a in argv)]
    with log.open("ab") as out:
        subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            env={**ENVIRONMENT, **(env or {}), **shim},
            pass_fds=record.held,
            cwd="/",
            check=True,
        )
    return wait_for(f"{name} in the record", lambda: record.processes().get(name), seconds=60, step=0.005)


def wait_for(what: str, condition: Callable[[], T | None], *, seconds: float, step: float = 0.1) -> T:
    """The first true answer of `condition`, asked every `step` seconds. Raises Unavailable when the time is over."""
    seconds *= TIME_FACTOR
    deadline = time.monotonic() + seconds
    while True:
        if answer := condition():
            return answer
        if time.monotonic() > deadline:
            raise Unavailable(f"{what}: not within {seconds:.0f} s")
        time.sleep(step)


def end(processes: Sequence[Process], *, seconds: float = 20) -> None:
    """SIGKILL exactly these and wait until they are gone."""
    for process in processes:
        if process.alive:
            os.kill(process.pid, signal.SIGKILL)
    wait_for(
        "the end of the lab's processes",
        lambda: not any(p.alive for p in processes),
        seconds=seconds,
        step=0.02,
    )


def tail(path: Path, lines: int = 15) -> str:
    """The end of a log, for error messages."""
    try:
        return "\n".join(path.read_text(errors="replace").splitlines()[-lines:])
    except FileNotFoundError:
        return ""
