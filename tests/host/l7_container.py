"""The container of the L7 engine, without a runtime: its program in the root of Debian 13, in the network namespace of who starts it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Self

from netdev_switch import until

from build import debian_root

if TYPE_CHECKING:
    from collections.abc import Iterator

PROGRAM = Path(__file__).parents[2] / "build/image/run_l7_engine"
ROOM = """
set -e
root=$1 own=$2 program=$3 cgroup=$4
mount -t tmpfs run "$root/run"; mkdir -p "$root$own"; mount --bind "$own" "$root$own"
mount --rbind /dev "$root/dev"; mount --rbind /proc "$root/proc"; mount -t sysfs sysfs "$root/sys"
if [ "$cgroup" ]; then # as a runtime shows it, of version 2 or 1
    echo 0 >"$cgroup/cgroup.procs"
    mount -t tmpfs cgroup "$root/sys/fs/cgroup"; mkdir "$root/sys/fs/cgroup/memory"
    mount --bind "$cgroup" "$root/sys/fs/cgroup${5:-}"
fi
cp "$program" "$root/run/run_l7_engine"
exec chroot "$root" /run/run_l7_engine "$own"
"""
"""In a mount namespace of its own. Arguments: the root, the folder that it shares with the agent, the program; its memory cgroup and
where it sees that, or nothing."""


class EngineContainer:
    """Shares `folder`, which must be below /run, with the agent."""

    def __init__(self, folder: Path, cgroup: Path | None = None) -> None:
        self._folder = folder
        self._cgroup = (
            (str(cgroup), "" if (cgroup / "memory.max").exists() else "/memory") if cgroup else ("", "")
        )
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        root = debian_root.root(print, "suricata")
        alone = ("unshare", "--mount", "--pid", "--fork", "--kill-child", "--propagation", "private")
        words = (*alone, "sh", "-c", ROOM, "room", str(root), str(self._folder), str(PROGRAM), *self._cgroup)
        self._process = subprocess.Popen(words)
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def crash(self) -> None:
        """End the engine as a crash does; its container starts another one."""
        before = self.crash_only()
        until(lambda: self.engine() not in (0, before), "the next engine")

    def crash_only(self) -> int:
        """End the engine, whether another one starts or not; returns its process."""
        before = self.engine()
        os.kill(before, signal.SIGKILL)
        return before

    @contextlib.contextmanager
    def stopped(self) -> Iterator[None]:
        """The engine has no processor, as long as the block lasts."""
        pid = self.engine()
        os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(pid, signal.SIGCONT)

    def engine(self) -> int:
        """Its process; 0: it does not run."""
        assert self._process is not None
        return next((pid for pid in descendants(self._process.pid) if name_of(pid) == "Suricata-Main"), 0)


def descendants(pid: int) -> list[int]:
    children: list[int] = []
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").glob("*/children"):
            children += map(int, task.read_text().split())
    return [*children, *(one for child in children for one in descendants(child))]


def name_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""
