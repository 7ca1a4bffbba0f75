"""How soon do 1,000 load-balancer Services have addresses of a new pool, and how soon has one more?

`python -m benchmarks.service_pool [SERVICES] [ROUNDS] [MORE]`: the real controller against a real etcd and kube-apiserver, in a
network namespace of its own (root). Services that ask for an address of a pool are there first. In each of ROUNDS (5) somebody
creates the pool, and the time ends when a watch has shown an address for each Service; then the pool is deleted, and the time ends
when none has one. In the same rounds one client patches the status of each Service once, one request after the other: what that many
writes cost here without anybody's decision. In the end MORE (100) Services are created and deleted one by one: from the request to the
address in a watch. Which Node answers is the agents' part, and not in it.
"""

from __future__ import annotations

import ctypes
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from figure import Against, show

from benchmarks.cni_add import ROOT, processes, sh
from benchmarks.controller_memory import CLONE_NEWNET
from benchmarks.controller_process import controller, wait_ready
from benchmarks.known_loop import name_starved_now
from benchmarks.kube_api import NODE_IP, KubeApi

if TYPE_CHECKING:
    from collections.abc import Callable

SERVICES = "/api/v1/namespaces/default/services"
POOLS = "/apis/crd.antrea.io/v1beta1/externalippools"
POOL = {
    "apiVersion": "crd.antrea.io/v1beta1",
    "kind": "ExternalIPPool",
    "metadata": {"name": "p"},
    "spec": {"ipRanges": [{"cidr": "10.77.0.0/20"}], "nodeSelector": {}},
}
FIRST_SECONDS, MORE_SECONDS = 10.0, 0.2
"""Targets: all of them; one more, of a hundred the last but one."""
WAIT_SECONDS = 120.0
"""Until the benchmark gives up."""


class Addresses:
    """Addresses of Services as a watch shows them, and since when."""

    def __init__(self, api: KubeApi) -> None:
        self._changed = threading.Condition()
        self._held: dict[str, str] = {}
        self._over = ""
        """Why the watch shows nothing more."""
        self._lines = api.watch(f"{SERVICES}?watch=true&resourceVersion=0")
        threading.Thread(target=self._follow, daemon=True).start()

    def _follow(self) -> None:
        for found in self._lines:
            if found["type"] == "ERROR":
                break
            ingress = found["object"]["status"]["loadBalancer"].get("ingress") or [{"ip": ""}]
            name = found["object"]["metadata"]["name"]
            with self._changed:
                if found["type"] == "DELETED":
                    self._held.pop(name, None)
                else:
                    self._held[name] = ingress[0]["ip"]
                self._changed.notify_all()
        with self._changed:
            self._over = "the watch of Services ended"
            self._changed.notify_all()

    def until(self, condition: Callable[[dict[str, str]], bool], begun: float) -> float:
        """Seconds from `begun` until it is true of the addresses by Service."""
        with self._changed:
            if not self._changed.wait_for(lambda: condition(self._held), WAIT_SECONDS):
                sys.exit(
                    f"{sum(map(bool, self._held.values()))} of {len(self._held)} Services have an address"
                )
        return time.monotonic() - begun


def service(name: str) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "annotations": {"service.antrea.io/external-ip-pool": "p"}},
        "spec": {
            "type": "LoadBalancer",
            "allocateLoadBalancerNodePorts": False,
            "selector": {"app": name},
            "ports": [{"port": 80, "targetPort": 8080}],
        },
    }


def write_each(api: KubeApi, names: list[str], round_number: int) -> float:
    """Seconds of one patch for each Service's status; the controller has nothing to do with what they say."""
    condition = {
        "type": "example.com/Measured",
        "status": "True",
        "reason": f"Round{round_number}",
        "message": "",
    }
    condition["lastTransitionTime"] = "2026-01-01T00:00:00Z"
    begun = time.monotonic()
    for name in names:
        patch = {"status": {"conditions": [condition]}}
        api.request("PATCH", f"{SERVICES}/{name}/status", patch, "application/strategic-merge-patch+json")
    return time.monotonic() - begun


def measure(api: KubeApi, count: int, rounds: int, more: int) -> None:
    addresses, names = Addresses(api), [f"svc-{number}" for number in range(count)]
    for name in names:
        api.request("POST", SERVICES, service(name))
    given, taken, written = list[float](), list[float](), list[float]()
    for number in range(rounds):
        begun = time.monotonic()
        api.request("POST", POOLS, POOL)
        given.append(
            addresses.until(
                lambda held: len({held.get(name) or name for name in names} - set(names)) == count, begun
            )
        )
        if number < rounds - 1:
            begun = time.monotonic()
            api.request("DELETE", f"{POOLS}/p")
            taken.append(addresses.until(lambda held: not any(held[name] for name in names), begun))
        written.append(write_each(api, names, number))
    against = Against("one client's status patches", tuple(written))
    show(f"service_pool_{count}_assigned", "s", given, against=against, target=FIRST_SECONDS)
    if taken:
        show(f"service_pool_{count}_taken_away", "s", taken, against=against)
    times = []
    for number in range(more):
        name = f"more-{number}"
        begun = time.monotonic()
        api.request("POST", SERVICES, service(name))
        times.append(addresses.until(lambda held, name=name: bool(held.get(name)), begun))  # type: ignore[misc]
        api.request("DELETE", f"{SERVICES}/{name}")
    show(f"service_pool_{count}_one_more", "ms", [1000 * one for one in times])
    if more > 1:
        p99 = statistics.quantiles(times, n=100)[98]
        show(f"service_pool_{count}_one_more_p99", "ms", [1000 * p99], target=1000 * MORE_SECONDS)


def main(count: int, rounds: int, more: int) -> None:
    # a network namespace of this process and its children alone: the ports are not everybody's
    ctypes.CDLL(None).unshare(CLONE_NEWNET)
    sh("ip", "link", "set", "lo", "up")
    sh("ip", "address", "add", f"{NODE_IP.format(1)}/24", "dev", "lo")
    with tempfile.TemporaryDirectory() as place, processes() as start:
        directory = Path(place)
        api = KubeApi(directory / "kube", start)
        for file in sorted((ROOT / "build/charts/antrea/crds").glob("*.yaml")):
            definition = msgspec.yaml.decode(file.read_bytes())
            api.request("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)
        with (directory / "log").open("wb") as log:
            running = subprocess.Popen(controller(directory, api.kubeconfig), cwd=ROOT, stderr=log)
        try:
            wait_ready()
            print(f"load average {os.getloadavg()[0]:.1f}", flush=True)
            name_starved_now()
            measure(api, count, rounds, more)
        finally:
            running.terminate()
            running.wait()


if __name__ == "__main__":
    numbers = [int(word) for word in sys.argv[1:]]
    main(*(numbers + [1000, 5, 100][len(numbers) :]))
