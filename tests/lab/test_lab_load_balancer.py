"""The load balancer outside the cluster that examples/node-port-local offers: it reads annotations, and counts come out even."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import traffic
from config_map import ConfigMap, wait_value
from quiet_pod import POD, SERVING

from lab import cluster, control_plane, namespace
from lab.images import AGNHOST
from lab.process import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab.cluster import Lab

BALANCER = Path(__file__).parents[2] / "examples/node-port-local/balancer.py"
ADDRESS = "192.0.2.80"
PODS = {"balanced-a": "node-1", "balanced-b": "node-2", "balanced-c": "node-2"}
SERVICE = """
apiVersion: v1
kind: Service
metadata: {name: balanced, annotations: {nodeportlocal.antrea.io/enabled: "true"}}
spec: {selector: {balanced: "yes"}, ports: [{port: 80, targetPort: 8080}]}
"""
CONNECTIONS = 60


def pod(name: str) -> str:
    text = POD.replace("NAME}", 'NAME, labels: {balanced: "yes"}}').replace("NAME", name)
    return text.replace("NODE", PODS[name]).replace("IMAGE", AGNHOST).replace("ARGS", SERVING)


@pytest.fixture
def balanced(lab: Lab) -> Iterator[Lab]:
    """Three Pods on two Nodes, with ports of these."""
    config = ConfigMap(lab)
    config.change(nodePortLocal={"enable": True, "portRange": "61000-61010"})
    try:
        wait_value(lab, "nodePortLocal.portRange", "61000-61010")
        lab.api.apply(SERVICE + "---" + "".join(map(pod, PODS)))
        yield lab
    finally:
        lab.api.kubectl("delete", "service,pod", "-l", "balanced=yes", "--wait=false")
        lab.api.kubectl("delete", "service", "balanced", "--ignore-not-found", "--wait=false")
        config.write(config.text)
        wait_value(lab, "nodePortLocal.portRange", "61000-62000")


def answers(lab: Lab, number: int = CONNECTIONS) -> Counter[str]:
    """Names of the Pods that answer that many connections of their own; an error counts as one."""
    line = f"for i in $(seq {number}); do curl -sS --max-time 3 http://{ADDRESS}/hostname 2>&1 || true; echo; done"
    run = subprocess.run(
        cluster.enter(lab, "outside", ["sh", "-c", line]),
        capture_output=True,
        text=True,
        check=True,
        timeout=240,
    )
    return Counter(filter(None, run.stdout.splitlines()))


def members(lab: Lab) -> int:
    """Places that connections are led to."""
    inside = cluster.enter(lab, "outside", ["nft", "-j", "list", "table", "inet", "balancer"])
    run = subprocess.run(inside, capture_output=True, text=True, check=False)
    rules = [row["rule"] for row in json.loads(run.stdout or '{"nftables": []}')["nftables"] if "rule" in row]
    found = [json.dumps(rule).count('"concat"') for rule in rules if rule["chain"] == "own"]
    return found[0] if found else 0


@pytest.mark.wide
def test_a_load_balancer_outside_leads_to_pods_in_turn_as_they_come_and_go(balanced: Lab) -> None:
    lab = balanced
    words = ("--address", ADDRESS, "--port", "80", "--selector", "balanced=yes", "--pod-port", "8080")
    config = control_plane.kubeconfig(lab.record)
    kubectl = (lab.record.directory / cluster.KUBECTL).read_text()
    command = ["env", f"KUBECONFIG={config}", sys.executable, str(BALANCER), "--kubectl", kubectl, *words]
    where = namespace.path(lab.record, "outside")
    try:
        with traffic.running("balancer", namespace.inside(where, command)):
            wait_for("three members", lambda: members(lab) == 3, seconds=120, step=0.2)
            assert answers(lab) == dict.fromkeys(PODS, CONNECTIONS // 3)
            lab.api.kubectl("delete", "pod", "balanced-b")
            wait_for("two members", lambda: members(lab) == 2, seconds=30, step=0.1)
            assert answers(lab) == dict.fromkeys(["balanced-a", "balanced-c"], CONNECTIONS // 2)
            lab.api.apply(pod("balanced-b"))
            wait_for("three members again", lambda: members(lab) == 3, seconds=120, step=0.2)
            assert answers(lab) == dict.fromkeys(PODS, CONNECTIONS // 3)
    finally:
        subprocess.run(namespace.inside(where, ["nft", "delete", "table", "inet", "balancer"]), check=False)
