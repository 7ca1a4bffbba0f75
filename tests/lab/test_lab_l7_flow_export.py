"""Requests of an annotated Pod in a cluster whose chart turned the gate on, with the container's own rights."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from agent_node import in_agent
from own_lab import own_lab
from quiet_pod import SERVING, quiet_pods

from lab.process import wait_for
from lab.settings import Settings

if TYPE_CHECKING:
    from lab.cluster import Lab

pytestmark = [pytest.mark.wide, pytest.mark.timeout(900)]
GATES = {"featureGates": {"FlowExporter": True, "L7FlowExporter": True}}
METRICS = """
import ssl, urllib.request
token = open("/var/run/antrea/apiserver/loopback-client-token").read()
asked = urllib.request.Request("https://127.0.0.1:10350/metrics", headers={"Authorization": f"Bearer {token}"})
print(urllib.request.urlopen(asked, context=ssl._create_unverified_context(), timeout=30).read().decode())
"""


def seen(lab: Lab) -> int:
    """Requests that the agent was told of."""
    lines = in_agent(lab, "node-1", "python3", "-c", METRICS).splitlines()
    return next(
        int(float(one.split()[1])) for one in lines if one.startswith("antrea_agent_l7_request_count")
    )


DEPLOYMENT = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, annotations: {visibility.antrea.io/l7-export: both}}
spec:
  replicas: 0
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: web}]}
"""


def told_of(lab: Lab, kind: str) -> list[str]:
    """Objects of this kind that have an Event about the annotation."""
    found = json.loads(lab.api.kubectl("get", "events", "-o", "json"))["items"]
    events = [one["involvedObject"] for one in found if one["reason"] == "L7ExportInvalid"]
    return [one["name"] for one in events if one["kind"] == kind]


def test_requests_of_an_annotated_pod_come_to_the_agent_in_both_families_and_a_deployment_is_told() -> None:
    with (
        own_lab("l7flowexp", Settings(nodes=1, family="dual", agent=GATES)) as lab,
        quiet_pods(lab, {"web": "node-1", "near": "node-1"}, SERVING),
    ):
        assert seen(lab) == 0
        lab.api.kubectl("annotate", "pod", "web", "visibility.antrea.io/l7-export=ingress")
        found = json.loads(lab.api.kubectl("get", "pod", "web", "-o", "json"))["status"]["podIPs"]
        for address in (one["ip"] for one in found):
            host = f"[{address}]" if ":" in address else address
            before = seen(lab)

            def asked(host: str = host, before: int = before) -> bool:
                lab.api.kubectl(
                    "exec", "near", "--", "curl", "-s", "-m", "5", "-g", f"http://{host}:8080/hostname"
                )
                return seen(lab) > before

            wait_for(f"a request to {host}", asked, seconds=60)

        lab.api.apply(DEPLOYMENT)
        wait_for("an Event on the Deployment", lambda: told_of(lab, "Deployment") == ["web"], seconds=60)
        wait_for("its ReplicaSet", lambda: "/web-" in lab.api.kubectl("get", "rs", "-o", "name"), seconds=60)
        assert told_of(lab, "ReplicaSet") == []
