"""What does connecting a Pod cost? ADD and DEL in 110 network namespaces, against the reference bridge and host-local.

Both run in one fresh network namespace, in turns, five times: 110 ADDs and 110 DELs one at a time, then ten at a time.
CPU time is that of the plugin, the agent and all processes that these start; what Open vSwitch itself uses is a figure
of its own. Needs root, Open vSwitch and the reference plugins.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from figure import Against, show

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PODS = 110
ROUNDS = 5
SLOWER = 2
"""Times the reference's median that ours may take: a flow is waited for that the reference does not have."""
CPU_TARGET = 25
"""Milliseconds per Pod, for ADD and DEL together."""
ROOT = Path(__file__).parents[1]
REFERENCE = Path("/usr/lib/cni")
SCHEMA = Path("/usr/share/openvswitch/vswitch.ovsschema")
GATEWAY_MAC = "0a:00:00:00:00:01"
CLONE_NEWNET = 0x40000000


class Cost(msgspec.Struct):
    """Of one round: seconds of each ADD and DEL, by Pod; and CPU milliseconds per Pod."""

    adds: list[float]
    dels: list[float]
    cpu: float
    switch_cpu: float

    def both(self) -> list[float]:
        return [add + gone for add, gone in zip(self.adds, self.dels, strict=True)]


class Contender(msgspec.Struct):
    """A plugin, its configuration, and the processes that work for it."""

    plugin: Path
    config: bytes
    path: Path
    """CNI_PATH"""
    pids: tuple[int, ...] = ()
    switch_pids: tuple[int, ...] = ()

    def call(self, command: str, number: int, netns: str) -> float:
        """Seconds until the plugin has answered."""
        environment = {
            "CNI_COMMAND": command,
            "CNI_CONTAINERID": f"container-{number}",
            "CNI_NETNS": netns,
            "CNI_IFNAME": "eth0",
            "CNI_PATH": str(self.path),
            "CNI_ARGS": f"IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=web-{number}",
            "PATH": os.environ["PATH"],
        }
        start = time.perf_counter()
        done = subprocess.run(
            [self.plugin], input=self.config, env=environment, capture_output=True, check=False
        )
        took = time.perf_counter() - start
        if done.returncode:
            sys.exit(f"{self.plugin.name} {command}: {done.stdout.decode()}{done.stderr.decode()}")
        return took


def measure(contender: Contender, namespaces: list[str], width: int) -> Cost:
    """One round: all ADDs, then all DELs, `width` at a time."""
    cpu, switch_cpu = cpu_of(contender.pids) + cpu_of_children(), cpu_of(contender.switch_pids)
    numbers = range(len(namespaces))
    with ThreadPoolExecutor(width) as pool:
        adds = list(pool.map(functools.partial(contender.call, "ADD"), numbers, namespaces))
        dels = list(pool.map(functools.partial(contender.call, "DEL"), numbers, namespaces))
    cpu = cpu_of(contender.pids) + cpu_of_children() - cpu
    switch_cpu = cpu_of(contender.switch_pids) - switch_cpu
    return Cost(adds, dels, cpu / len(namespaces) * 1e3, switch_cpu / len(namespaces) * 1e3)


