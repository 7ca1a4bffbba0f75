"""How long does an agent take from its start until 10,000 Services are in the switch, and kube-proxy until they are in its rules?

`python -m benchmarks.proxy_start [SERVICES [ROUNDS [MODE...]]]`, without kube-proxy where the only mode is `none`: the real agent, Open vSwitch (userspace datapath) and controller of `agent_node`, and
the real kube-proxy in modes nftables and, if they are named, others, by turns, with the same kube-apiserver and Services of 5 Endpoints each; needs root. Each has
run before, so that each start finds what it left: "restart"; and each waits until the processors have nothing to do: after a start of
kube-proxy the kernel frees its former rules for 2.5 s. The agent's time ends when it is ready, which it says after
all flows and groups are in the switch; kube-proxy's when its metrics tell its first synchronisation, as both have read all lists.
"""

from __future__ import annotations

import http.client
import subprocess
import sys
import time
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from figure import Against, alternate, show

from benchmarks.agent_node import AgentNode, agent_node
from benchmarks.cni_add import cpu_of
from benchmarks.known_loop import name_starved_now
from benchmarks.kube_api import store
from benchmarks.service_lists import stored
from lab import artifacts

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

SERVICES, SECONDS = 10_000, 6.0
ROUNDS = 3
MODES = ("nftables",)
METRICS = ("127.0.0.1", 10249)
SYNCHRONISED = b"kubeproxy_sync_proxy_rules_last_timestamp_seconds"
WAIT_SECONDS = 300.0
EVERY_SECONDS = 0.1
"""Either is asked whether it is through."""
REST, REST_SECONDS = 0.9, 30.0
"""Share of a second for which the processors are idle before a start; longest wait for it."""
COUNTS = {
    "nftables": ("nft", "list", "map", "ip", "kube-proxy", "service-ips"),
    "iptables": ("iptables-save", "-t", "nat"),
}
"""Commands whose output has each Service."""
MARKS = {"nftables": "goto service-", "iptables": "-A KUBE-SERVICES "}


def rest() -> None:
    """Wait until nothing is left of what was measured before. On a machine that others use, no longer than REST_SECONDS."""
    deadline = time.monotonic() + REST_SECONDS
    before = _ticks()
    while time.monotonic() < deadline:
        time.sleep(1)
        now = _ticks()
        if now[0] - before[0] > REST * (now[1] - before[1]):
            return
        before = now


def _ticks() -> tuple[int, int]:
    """Idle ones and all, of all processors. Source: proc_stat(5)."""
    found = [int(word) for word in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return found[3] + found[4], sum(found)


def agent_started(node: AgentNode, services: int, processor: list[float]) -> float:
    """Seconds until it is ready; those of its processor are added to `processor`."""
    rest()
    began = time.monotonic()
    pid = node.start_agent()
    node.wait_ready(EVERY_SECONDS)
    took = time.monotonic() - began
    processor.append(cpu_of((pid,)))
    groups = node.dump_groups()
    if groups.count("type=select") < services:
        sys.exit(f"the switch has {groups.count('type=select')} groups of {services} Services")
    node.end_agent()
    return took


@contextmanager
def kube_proxy(node: AgentNode, mode: str, services: int, **more: object) -> Iterator[float]:
    """Runs with all Services in its rules; seconds that this took. `more` are keys of its configuration."""
    program = artifacts.binaries(lambda _: None).kube_proxy
    config = {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": mode,
        "hostnameOverride": "node-1",
        "clusterCIDR": "10.244.0.0/16",
        "clientConnection": {"kubeconfig": str(node.api.kubeconfig)},
        "conntrack": {"maxPerCore": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
    }
    path = node.directory / "kube-proxy.conf"
    path.write_bytes(msgspec.yaml.encode(config | more))
    rest()
    began = time.monotonic()
    with (node.directory / "kube-proxy.log").open("wb") as log:
        running = subprocess.Popen([program, f"--config={path}"], stdout=log, stderr=log)
    try:
        while not synchronised():
            if running.poll() is not None or time.monotonic() - began > WAIT_SECONDS:
                sys.exit((node.directory / "kube-proxy.log").read_text()[-2000:])
            time.sleep(EVERY_SECONDS)
        took = time.monotonic() - began
        listed = subprocess.run(COUNTS[mode], capture_output=True, text=True, check=True).stdout
        if listed.count(MARKS[mode]) < services:
            sys.exit(f"kube-proxy has rules of {listed.count(MARKS[mode])} Services of {services}")
        yield took
    finally:
        running.terminate()
        running.wait()


def kube_proxy_started(node: AgentNode, services: int, mode: str) -> float:
    """Seconds until all is in its rules."""
    with kube_proxy(node, mode, services) as took:
        return took


def synchronised() -> bool:
    """Whether kube-proxy's first synchronisation is over, by its metrics."""
    probe = http.client.HTTPConnection(*METRICS, timeout=30)
    try:
        probe.request("GET", "/metrics")
        lines = probe.getresponse().read().splitlines()
    except (OSError, http.client.HTTPException):
        return False
    finally:
        probe.close()
    found = [float(line.split()[-1]) for line in lines if line.startswith(SYNCHRONISED)]
    return bool(found) and all(found)


def main(services: int, rounds: int, modes: Sequence[str]) -> None:
    with agent_node(0) as node:
        name_starved_now()
        store(stored(services))
        processor: list[float] = []
        measures = {"agent": partial(agent_started, node, services, processor)}
        for mode in modes:
            measures[mode] = partial(kube_proxy_started, node, services, mode)
        for measure in measures.values():
            measure()
        processor.clear()
        values = alternate(measures, rounds)
    sides = [Against(f"kube_proxy_{mode}", tuple(values[mode])) for mode in modes]
    for side in sides or (None,):
        show(f"proxy_start_{services}", "s", values["agent"], against=side, target=SECONDS)
    show(f"proxy_start_{services}_processor", "s", processor)


if __name__ == "__main__":
    words = sys.argv[1:]
    wanted = [mode for mode in words[2:] or MODES if mode != "none"]
    main(int(words[0]) if words else SERVICES, int(words[1]) if words[1:] else ROUNDS, wanted)
