"""Network namespaces kept alive by a file in the lab's directory, and how to act inside one."""

from __future__ import annotations

import ctypes
import os
import socket
import threading
from collections.abc import Iterator, Sequence  # noqa: TC003
from contextlib import contextmanager
from pathlib import Path  # noqa: TC003

from lab.process import run
from lab.record import Namespace, Record

CLONE_NEWNET = 0x40000000
_libc = ctypes.CDLL(None, use_errno=True)


def path(record: Record, machine: str) -> Path:
    """Return the file that holds the network namespace of a machine."""
    return record.directory / "netns" / machine


def create(record: Record, machine: str) -> Path:
    """A new network namespace; it lives as long as its file is a mount point (unshare(1), persistent namespaces)."""
    file = path(record, machine)
    file.parent.mkdir(exist_ok=True)
    record.note(Namespace(str(file)))
    file.touch()
    run(["unshare", f"--net={file}", "true"], record=record)
    return file


def remove(file: Path) -> None:
    """Idempotent; the kernel frees the namespace and its links when no process is in it any more."""
    if not file.exists():
        return
    while os.path.ismount(file) or str(file) in mounts():
        run(["umount", file])
    file.unlink()


def mounts() -> set[str]:
    """Mount points of this process (proc(5), mountinfo field 5)."""
    with open("/proc/self/mountinfo") as f:  # noqa: PTH123
        return {line.split()[4] for line in f}


def inside(file: Path, argv: Sequence[str | Path]) -> list[str]:
    """The command, run in that network namespace."""
    return ["nsenter", f"--net={file}", "--", *(str(a) for a in argv)]


def script(record: Record, file: Path, lines: Sequence[str]) -> None:
    """Run shell lines in that network namespace; the first that fails ends it (Unavailable)."""
    run(inside(file, ["bash", "-euc", "\n".join(lines)]), record=record)


@contextmanager
def entered(file: Path) -> Iterator[None]:
    """This thread is in that network namespace; sockets made here stay in it."""
    current = os.open(f"/proc/self/task/{threading.get_native_id()}/ns/net", os.O_RDONLY)
    other = os.open(file, os.O_RDONLY)
    try:
        _setns(other)
        try:
            yield
        finally:
            _setns(current)
    finally:
        os.close(other)
        os.close(current)


def _setns(fd: int) -> None:
    if _libc.setns(fd, CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "setns")


def connect(file: Path, address: tuple[str, int], *, seconds: float) -> socket.socket:
    """A TCP connection made from inside that network namespace."""
    with entered(file):
        return socket.create_connection(address, timeout=seconds)
