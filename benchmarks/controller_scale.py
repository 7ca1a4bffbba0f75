"""How long does the controller take to start in a large cluster, and how soon do 1,000 agents have a changed policy?

`python -m benchmarks.controller_scale [SHAPE] [PART] [AGENTS] [ROUNDS]`: the real program against a real etcd and
kube-apiserver in a network namespace of its own (root). SHAPE is one of `policy_compute`'s, `large_namespaces` if none
is named: 100 Namespaces, 100,000 Pods of 1.5 KB, 10,100 policies; PART, such as 0.1, takes that part of it. The objects
are written into etcd itself, as JSON, since 200,000 requests would take longer than all else. "Published" is when the
first agent's watch of NetworkPolicies begins, which is after everything has been computed and told.

Then so many AGENTS (1,000) open the watches of real agents, four each, over TLS, in processes of their own. In each of
ROUNDS (20) somebody creates a NetworkPolicy for all Pods of a Namespace whose Pods are on as many Nodes as there are
agents, or Pods; its latency is from the request to kube-apiserver to the line at an agent. Everything shares the
processors, so seconds are upper bounds on a small machine; "cpu" is what the controller's processes were busy.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import http.client
import itertools
import json
import os
import ssl
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from figure import show

from antrea.apis import core
from antrea.apis.networking import NetworkPolicy
from antrea.engine.core import IMPLEMENTATION
from benchmarks.agent_node import Memory
from benchmarks.cni_add import ROOT, processes, sh
from benchmarks.controller_memory import CLONE_NEWNET, descendants
from benchmarks.controller_process import PORT, controller, define
from benchmarks.known_loop import name_starved_now
from benchmarks.kube_api import NODE_IP, KubeApi, pod, store
from benchmarks.policy_compute import SHAPES, objects

if TYPE_CHECKING:
    from collections.abc import Iterator

NODES = 1000
CLIENTS = 2
START_SECONDS, WATCH_SECONDS, ROUND_SECONDS = 400.0, 300.0, 60.0
START_TARGET, CHANGE_TARGET = 25.0, 1.0
CHANGED = "/apis/networking.k8s.io/v1/namespaces/ns-0/networkpolicies"
NEVER = 1 << 30
"""Every so manieth watch is slow."""


def stored(shape: str, part: float) -> Iterator[tuple[str, dict[str, Any]]]:
    """The objects by their keys in etcd; Pods as kubelet reports them, in turn on all Nodes."""
    pods = itertools.count()
    for number, one in enumerate(objects(shape, part)):
        found = json.loads(msgspec.json.encode(one))
        meta = found["metadata"]
        meta |= {"uid": f"00000000-0000-4000-8000-{number:012x}", "creationTimestamp": "2026-01-01T00:00:00Z"}
        if isinstance(one, core.Pod):
            full = pod(meta["name"], f"node-{next(pods) % NODES}")
            meta["labels"] |= full["metadata"]["labels"]
            address = f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"
            status = {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}]}
            yield f"pods/{meta['namespace']}/{meta['name']}", {**full, "metadata": meta, "status": status}
        elif isinstance(one, NetworkPolicy):
            kind = {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy"}
            yield f"networkpolicies/{meta['namespace']}/{meta['name']}", {**kind, **found}
        else:
            kind = {"apiVersion": "v1", "kind": "Namespace"}
            yield f"namespaces/{meta['name']}", {**kind, **found, "status": {"phase": "Active"}}


class Controller:
    """The program, from its start."""

    def __init__(self, directory: Path, kubeconfig: Path) -> None:
        self.directory = directory
        self._log = (directory / "controller.log").open("wb")
        self.begun = time.monotonic()
        self._running = subprocess.Popen(controller(directory, kubeconfig), cwd=ROOT, stderr=self._log)

    def wait_published(self) -> float:
        """Seconds from the start until a watch of NetworkPolicies begins."""
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
        path = (
            "/apis/controlplane.antrea.io/v1beta2/networkpolicies?watch=true&fieldSelector=nodeName%3Dnode-0"
        )
        while time.monotonic() < self.begun + START_SECONDS:
            if self._running.poll() is not None:
                break
            probe = http.client.HTTPSConnection("127.0.0.1", PORT, context=tls, timeout=START_SECONDS)
            with contextlib.closing(probe), contextlib.suppress(OSError, http.client.HTTPException):
                token = (self.directory / "token").read_text()
                probe.request("GET", path, headers={"Authorization": f"Bearer {token}"})
                answer = probe.getresponse()
                while answer.status == 200 and (line := answer.readline()):
                    if b"BOOKMARK" in line:
                        return time.monotonic() - self.begun
            time.sleep(0.2)
        sys.exit(
            f"the controller has published nothing:\n{(self.directory / 'controller.log').read_text()[-3000:]}"
        )

    def cpu(self) -> float:
        """Seconds of the processor of all its processes. Source: proc_pid_stat(5)."""
        fields = [Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split() for pid in self.pids]
        return sum(int(one[11]) + int(one[12]) for one in fields) / os.sysconf("SC_CLK_TCK")

    def memory(self) -> tuple[list[Memory], list[float]]:
        """What its processes take now, the computing one first, and the most that each took so far, in MiB."""
        peaks = []
        for pid in self.pids:
            status = Path(f"/proc/{pid}/status").read_text().splitlines()
            peaks.append(next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) / 1024)
        return [Memory.of(pid) for pid in self.pids], peaks

    @property
    def pids(self) -> list[int]:
        """The computing process, then the one that serves."""
        return descendants(self._running.pid)

    def end(self) -> None:
        self._running.terminate()
        self._running.wait()
        self._log.close()


class Agents:
    """Processes of `api_watchers_client`, each with its share of the agents."""

    def __init__(self) -> None:
        self._clients: list[asyncio.subprocess.Process] = []

    async def watch(self, token_file: Path, agents: int) -> None:
        """Begin all watches."""
        share = agents // CLIENTS
        for first in range(0, share * CLIENTS, share):
            words = (PORT, token_file, first, share, NEVER, "networkpolicies")
            command = [sys.executable, "-m", "benchmarks.api_watchers_client", *map(str, words)]
            pipes = {"stdin": asyncio.subprocess.PIPE, "stdout": asyncio.subprocess.PIPE}
            self._clients.append(await asyncio.create_subprocess_exec(*command, **pipes, limit=1 << 26))  # type: ignore[arg-type]
        await self.wait_line("ready", WATCH_SECONDS)

    async def wait_line(self, line: str, seconds: float) -> None:
        """Wait until each process has printed this line next."""
        async with asyncio.timeout(seconds):
            for client in self._clients:
                assert client.stdout is not None
                found = (await client.stdout.readline()).decode().strip()
                if found != line:
                    sys.exit(f"a process of agents printed {found!r} instead of {line!r}")

    async def latencies(self) -> dict[int, list[float]]:
        """Milliseconds of each round, of all agents; the processes end."""
        found: dict[int, list[float]] = {}
        for client in self._clients:
            out, _ = await client.communicate(b"")
            for number, values in json.loads(out.splitlines()[-1]).items():
                found.setdefault(int(number), []).extend(values)
        return found

    async def end(self) -> None:
        """Kill what still runs."""
        for client in self._clients:
            if client.returncode is None:
                client.kill()
                await client.wait()


def suffix(shape: str, part: float) -> str:
    """The end of the names of figures."""
    return f"_{shape}" + ("" if part == 1 else f"_part_{part:g}")


def start(directory: Path, api: KubeApi, shape: str, part: float) -> Controller:
    """Start the controller and show what that took."""
    running = Controller(directory, api.kubeconfig)
    seconds, busy = running.wait_published(), running.cpu()
    name, whole = f"controller_scale{suffix(shape, part)}", part == 1
    show(f"{name}_published_time", "s", [seconds], target=START_TARGET if whole else None)
    show(f"{name}_published_cpu", "s", [busy])
    show_memory(f"{name}_published", running)
    return running


def show_memory(name: str, running: Controller) -> None:
    now, peaks = running.memory()
    show(f"{name}_pss", "MiB", [sum(one.pss for one in now)])
    for process, peak in zip(("computing", "serving"), peaks, strict=True):
        show(f"{name}_peak_rss_{process}", "MiB", [peak])


async def changes(running: Controller, api: KubeApi, agents: int, rounds: int, name: str) -> None:
    """Connect the agents and change a policy in each round."""
    fleet = Agents()
    try:
        begun, busy = time.monotonic(), running.cpu()
        await fleet.watch(running.directory / "token", agents)
        show(f"{name}_{agents}_agents_synced_time", "s", [time.monotonic() - begun])
        show(f"{name}_{agents}_agents_synced_cpu", "s", [running.cpu() - busy])
        busy = running.cpu()
        for number in range(rounds):
            policy = f"round-{number}-{time.monotonic_ns()}-x"
            spec = {"podSelector": {}, "policyTypes": ["Ingress"]}
            await asyncio.to_thread(
                api.request, "POST", CHANGED, {"metadata": {"name": policy}, "spec": spec}
            )
            await fleet.wait_line(str(number), ROUND_SECONDS)
            await asyncio.to_thread(api.request, "DELETE", f"{CHANGED}/{policy}")
        show(f"{name}_{agents}_agents_change_cpu", "s", [(running.cpu() - busy) / rounds])
        show_memory(f"{name}_{agents}_agents", running)
        found = await fleet.latencies()
    finally:
        await fleet.end()
    seconds = [[one / 1000 for one in values] for values in found.values()]
    show(
        f"{name}_{agents}_agents_change_p99",
        "s",
        [statistics.quantiles(one, n=100)[98] for one in seconds],
        target=CHANGE_TARGET,
    )
    show(f"{name}_{agents}_agents_change_last", "s", [max(one) for one in seconds])


def main(shape: str, part: float, agents: int, rounds: int) -> None:
    # a network namespace of this process and its children alone: the ports are not everybody's
    ctypes.CDLL(None).unshare(CLONE_NEWNET)
    sh("ip", "link", "set", "lo", "up")
    sh("ip", "address", "add", f"{NODE_IP.format(1)}/24", "dev", "lo")
    with tempfile.TemporaryDirectory() as place, processes() as process:
        directory = Path(place)
        api = KubeApi(directory / "kube", process)
        define(api)
        count, size = store(stored(shape, part))
        print(
            f"{count} objects, {size:.0f} MB; load average {os.getloadavg()[0]:.1f};"
            f" the engine's core runs {IMPLEMENTATION}",
            flush=True,
        )
        name_starved_now()
        running = start(directory, api, shape, part)
        try:
            if agents:
                asyncio.run(changes(running, api, agents, rounds, f"controller_scale{suffix(shape, part)}"))
        finally:
            running.end()


if __name__ == "__main__":
    chosen = sys.argv[1] if sys.argv[1:] else "large_namespaces"
    if chosen not in SHAPES:
        sys.exit(f"{chosen} is none of the shapes {', '.join(SHAPES)}")
    main(
        chosen,
        float(sys.argv[2]) if sys.argv[2:] else 1.0,
        int(sys.argv[3]) if sys.argv[3:] else 1000,
        int(sys.argv[4]) if sys.argv[4:] else 20,
    )
