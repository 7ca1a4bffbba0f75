"""Rules with l7Protocols in a cluster whose chart turned the gate on: requests from Pods of both Nodes, to a Pod and to its Service."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from agent_node import in_agent, restart_agent, wait_ready
from own_lab import own_lab
from quiet_pod import SERVING, quiet_pods

from lab.process import wait_for
from lab.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab.cluster import Lab

pytestmark = [pytest.mark.wide, pytest.mark.timeout(900)]
GATE = {"featureGates": {"L7NetworkPolicy": True}}
PODS = {"web": "node-1", "near": "node-1", "far": "node-2"}
LABELLED = ("label", "pod", "web", "app=web")
POLICY = """
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: web}, ports: [{port: 80, targetPort: 8080}], ipFamilyPolicy: PreferDualStack}
---
apiVersion: crd.antrea.io/v1beta1
kind: NetworkPolicy
metadata: {name: public, namespace: default}
spec:
  priority: 5
  tier: application
  appliedTo: [{podSelector: {matchLabels: {app: web}}}]
  ingress:
    - name: public
      action: Allow
      enableLogging: true
      from: [{podSelector: {}}]
      l7Protocols: [{http: {method: GET, path: "/host*"}}]
    - {name: nothing-else, action: Drop}
"""


@pytest.fixture(scope="module")
def two() -> Iterator[Lab]:
    settings = Settings(
        nodes=2, family="dual", agent=GATE, controller=GATE, proxy_all=True, kube_proxy="none"
    )
    with own_lab("l7policy", settings) as lab:
        yield lab


ANSWERED, RESET = 0, 56
"""Status of curl."""


def asked(lab: Lab, client: str, url: str) -> int:
    """How a request of a Pod ends."""
    found = lab.api.kubectl(
        "exec", client, "--", "sh", "-c", f"curl -s -m 5 -o /dev/null -g '{url}'; echo $?"
    )
    return int(found)


def realized(lab: Lab) -> bool:
    found = json.loads(lab.api.kubectl("get", "networkpolicies.crd.antrea.io", "public", "-o", "json"))
    status = found.get("status", {})
    return bool(status.get("phase") == "Realized" and status.get("currentNodesRealized") == 1)


def test_requests_of_both_nodes_are_judged_and_an_agent_that_restarts_lets_none_pass(two: Lab) -> None:
    with quiet_pods(two, PODS, SERVING):
        two.api.kubectl(*LABELLED)
        two.api.apply(POLICY)
        wait_for("the policy", lambda: realized(two), seconds=60)
        addresses = [
            *(
                one["ip"]
                for one in json.loads(two.api.kubectl("get", "pod", "web", "-o", "json"))["status"]["podIPs"]
            ),
            *json.loads(two.api.kubectl("get", "service", "web", "-o", "json"))["spec"]["clusterIPs"],
        ]
        urls = [
            f"http://{f'[{ip}]' if ':' in ip else ip}:{80 if n > 1 else 8080}"
            for n, ip in enumerate(addresses)
        ]
        assert len(urls) == 4
        for client in ("near", "far"):
            for url in urls:
                found = [asked(two, client, f"{url}/{path}") for path in ("hostname", "clientip")]
                assert found == [ANSWERED, RESET], (client, url)
        restart_agent(two, "node-1")
        assert asked(two, "far", f"{urls[0]}/clientip") != ANSWERED
        wait_ready(two, "node-1")
        assert asked(two, "far", f"{urls[0]}/clientip") != ANSWERED
        assert asked(two, "far", f"{urls[0]}/hostname") == ANSWERED
        log = in_agent(two, "node-1", "cat", "/var/log/antrea/networkpolicy/l7engine/eve-verdicts.json")
        events = [json.loads(line) for line in log.splitlines()]
        rejected = [one for one in events if one.get("alert", {}).get("action") == "blocked"]
        assert {one["request"]["url"] for one in rejected if "request" in one} == {"/clientip"}
        seen = [one for one in events if one["event_type"] == "http"]
        assert "/hostname" in {one["http"]["url"] for one in seen}
        assert {one["policy"] for one in rejected} == {"AntreaNetworkPolicy:default/public"}
        two.api.kubectl("delete", "networkpolicies.crd.antrea.io", "public")
        wait_for(
            "the end of the policy", lambda: asked(two, "far", f"{urls[0]}/clientip") == ANSWERED, seconds=60
        )
