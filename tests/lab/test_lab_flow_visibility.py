"""A connection between Pods of two Nodes is in the flow aggregator's log, with both Pods and the policies of both directions."""

from __future__ import annotations

import csv
import json
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from agent_node import pod_namespace
from config_map import ConfigMap, wait_value
from quiet_pod import SERVING, quiet_pods

from lab import artifacts
from lab.process import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab.cluster import Lab

CHART = Path(__file__).parents[2] / "build/charts/antrea"
TEMPLATE = "templates/flow-aggregator/flow-aggregator.yaml"
EXPORT = {
    "enable": True,
    "flowCollectorAddr": "flow-aggregator/flow-aggregator:14739:grpc",
    "flowPollInterval": "1s",
    "activeFlowExportTimeout": "1s",
}
POLICIES = """
apiVersion: crd.antrea.io/v1beta1
kind: NetworkPolicy
metadata: {name: flows-out, namespace: default}
spec:
  priority: 5
  appliedTo: [{podSelector: {matchLabels: {flows: asks}}}]
  egress: [{name: to-server, action: Allow, to: [{podSelector: {matchLabels: {flows: serves}}}]}]
---
apiVersion: crd.antrea.io/v1beta1
kind: NetworkPolicy
metadata: {name: flows-in, namespace: default}
spec:
  priority: 5
  appliedTo: [{podSelector: {matchLabels: {flows: serves}}}]
  ingress:
    - {name: from-client, action: Allow, from: [{podSelector: {matchLabels: {flows: asks}}}], ports: [{port: 8080}]}
    - {name: nothing-else, action: Drop}
"""


@pytest.fixture
def aggregator(lab: Lab) -> Iterator[None]:
    """Our chart's Deployment, and agents that export to it."""
    values = "flowAggregator.enable=true,flowAggregator.config.apiServer.authorizeUsers=true"
    command = [
        str(artifacts.helm(print)),
        "template",
        "antrea",
        "--namespace",
        "kube-system",
        str(CHART),
        "--set",
        values,
        "--show-only",
        TEMPLATE,
    ]
    lab.api.apply(subprocess.check_output(command, text=True))
    config = ConfigMap(lab)
    config.change(featureGates={"FlowExporter": True}, flowExporter=EXPORT)
    wait_value(lab, "featureGates", {"FlowExporter": True})
    lab.api.kubectl(
        "-n",
        "flow-aggregator",
        "rollout",
        "status",
        "deployment/flow-aggregator",
        "--timeout=120s",
        seconds=130,
    )
    yield
    config.write(config.text)
    lab.api.kubectl("delete", "namespace", "flow-aggregator", "--wait=false")
    wait_value(lab, "featureGates", {})


def inside(lab: Lab, *words: str) -> str:
    """What a command in the aggregator's Pod prints."""
    return lab.api.kubectl("-n", "flow-aggregator", "exec", "deploy/flow-aggregator", "--", *words)


def rows(lab: Lab, source: str, port: int) -> list[list[str]]:
    """Lines of the log from this address to that port."""
    try:
        text = inside(lab, "cat", "/tmp/antrea-flows.log")
    except Exception:
        return []
    return [row for row in csv.reader(text.splitlines()) if (row[2], row[5]) == (source, str(port))]


ASK = """
import ssl, sys, urllib.error, urllib.request as http
asked = http.Request("https://localhost:10348/flows?namespaces=default", headers={"Authorization": "Bearer " + sys.argv[1]})
try:
    print(http.urlopen(asked, context=ssl._create_unverified_context()).read().decode())
except urllib.error.HTTPError as no:
    print(no.read().decode())
"""


def answer_to(lab: Lab, account: str) -> str:
    """What a ServiceAccount gets that asks for the records of Namespace default."""
    token = lab.api.kubectl("-n", "default", "create", "token", account).strip()
    return inside(lab, "python3", "-c", ASK, token)


def check_rights(lab: Lab) -> None:
    """Who may list flows there is answered; this lab keeps no records."""
    assert 'cannot list resource \\"flows\\" in API group' in answer_to(lab, "default")
    binding = ("rolebinding", "sees-flows", "-n", "default")
    lab.api.kubectl(
        "create", *binding, "--clusterrole=antrea-flow-viewer", "--serviceaccount=default:default"
    )
    try:
        wait_for("an answer", lambda: "no records are kept" in answer_to(lab, "default"), seconds=60)
    finally:
        lab.api.kubectl("delete", *binding)


@pytest.mark.usefixtures("aggregator")
def test_a_connection_of_two_nodes_is_in_the_log_with_both_pods_and_policies(lab: Lab) -> None:
    places = {"flows-asks": "node-1", "flows-serves": "node-2"}
    check_rights(lab)
    with quiet_pods(lab, places, SERVING) as ips:
        for name in places:
            lab.api.kubectl("label", "pod", name, f"flows={name.removeprefix('flows-')}")
        lab.api.apply(POLICIES)
        client, server = ips["flows-asks"], ips["flows-serves"]
        lab.api.kubectl(
            "wait", "networkpolicies.crd.antrea.io", "flows-out", "flows-in", "--for=jsonpath={.status.phase}=Realized",
            "--timeout=60s", seconds=70,
        )  # fmt: skip
        from_pod = pod_namespace(lab, "node-1", client)
        fetched = [*from_pod, "curl", "-sS", "--max-time", "10", f"http://{server}:8080/hostname"]
        assert subprocess.check_output(fetched, text=True) == "flows-serves"
        subprocess.run([*from_pod, "curl", "-s", "--max-time", "2", f"http://{server}:8081/"], check=False)
        wait_for("the allowed connection in the log", lambda: rows(lab, client, 8080), seconds=60)
        row = rows(lab, client, 8080)[0]
        assert row[6:13] == ["TCP", "flows-asks", "default", "node-1", "flows-serves", "default", "node-2"]
        rule = "AntreaNetworkPolicy"
        assert row[17:22] == ["flows-in", "default", "from-client", "Allow", rule]
        assert row[22:27] == ["flows-out", "default", "to-server", "Allow", rule]
        wait_for("the denied connection in the log", lambda: rows(lab, client, 8081), seconds=60)
        row = rows(lab, client, 8081)[0]
        assert row[6:13] == ["TCP", "flows-asks", "default", "node-1", "flows-serves", "default", "node-2"]
        assert row[17:22] == ["flows-in", "default", "nothing-else", "Drop", rule]
        found = json.loads(inside(lab, "antctl", "get", "recordmetrics", "-o", "json"))
        assert found["numRecordsReceived"] >= 4
        assert client in inside(lab, "antctl", "get", "flowrecords", "--dstport", "8080")
        lab.api.kubectl("delete", "networkpolicies.crd.antrea.io", "flows-out", "flows-in")
