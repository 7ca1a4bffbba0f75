"""Long steps of the lab: a command runs, its seconds are shown, its last words are kept for the error."""

from __future__ import annotations

import contextlib
import re
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from antrea.errors import Unavailable

Progress = Callable[[str], None]  # takes one line, without its end

EVERY = 15.0  # seconds between two lines about a command that is still running
TAIL = 15  # lines of a failed command's output that an error repeats


class Command(msgspec.Struct, frozen=True):
    """Command of a step: `env` is the whole environment (None: ours), `log` receives both outputs."""

    argv: tuple[str, ...]
    log: Path
    cwd: Path | None = None
    env: Mapping[str, str] | None = None


@contextlib.contextmanager
def step(progress: Progress, what: str) -> Iterator[None]:
    """Print that a step begins and, if it went well, how many seconds it took."""
    began = time.monotonic()
    progress(f"{what} ...")
    yield
    progress(f"{what}: done in {time.monotonic() - began:.1f} s")


def bound(argv: Sequence[str | Path]) -> list[str]:
    """The same command, ended by the kernel when the thread that starts it ends (prctl(2) PR_SET_PDEATHSIG).

    So nothing is left behind when the lab itself is killed in the middle.
    """
    return ["setpriv", "--pdeathsig", "KILL", *map(str, argv)]


class Expected(NamedTuple):
    """Number of things that a command makes, and a pattern of the line that it writes about each."""

    total: int
    what: str
    line: str

    def done(self, log: str) -> str:
        """How much of it is done."""
        count = len(re.findall(self.line, log, re.MULTILINE))
        return f"{min(count, self.total)} of {self.total} {self.what}"


def run(command: Command, what: str, progress: Progress, expected: Expected | None = None) -> None:
    """Run to the end, saying every 15 s how far it is; raises `Unavailable` with its last lines."""
    began = time.monotonic()
    command.log.parent.mkdir(parents=True, exist_ok=True)
    with command.log.open("wb") as log:
        process = subprocess.Popen(
            bound(command.argv),
            cwd=command.cwd,
            env=command.env,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        try:
            while _running(process):
                written = command.log.read_text(errors="replace")
                lines = f"{written.count(chr(10))} lines of output so far"
                progress(
                    f"{what}: {time.monotonic() - began:.0f} s, {expected.done(written) if expected else lines}"
                )
        finally:
            process.kill()
            process.wait()
    if process.returncode:
        raise Unavailable(
            f"{what}: {command.argv[0]} failed with {process.returncode}:\n{last_words(command.log)}"
        )


def last_words(log: Path) -> str:
    """The last lines of a log, for an error that a person reads."""
    return "\n".join(log.read_text(errors="replace").splitlines()[-TAIL:])


def _running(process: subprocess.Popen[bytes]) -> bool:
    try:
        process.wait(EVERY)
    except subprocess.TimeoutExpired:
        return True
    return False