def cpu_of(pids: tuple[int, ...]) -> float:
    """Seconds that processes and their ended children have used."""
    ticks = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += sum(map(int, fields[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def cpu_of_children() -> float:
    """Seconds that ended children of this process have used, and theirs."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


@contextlib.contextmanager
def namespaces(count: int) -> Iterator[list[str]]:
    """Paths of fresh network namespaces; this thread, and what it starts, is in another one, `home`."""
    prefix = f"antrea-b-{uuid.uuid4().hex[:8]}"
    names = [f"{prefix}-home", *(f"{prefix}-{number}" for number in range(count))]
    made = []
    before = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    libc = ctypes.CDLL(None, use_errno=True)
    try:
        for name in names:
            sh("ip", "netns", "add", name)
            made.append(name)
            sh("ip", "-n", name, "link", "set", "lo", "up")
        with Path("/var/run/netns", names[0]).open() as home:
            if libc.setns(home.fileno(), CLONE_NEWNET):
                raise OSError(ctypes.get_errno(), "setns")
        yield [f"/var/run/netns/{name}" for name in names[1:]]
    finally:
        libc.setns(before, CLONE_NEWNET)
        os.close(before)
        for name in made:
            sh("ip", "netns", "del", name)


@contextlib.contextmanager
def processes() -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Starts processes, and ends exactly those."""
    started: list[subprocess.Popen[bytes]] = []

    def start(*command: str, **options: Any) -> subprocess.Popen[bytes]:
        started.append(subprocess.Popen(command, **options))
        return started[-1]

    try:
        yield start
    finally:
        for process in reversed(started):
            process.kill()
            process.wait()


def open_vswitch(directory: Path, start: Callable[..., subprocess.Popen[bytes]]) -> tuple[int, ...]:
    """With its userspace datapath, br-int and the gateway; returns the ids of its processes."""
    own = {f"OVS_{kind}DIR": str(directory) for kind in ("RUN", "LOG", "SYSCONF", "DB")}
    quiet = ("-vconsole:off", "-vsyslog:off", "-vfile:off")
    environment, database = {**os.environ, **own}, f"unix:{directory}/db.sock"

    def daemon(name: str, *words: str) -> int:
        control = f"--unixctl={directory}/{name}.ctl"
        return start(name, *words, *quiet, control, env=environment, cwd=directory).pid

    sh("ovsdb-tool", "create", f"{directory}/conf.db", str(SCHEMA))
    pids = [daemon("ovsdb-server", f"{directory}/conf.db", f"--remote=punix:{directory}/db.sock")]
    until(directory / "db.sock")
    vsctl = ("ovs-vsctl", f"--db={database}", "--timeout=10")
    sh(*vsctl, "--no-wait", "init")
    pids.append(daemon("ovs-vswitchd", database))
    bridge = ("datapath_type=netdev", "fail_mode=secure", "protocols=OpenFlow10,OpenFlow15")
    sh(*vsctl, "add-br", "br-int", "--", "set", "bridge", "br-int", *bridge)
    gateway = ("--", "set", "interface", "antrea-gw0", "type=internal", f'mac="{GATEWAY_MAC}"')
    kind = ("--", "set", "port", "antrea-gw0", "external_ids:antrea-type=gateway")
    sh(*vsctl, "add-port", "br-int", "antrea-gw0", *gateway, *kind)
    return tuple(pids)


def ours(directory: Path, start: Callable[..., subprocess.Popen[bytes]]) -> Contender:
    """Open vSwitch, the agent and our plugin."""
    pids = open_vswitch(directory, start)
    settings = json.dumps({"run_dir": str(directory), "directory": str(directory)})
    agent = start(sys.executable, "-m", "benchmarks.cni_add_agent", settings, cwd=ROOT)
    until(directory / "ready")
    sh("make", "-s", "-C", str(ROOT / "cni"))
    config = {
        "cniVersion": "1.0.0",
        "name": "antrea",
        "type": "antrea",
        "ipam": {"type": "host-local"},
        "cniSocket": str(directory / "cni.sock"),
    }
    plugin = ROOT / "cni" / "antrea-cni"
    return Contender(plugin, json.dumps(config).encode(), ROOT, (agent.pid,), pids)


def reference(directory: Path) -> Contender:
    """The reference plugins as a kind cluster or a textbook has them."""
    config = {
        "cniVersion": "1.0.0",
        "name": "reference",
        "type": "bridge",
        "bridge": "cni0",
        "isGateway": True,
        "mtu": 1450,
        "ipam": {
            "type": "host-local",
            "ranges": [[{"subnet": "10.245.1.0/24"}]],
            "routes": [{"dst": "0.0.0.0/0"}],
            "dataDir": str(directory / "reference"),
        },
    }
    return Contender(REFERENCE / "bridge", json.dumps(config).encode(), REFERENCE)


def until(path: Path) -> None:
    """Wait for a file."""
    deadline = time.monotonic() + 20
    while not path.exists():
        if time.monotonic() > deadline:
            sys.exit(f"no {path.name} after 20 s")
        time.sleep(0.01)


def sh(*command: str) -> None:
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def percentile(times: Callable[[Cost], list[float]], share: float, cost: Cost) -> float:
    """Milliseconds."""
    return statistics.quantiles(times(cost), n=100, method="inclusive")[round(share * 100) - 1] * 1e3


def report(width: int, mine: list[Cost], theirs: list[Cost]) -> None:
    """The figures of `width` calls at a time."""

    def compared(name: str, unit: str, of: Callable[[Cost], float], target: float | None = None) -> None:
        against = Against("bridge+host-local", tuple(map(of, theirs)))
        show(f"cni_{name}_{width}", unit, [of(cost) for cost in mine], against=against, target=target)

    latencies: dict[str, Callable[[Cost], list[float]]] = {
        "add": lambda cost: cost.adds,
        "add_del": Cost.both,
    }
    for name, times in latencies.items():
        median = functools.partial(percentile, times, 0.5)
        compared(f"{name}_p50", "ms", median, SLOWER * statistics.median(map(median, theirs)))
        compared(f"{name}_p99", "ms", functools.partial(percentile, times, 0.99))
    compared("cpu", "ms/Pod", lambda cost: cost.cpu, CPU_TARGET)
    show(f"cni_switch_cpu_{width}", "ms/Pod", [cost.switch_cpu for cost in mine])


def main() -> None:
    directory = Path(tempfile.mkdtemp(prefix="cni-"))
    try:
        with namespaces(PODS) as paths, processes() as start:
            contenders = (ours(directory, start), reference(directory))
            for contender in contenders:
                measure(contender, paths[:10], 1)
            for width in (1, 10):
                costs: tuple[list[Cost], ...] = ([], [])
                for _ in range(ROUNDS):
                    for contender, found in zip(contenders, costs, strict=True):
                        found.append(measure(contender, paths, width))
                report(width, *costs)
    finally:
        shutil.rmtree(directory)


if __name__ == "__main__":
    main()
