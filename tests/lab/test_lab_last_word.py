"""Policies hold on a Node whose switch and agent start anew while there is no controller, and no Pod starts ahead of them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
import yaml
from agent_node import Sandbox, fresh_agent, in_agent, pod_namespace
from quiet_pod import quiet_pods

from lab.process import run, wait_for

if TYPE_CHECKING:
    from lab.cluster import Lab

pytestmark = pytest.mark.wide
CONTROLLER = ("-n", "kube-system", "deployment/antrea-controller")
POLICY = {
    "apiVersion": "networking.k8s.io/v1",
    "kind": "NetworkPolicy",
    "metadata": {"name": "shut"},
    "spec": {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]},
}


def kept(lab: Lab, text: str) -> bool:
    """Whether the cached controller state on node-1 contains this text."""
    script = f"grep -ac {text} /var/lib/antrea/controller-state || true"
    return in_agent(lab, "node-1", "sh", "-c", script).strip() not in ("", "0")


def answers(words: list[str], address: str) -> bool:
    done = run([*words, "sh", "-c", f"ping -c1 -W1 {address} > /dev/null && echo yes || true"])
    return done.strip() == "yes"


def test_a_node_that_starts_anew_without_a_controller_enforces_what_that_said_last(lab: Lab) -> None:
    kubectl = lab.api.kubectl
    with quiet_pods(lab, {"one": "node-1", "two": "node-1"}) as found:
        inside, other = pod_namespace(lab, "node-1", found["one"]), found["two"]
        assert answers(inside, other)
        lab.api.apply(yaml.safe_dump(POLICY))
        uid = json.loads(kubectl("get", "networkpolicy", "shut", "-o", "json"))["metadata"]["uid"]
        try:
            wait_for("the policy", lambda: not answers(inside, other), seconds=60)
            wait_for("the cached controller state", lambda: kept(lab, uid), seconds=60)
            kubectl("scale", *CONTROLLER, "--replicas=0")
            gone = ("-n", "kube-system", "get", "pods", "-l", "component=antrea-controller", "-o", "name")
            wait_for("the controller's end", lambda: not kubectl(*gone).strip(), seconds=60)
            fresh_agent(lab, "node-1")
            assert not answers(inside, other)
            answer = Sandbox(lab, "node-1").call("ADD")
            assert answer.code == 11, answer.body
            assert "policies for Pod default/" in answer.body["msg"]
        finally:
            kubectl("scale", *CONTROLLER, "--replicas=1")
            kubectl("rollout", "status", *CONTROLLER, "--timeout=60s")
            kubectl("delete", "networkpolicy", "shut")
        wait_for("an open way", lambda: answers(inside, other), seconds=60)
