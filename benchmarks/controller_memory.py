"""How much memory do the processes of an idle controller take, and what is each of them?

`python -m benchmarks.controller_memory`: the real program against a real etcd and kube-apiserver with our definitions, in
a network namespace of its own. Memory that several processes share is counted once (PSS), and each by itself (RSS).
"""

from __future__ import annotations

import ctypes
import subprocess
import tempfile
from pathlib import Path

from figure import show

from benchmarks.agent_memory import settle
from benchmarks.agent_node import Memory
from benchmarks.cni_add import ROOT, processes, sh
from benchmarks.controller_process import controller, define, wait_ready
from benchmarks.kube_api import NODE_IP, KubeApi

STARTS = 3
CLONE_NEWNET = 0x40000000
"""Source: unshare(2)."""
TARGET = 90.0


def descendants(pid: int) -> list[int]:
    """A process and all that it started, directly or not. Source: proc_pid_task_children(5)."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *(one for child in children for one in descendants(int(child)))]


def main() -> None:
    # a network namespace of this process and its children alone: the ports are not everybody's
    ctypes.CDLL(None).unshare(CLONE_NEWNET)
    sh("ip", "link", "set", "lo", "up")
    sh("ip", "address", "add", f"{NODE_IP.format(1)}/24", "dev", "lo")
    found: dict[str, list[Memory]] = {"computing": [], "serving": []}
    with tempfile.TemporaryDirectory() as place, processes() as start:
        directory = Path(place)
        api = KubeApi(directory / "kube", start)
        define(api)
        for _ in range(STARTS):
            with (directory / "log").open("wb") as log:
                running = subprocess.Popen(controller(directory, api.kubeconfig), cwd=ROOT, stderr=log)
            try:
                wait_ready()
                pids = descendants(running.pid)
                for pid in pids:
                    settle(pid)
                for name, pid in zip(found, pids, strict=True):
                    found[name].append(Memory.of(pid))
            finally:
                running.terminate()
                running.wait()
    for name, memories in found.items():
        show(f"controller_memory_{name}_rss", "MiB", [memory.rss for memory in memories])
    pairs = list(zip(*found.values(), strict=True))
    show("controller_memory_pss", "MiB", [sum(one.pss for one in pair) for pair in pairs], target=TARGET)
    show("controller_memory_rss", "MiB", [sum(one.rss for one in pair) for pair in pairs], target=TARGET)


if __name__ == "__main__":
    main()
