"""How long do clients outside get no answers when the Node of an external IP loses its power, and what do they lose when it is drained?

`python -m benchmarks.service_failover [ROUNDS [DRAINS [PROXY]]]`: a lab of three Nodes, each of which may answer for the address of a
Service whose Pods are on one that does not do so first. A client on the subnet of the Nodes and one behind the router each open 100 connections a second and
keep twenty open. In ROUNDS (5) the Node of the address loses its power; in DRAINS (10) it is cordoned, for longer than a client waits for an answer, and uncordoned. PROXY is `all`
(AntreaProxy alone, the default), or kube-proxy's mode `iptables` or `nftables`.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from figure import show

from antrea.errors import Unavailable
from benchmarks.failover import NODES, agent_of, has_sessions, thing
from lab import cluster, fault, node
from lab.images import AGNHOST
from lab.process import wait_for
from lab.record import Record
from lab.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab.cluster import Lab

ROUNDS, DRAINS = 5, 10
MEDIAN, MAX_SECONDS = 0.6, 1.0
"""Targets in seconds."""
IP = "172.30.0.210"
CLIENTS = ("gateway", "outside")
PROGRAM = Path(__file__).parents[1] / "tests/lab/service_client.py"
PROXIES = {
    "all": Settings(nodes=3, kube_proxy="none", proxy_all=True),
    "iptables": Settings(nodes=3),
    "nftables": Settings(nodes=3, kube_proxy="nftables"),
}
SETTLED_SECONDS = 2.0
"""Before and after what is measured."""
AWAY_SECONDS = 12.0
"""Longer than a client waits for an answer: connections that only wait for the address to come back are lost."""


class Found(msgspec.Struct, frozen=True):
    """What one client says in the end."""

    sent: int
    gap: float
    slow: int
    """New connections that waited for more than 0.9 s: a packet was repeated, or the machine was busy."""
    lost: list[tuple[float, str]]
    staying: int
    broken: list[tuple[float, str]]
    longest: float


def pool_and_service() -> str:
    pool = {"ipRanges": [{"start": IP, "end": IP}], "nodeSelector": {}}
    service = {
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": "web", "annotations": {"service.antrea.io/external-ip-pool": "any"}},
        "spec": {"type": "LoadBalancer", "selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": 8080}]},
    }  # fmt: skip
    return "\n---\n".join([thing("ExternalIPPool", "any", pool), json.dumps(service)])


def pods(where: str) -> str:
    args = ["netexec", "--http-port=8080"]
    container = {"name": "main", "image": AGNHOST, "imagePullPolicy": "Never", "args": args}
    found: list[dict[str, Any]] = [
        {
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"web-{number}", "labels": {"app": "web"}},
            "spec": {"nodeName": where, "terminationGracePeriodSeconds": 0, "containers": [container]},
        }
        for number in range(2)
    ]  # fmt: skip
    return "\n---\n".join(map(json.dumps, found))


def owner(lab: Lab, where: str) -> str:
    """As the agent of a Node finds it; empty: none."""
    antctl = ("-c", "antrea-agent", "--", "antctl", "get", "serviceexternalip", "-o", "json")
    try:
        rows = json.loads(lab.api.kubectl("-n", "kube-system", "exec", agent_of(lab, where), *antctl))
    except Unavailable:
        return ""
    return next((str(row.get("assignedNode", "")) for row in rows if row["serviceName"] == "web"), "")


def answers(lab: Lab, machine: str) -> bool:
    inside = cluster.enter(lab, machine, ["curl", "-s", "--max-time", "2", f"http://{IP}/"])
    return subprocess.run(inside, capture_output=True, check=False).returncode == 0


@contextlib.contextmanager
def asking(lab: Lab) -> Iterator[dict[str, Found]]:
    """Both clients ask while the block lasts; then the dictionary has what came of it."""
    found: dict[str, Found] = {}
    with contextlib.ExitStack() as stack:
        clients = {}
        for machine in CLIENTS:
            words = cluster.enter(lab, machine, [sys.executable, str(PROGRAM), IP, "80"])
            one = stack.enter_context(subprocess.Popen(words, stdin=-1, stdout=-1, text=True))
            stack.callback(one.kill)
            assert one.stdout is not None
            assert one.stdout.readline() == "asking\n"
            clients[machine] = one
        time.sleep(SETTLED_SECONDS)
        yield found
        time.sleep(SETTLED_SECONDS)
        for machine, one in clients.items():
            found[machine] = msgspec.json.decode(one.communicate("\n", timeout=120)[0], type=Found)


def moved(lab: Lab, stays: str, lost: str) -> bool:
    return owner(lab, stays) not in ("", lost)


def outage(lab: Lab, stays: str) -> dict[str, Found]:
    """The power of the Node goes, and comes back after what is measured."""
    lost = owner(lab, stays)
    for name in NODES:
        wait_for(f"BFD of {name}", partial(has_sessions, lab, name, len(NODES) - 1), seconds=60)
    time.sleep(3)  # a session counts after two seconds
    with asking(lab) as found:
        fault.inject(lab, lost, "power-off")
        wait_for("the next Node", partial(moved, lab, stays, lost), seconds=60)
    fault.inject(lab, lost, "power-on")
    # the kubelet waits longer before each start of a container that ended; not before that of a new Pod
    lab.api.kubectl("-n", "kube-system", "delete", agent_of(lab, lost), "--force", "--grace-period=0")
    wait_for("the Node back", partial(is_back, lab, stays, lost), seconds=300)
    return found


def is_back(lab: Lab, stays: str, name: str) -> bool:
    try:
        ready = node.execute(lab.record, name, "curl", "-sk", "-m", "2", "https://127.0.0.1:10350/readyz")
    except Unavailable:
        return False
    return ready.strip() == "ok" and owner(lab, stays) == name


def drain(lab: Lab, stays: str) -> dict[str, Found]:
    """The Node goes and returns."""
    home = owner(lab, stays)
    with asking(lab) as found:
        lab.api.kubectl("cordon", home)
        wait_for("the next Node", partial(moved, lab, stays, home), seconds=60)
        time.sleep(AWAY_SECONDS)
    lab.api.kubectl("uncordon", home)
    wait_for("the address at home", lambda: owner(lab, stays) == home, seconds=60)
    return found


def told(number: int, what: str, found: dict[str, Found]) -> None:
    print(f"{number + 1}, {what}: {msgspec.json.encode(found).decode()}", file=sys.stderr, flush=True)


def measure(lab: Lab, stays: str, rounds: int, drains: int) -> None:
    """`stays` is a Node that is neither drained nor without power."""
    gaps: dict[str, list[float]] = {machine: [] for machine in CLIENTS}
    for number in range(rounds):
        told(number, "power off", found := outage(lab, stays))
        for machine, one in found.items():
            gaps[machine].append(one.gap)
    for machine, values in gaps.items() if rounds else ():
        show(f"service_failover_{machine}", "s", values, target=MEDIAN)
        show(f"service_failover_{machine}_longest", "s", [max(values)], target=MAX_SECONDS)
    each: list[Found] = []
    for number in range(drains):
        told(number, "drain", found := drain(lab, stays))
        each += found.values()
    if each:
        show("service_drain_new", "connections", [sum(one.sent for one in each)])
        show("service_drain_lost_new", "connections", [sum(len(one.lost) for one in each)], target=0)
        show("service_drain_slow_new", "connections", [sum(one.slow for one in each)])
        show("service_drain_established", "connections", [sum(one.staying for one in each)])
        show(
            "service_drain_lost_established", "connections", [sum(len(one.broken) for one in each)], target=0
        )


def main() -> None:
    """Figures on standard output, each round on standard error."""
    rounds, drains = (*map(int, sys.argv[1:3]), *(ROUNDS, DRAINS)[len(sys.argv[1:3]) :])
    proxy = sys.argv[3] if len(sys.argv) > 3 else "all"
    record = Record(f"servicefailover{os.getpid()}")
    try:
        lab = cluster.up(record, PROXIES[proxy], lambda _line: None)
        lab.api.apply(pool_and_service())
        wait_for("a Node for the address", lambda: owner(lab, NODES[0]), seconds=60)
        home = owner(lab, NODES[0])
        stays = next(name for name in NODES if name != home)
        lab.api.apply(pods(stays))
        ready = ("--for=condition=Ready", "pods", "-l", "app=web", "--timeout=90s")
        lab.api.kubectl("wait", *ready, seconds=120)
        for machine in CLIENTS:
            wait_for(f"an answer to {machine}", partial(answers, lab, machine), seconds=60)
        measure(lab, stays, rounds, drains)
    finally:
        cluster.down(record)


if __name__ == "__main__":
    main()
