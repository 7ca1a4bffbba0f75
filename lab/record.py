"""Record of all that a lab owns, written before it is made, so that `down` can end exactly that and nothing else.

A lab is a directory. In it, `record` has one JSON line per process, network namespace and cgroup, and `lock` is held by
each command that changes the lab. The lock is inherited by every command that the holder runs, so that `down`, after the holder
was killed, first waits for what was still in flight. Paths of namespaces lie inside the directory: nothing has a name
that two labs could share, apart from cgroups, which carry the lab's name.
"""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Iterator  # noqa: TC003
from contextlib import contextmanager
from pathlib import Path

import msgspec

from antrea.errors import Invalid

PROGRAM = os.environ.get("ANTREA_LAB_COMMAND", "antrea-lab")
"""How messages name the command that people use."""
STATE = Path(os.environ.get("ANTREA_LAB_STATE", "/var/lib/antrea-lab"))


class Process(msgspec.Struct, frozen=True, tag="process", tag_field="kind"):
    """A process and the tick it started at (field 22 of /proc/PID/stat), which distinguishes it from a later owner of its pid."""

    name: str
    pid: int
    start: int

    @property
    def alive(self) -> bool:
        try:
            fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(") ")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            return False
        return fields[0] != "Z" and int(fields[19]) == self.start


class Namespace(msgspec.Struct, frozen=True, tag="netns", tag_field="kind"):
    """A network namespace that the lab made, by the file that holds it."""

    path: str


class Cgroup(msgspec.Struct, frozen=True, tag="cgroup", tag_field="kind"):
    """A cgroup that the lab made, by its directory."""

    path: str


Thing = Process | Namespace | Cgroup


class Record:
    """The directory of one lab and the list of what it owns."""

    def __init__(self, name: str) -> None:
        if not re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,18}[a-z0-9])?", name):
            raise Invalid("name", f"{name!r} is not 1 to 20 lower-case letters, digits and inner dashes")
        self.name = name
        self.directory = STATE / name
        self.file = self.directory / "record"
        self._locks: list[int] = []

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the lab; waits for another holder and for the commands that a killed holder left running."""
        self.directory.mkdir(parents=True, exist_ok=True)
        fd = os.open(self.directory / "lock", os.O_CREAT | os.O_RDWR, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            self._locks.append(fd)
            yield
        finally:
            self._locks = [held for held in self._locks if held != fd]
            os.close(fd)

    @property
    def held(self) -> tuple[int, ...]:
        """File descriptors of the lock, for commands to inherit."""
        return tuple(self._locks)

    def note(self, thing: Thing) -> None:
        """Write down that `thing` is about to exist."""
        with self.file.open("ab") as f:
            f.write(msgspec.json.encode(thing) + b"\n")

    def things(self) -> list[Thing]:
        """Everything noted, oldest first."""
        try:
            lines = self.file.read_bytes().splitlines()
        except FileNotFoundError:
            return []
        return [msgspec.json.decode(line, type=Thing) for line in lines]

    def processes(self) -> dict[str, Process]:
        """The processes that run, by name."""
        return {t.name: t for t in self.things() if isinstance(t, Process) and t.alive}
