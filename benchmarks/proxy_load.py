"""How many requests to a Service fail while its Endpoints are replaced, by who serves it?

`python -m benchmarks.proxy_load [ROUNDS]`: labs of two Nodes, one after the other: AntreaProxy for all Services, kube-proxy in mode
nftables and in mode iptables with AntreaProxy off. A Pod opens 50 connections a second to the ClusterIP of a Deployment of 20 Pods,
which is restarted with `kubectl rollout restart` in each round; its Pods have a readiness probe, and answer for 5 s after SIGTERM.
Figures are requests without an answer in each round, and the 99th percentile of the duration of all others.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from figure import Against, show

from benchmarks.failover import pod
from lab import cluster, node
from lab.images import AGNHOST
from lab.process import wait_for
from lab.record import Record
from lab.settings import Settings

if TYPE_CHECKING:
    from lab.cluster import Lab

ROUNDS, REPLICAS, RATE = 3, 20, 50
CLIENT = (sys.executable, str(Path(__file__).with_name("proxy_load_client.py")))
OFF = {"antreaProxy": {"enable": False}}
SIDES = {
    "antrea": Settings(nodes=2, kube_proxy="none", proxy_all=True),
    "nftables": Settings(nodes=2, kube_proxy="nftables", agent=OFF),
    "iptables": Settings(nodes=2, kube_proxy="iptables", agent=OFF),
}
CONTAINER = {
    "name": "web",
    "image": AGNHOST,
    "imagePullPolicy": "Never",
    "args": ["netexec", "--http-port=8080", "--delay-shutdown=5"],
    "readinessProbe": {"httpGet": {"path": "/healthz", "port": 8080}, "periodSeconds": 1},
}
LABELS = {"app": "web"}
DEPLOYMENT = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "web"},
    "spec": {
        "replicas": REPLICAS,
        "selector": {"matchLabels": LABELS},
        "template": {"metadata": {"labels": LABELS}, "spec": {"containers": [CONTAINER]}},
    },
}
SERVICE = {
    "apiVersion": "v1",
    "kind": "Service",
    "metadata": {"name": "web"},
    "spec": {"selector": LABELS, "ports": [{"port": 80, "targetPort": 8080}]},
}


class Round(msgspec.Struct, frozen=True):
    """What the client prints."""

    sent: int
    failed: list[tuple[float, str]]
    milliseconds: list[float]
    servers: int


def prepare(lab: Lab) -> tuple[str, str]:
    """Address of the client Pod and of the Service, all Endpoints of which are ready."""
    for thing in (DEPLOYMENT, SERVICE):
        lab.api.apply(json.dumps(thing))
    lab.api.apply(pod("client", "node-1"))
    lab.api.kubectl("wait", "--for=condition=Ready", "pod/client", "--timeout=90s")
    rolled(lab)
    client = lab.api.kubectl("get", "pod", "client", "-o", "jsonpath={.status.podIP}")
    return client, lab.api.kubectl("get", "service", "web", "-o", "jsonpath={.spec.clusterIP}")


def rolled(lab: Lab) -> None:
    """All Pods of the Deployment are the newest, and ready."""
    lab.api.kubectl("rollout", "status", "deployment/web", "--timeout=300s")


def pods(lab: Lab) -> list[str]:
    """Those of the Deployment, also while they end."""
    return lab.api.kubectl("get", "pods", "-l", "app=web", "-o", "name").split()


def restarted(lab: Lab, client: str, service: str) -> Round:
    """The requests while the Deployment is restarted."""
    words = [*node.inside_pod(lab.record, "node-1", client), *CLIENT, service, "80", str(RATE)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as asking:
        assert asking.stdout is not None
        assert asking.stdout.readline() == "begun\n"
        lab.api.kubectl("rollout", "restart", "deployment/web")
        rolled(lab)
        wait_for("the end of the Pods before", lambda: len(pods(lab)) == REPLICAS, seconds=120)
        out, _ = asking.communicate("", timeout=120)
    return msgspec.json.decode(out, type=Round)


def measured(name: str, settings: Settings, rounds: int) -> list[Round]:
    """Of a lab of its own; each round on standard error."""
    record, found = Record(f"load{os.getpid()}{name[:1]}"), list[Round]()
    try:
        lab = cluster.up(record, settings, lambda _line: None)
        client, service = prepare(lab)
        for number in range(rounds):
            one = restarted(lab, client, service)
            told = (f"{one.sent} sent", f"{one.servers} servers", f"failed {one.failed[:5]}")
            print(f"{name} {number + 1}: {', '.join(told)}", file=sys.stderr)
            found.append(one)
    finally:
        cluster.down(record)
    return found


def main() -> None:
    """Figures on standard output."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS
    found = {name: measured(name, settings, rounds) for name, settings in SIDES.items()}
    failed = {name: tuple(float(len(one.failed)) for one in rows) for name, rows in found.items()}
    slow = {name: tuple(percentile(one.milliseconds) for one in rows) for name, rows in found.items()}
    for other in ("nftables", "iptables"):
        against = Against(f"kube-proxy {other}", failed[other])
        show("proxy_load_failed", "requests", failed["antrea"], against=against, target=0)
        show("proxy_load_p99", "ms", slow["antrea"], against=Against(f"kube-proxy {other}", slow[other]))


def percentile(values: list[float]) -> float:
    """The 99th."""
    return statistics.quantiles(values, n=100)[98]


if __name__ == "__main__":
    main()
