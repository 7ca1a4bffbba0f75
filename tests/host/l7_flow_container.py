"""The container of the L7 flow engine, without a runtime: its program in a root of Debian 13, in the network namespace of who starts it."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Self

from build import debian_root

if TYPE_CHECKING:
    from types import TracebackType

PROGRAM = Path(__file__).parents[2] / "build/image/run_l7_flow_engine"
ROOM = """
set -e
root=$1 own=$2 program=$3
mount -t tmpfs run "$root/run"; mount -t tmpfs tmp "$root/tmp"
mkdir -p "$root$own"; mount --bind "$own" "$root$own"
mount --rbind /dev "$root/dev"; mount -t proc proc "$root/proc"; mount -t sysfs sysfs "$root/sys"
cp "$program" "$root/run/run_l7_flow_engine"
exec chroot "$root" /run/run_l7_flow_engine "$own"
"""
"""In namespaces of its own. Arguments: the root, the folder that it shares with the agent, the program."""


class FlowEngineContainer:
    """Shares `folder`, which must be below /tmp, with the agent."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        root = debian_root.root(print, "suricata")
        alone = ("unshare", "--mount", "--pid", "--fork", "--kill-child", "--propagation", "private")
        words = (*alone, "sh", "-c", ROOM, "room", str(root), str(self._folder), str(PROGRAM))
        self._process = subprocess.Popen(words)
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def engines(self) -> list[int]:
        """Processes of the engine."""
        assert self._process is not None
        return [pid for pid in descendants(self._process.pid) if name_of(pid) == "Suricata-Main"]


def descendants(pid: int) -> list[int]:
    """Processes that it has started, and theirs."""
    children: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            children += map(int, task.read_text().split())
        except OSError:
            continue
    return [*children, *(one for child in children for one in descendants(child))]


def name_of(pid: int) -> str:
    """Empty if it has ended."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""
