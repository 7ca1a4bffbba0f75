"""Policies on Nodes that would cut a cluster off from itself, and policies that take themselves back."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING

import pytest
import traffic
import workstation
import yaml
from agent_node import pod_namespace
from quiet_pod import SERVING, quiet_pods
from test_lab_fqdn import CONNECT
from test_lab_node_policy import APPLIED, CLOSED, NODES, OPEN, SERVER, address, inside, probe
from test_lab_node_policy import nodes as nodes  # noqa: PLC0414 (a fixture)

from antrea.apis.annotation import CONFIRM_WITHIN, CONFIRMED
from lab.process import wait_for

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from lab.cluster import Lab

EVERYTHING: dict[str, Any] = {
    "ingress": [{"name": "in", "action": "Drop"}],
    "egress": [{"name": "out", "action": "Drop"}],
}
KEPT = ("kube-apiserver", "kubelet", "tunnels", "gossip", "antrea-controller")
SSH, WEB, TRIAL = 22, 80, 15


def policy(name: str, annotations: dict[str, str] | None = None, **spec: Any) -> str:
    found = {
        "apiVersion": "crd.antrea.io/v1beta1",
        "kind": "ClusterNetworkPolicy",
        "metadata": {"name": name, "annotations": annotations or {}},
        "spec": {"priority": 5, **yaml.safe_load(APPLIED), **spec},
    }
    return yaml.safe_dump(found)


def status(lab: Lab, name: str) -> dict[str, Any]:
    """Its phase, and messages by the type of their condition."""
    found = json.loads(lab.api.kubectl("get", "acnp", name, "-o", "json")).get("status", {})
    told = {one["type"]: one.get("message", "") for one in found.get("conditions", ())}
    return {"phase": found.get("phase"), "nodes": found.get("currentNodesRealized"), **told}


def becomes(lab: Lab, port: int, wanted: str, seconds: float = 60) -> None:
    there = address(lab, "node-1")
    wait_for(f"port {port}: {wanted}", lambda: probe(lab, "outside", there, port) == wanted, seconds=seconds)


def waits(lab: Lab, name: str, is_so: Callable[[dict[str, Any]], bool], what: str) -> dict[str, Any]:
    wait_for(what, lambda: is_so(status(lab, name)), seconds=60)
    return status(lab, name)


def ready(lab: Lab) -> set[str]:
    """Nodes whose kubelet says so, with the time at which it last did."""
    words = ("-n", "kube-node-lease", "get", "lease", "-o", "jsonpath={..renewTime}")
    return set(lab.api.kubectl(*words).split())


@pytest.mark.wide
def test_a_policy_that_drops_everything_leaves_nodes_to_the_cluster_and_says_so(nodes: Lab) -> None:
    """kubelets renew their leases and serve logs, agents report, Pods of different Nodes reach each other, SSH as annotated."""
    lab = nodes
    with (
        quiet_pods(lab, {"far": "node-2"}, SERVING),
        quiet_pods(lab, {"near": "node-1", "there": "node-2"}) as pods,
        traffic.running("node-1", inside(lab, "node-1", SERVER, str(SSH), str(WEB))) as server,
    ):
        server.says("listening")
        becomes(lab, WEB, OPEN)
        lab.api.apply(policy("drop-all", **EVERYTHING))
        told = waits(
            lab, "drop-all", lambda one: one["phase"] == "Realized" and "LockoutPrevented" in one, "guard"
        )
        assert told["nodes"] == len(NODES)
        assert all(name in told["LockoutPrevented"] for name in KEPT), told
        for port in (SSH, WEB):
            becomes(lab, port, CLOSED)
        explained(lab)
        leases = ready(lab)
        wait_for("leases of kubelets", lambda: not leases & ready(lab), seconds=60)
        assert "8080" in lab.api.kubectl("logs", "far")
        connect = [*pod_namespace(lab, "node-1", pods["near"]), "python3", "-c", CONNECT, pods["there"]]
        reached = subprocess.run(connect, capture_output=True, text=True, check=True, timeout=60).stdout
        assert reached.strip() == "refused"
        # agents hear of what comes later, and say so
        lab.api.kubectl("annotate", "node", "node-1", "node.antrea.io/keep-ssh=true")
        becomes(lab, SSH, OPEN)
        becomes(lab, WEB, CLOSED)
        waits(lab, "drop-all", lambda one: "SSH" in one.get("LockoutPrevented", ""), "SSH in the status")
        lab.api.kubectl("annotate", "node", "node-1", "node.antrea.io/keep-ssh-")
        becomes(lab, SSH, CLOSED)
        lab.api.kubectl("delete", "acnp", "drop-all")
        becomes(lab, WEB, OPEN)


def explained(lab: Lab) -> None:
    """antctl names what is kept, with the rule that would refuse it, and the rule for the rest."""
    asks = ("explain", "--from", address(lab, "node-2"))
    for words, kept in (
        (("--to", address(lab, "node-1"), "--port", "10351/udp"), "Node node-1 keeps gossip"),
        (("--to", "10.96.0.1", "--port", "443/tcp"), "Node node-2 keeps kube-apiserver"),
    ):
        told = workstation.run(lab, *asks, *words).stdout
        assert f"{kept} whatever policies say. Else: " in told, told
    refused = workstation.run(lab, *asks, "--to", address(lab, "node-1"), "--port", f"{WEB}/tcp", code=3)
    assert "Egress rule 0 (out) of AntreaClusterNetworkPolicy drop-all" in refused.stdout


def test_a_policy_takes_itself_back_unless_it_is_confirmed(nodes: Lab) -> None:
    lab = nodes
    close: dict[str, Any] = {
        "ingress": [{"name": "in", "action": "Drop", "ports": [{"protocol": "TCP", "port": WEB}]}]
    }
    with traffic.running("node-1", inside(lab, "node-1", SERVER, str(WEB))) as server:
        server.says("listening")
        becomes(lab, WEB, OPEN)
        lab.api.apply(policy("trial", {CONFIRM_WITHIN: f"{TRIAL}s"}, **close))
        becomes(lab, WEB, CLOSED, seconds=TRIAL)
        becomes(lab, WEB, OPEN)
        told = waits(lab, "trial", lambda one: one["phase"] == "Failed", "phase Failed")
        assert f"not confirmed within {TRIAL} s" in told["RealizationFailure"]
        generation = lab.api.kubectl("get", "acnp", "trial", "-o", "jsonpath={.metadata.generation}")
        lab.api.kubectl("annotate", "acnp", "trial", f"{CONFIRMED}={generation}")
        becomes(lab, WEB, CLOSED)
        waits(lab, "trial", lambda one: one["phase"] == "Realized", "phase Realized")
