"""How much memory do the processes of an idle controller take, and what is each of them?

`python -m benchmarks.controller_memory`: the real program against a real etcd and kube-apiserver with our definitions, in
a network namespace of its own. Memory that several processes share is counted once (PSS), and each by itself (RSS).
"""

from __future__ import annotations

import contextlib
import ctypes
import http.client
import ssl
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import msgspec

from benchmarks.agent_memory import settle
from benchmarks.agent_node import Memory
from benchmarks.cni_add import ROOT, processes, sh
from benchmarks.figure import show
from benchmarks.kube_api import NODE_IP, KubeApi

STARTS, PORT = 3, 10349
CLONE_NEWNET = 0x40000000
"""Source: unshare(2)."""
TARGET = 90.0
READY_SECONDS = 60.0


def controller(directory: Path, kubeconfig: Path) -> list[str]:
    config = {"apiPort": PORT, "clientConnection": {"kubeconfig": str(kubeconfig)}}
    (directory / "antrea-controller.conf").write_bytes(msgspec.yaml.encode(config))
    command = [sys.executable, "-m", "antrea.controller.main"]
    command += [f"--config={directory}/antrea-controller.conf", f"--token-file={directory}/token"]
    return [*command, f"--certificate-dir={directory}/certificates"]


def wait_ready() -> None:
    """Until its /readyz says ok."""
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
    deadline = time.monotonic() + READY_SECONDS
    while time.monotonic() < deadline:
        probe = http.client.HTTPSConnection("127.0.0.1", PORT, context=tls, timeout=5)
        with contextlib.closing(probe), contextlib.suppress(OSError, http.client.HTTPException):
            probe.request("GET", "/readyz")
            if probe.getresponse().status == 200:
                return
        time.sleep(0.1)
    sys.exit("the controller is not ready")


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
        for file in sorted((ROOT / "build/charts/antrea/crds").glob("*.yaml")):
            definition = msgspec.yaml.decode(file.read_bytes())
            api.request("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)
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
