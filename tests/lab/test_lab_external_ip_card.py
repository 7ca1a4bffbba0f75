"""The card of a Node to the network of an external IP is cut, while its gossip, by another card, goes on: the address goes to another Node."""

from __future__ import annotations

import json
import subprocess
from functools import partial
from typing import TYPE_CHECKING

import pytest
from admission_object import crd
from agent_node import antctl
from own_lab import own_lab
from quiet_pod import SERVING, quiet_pods

from antrea.lab import cluster, fault
from antrea.lab.process import wait_for
from antrea.lab.settings import Settings

if TYPE_CHECKING:
    from antrea.lab.cluster import Lab

pytestmark = pytest.mark.wide

IP, ROUTER, CARD = "172.31.0.216", "172.31.0.1", "eth1"
NODES = ("node-1", "node-2", "node-3")
CLIENTS = ("gateway", "outside")
SERVICE = """
apiVersion: v1
kind: Service
metadata: {name: carded, annotations: {service.antrea.io/external-ip-pool: carded}}
spec: {type: LoadBalancer, selector: {app: carded}, ports: [{port: 80, targetPort: 8080}]}
"""


def owner(lab: Lab, where: str) -> str:
    """As the agent of a Node finds it; empty: nobody."""
    rows = json.loads(antctl(lab, where, "get", "serviceexternalip", "-o", "json"))
    return next((row.get("assignedNode", "") for row in rows if row["serviceName"] == "carded"), "")


def answers(lab: Lab, machine: str) -> bool:
    inside = cluster.enter(lab, machine, ["curl", "-s", "--max-time", "2", f"http://{IP}/"])
    return subprocess.run(inside, capture_output=True, check=False).returncode == 0


def reached(lab: Lab) -> None:
    for machine in CLIENTS:
        wait_for(f"an answer to {machine}", partial(answers, lab, machine), seconds=60)


def told(lab: Lab) -> dict[str, str]:
    """Nodes to which the gateway of the pool is silent, and what they say."""
    words = ("get", "events", "-A", "--field-selector=reason=PoolGatewaySilent", "-o", "json")
    found = json.loads(lab.api.kubectl(*words))["items"]
    return {one["involvedObject"]["name"]: one["message"] for one in found}


def test_an_address_leaves_a_node_whose_card_to_its_network_is_cut() -> None:
    subnet = {"gateway": ROUTER, "prefixLength": 24}
    pool = {"ipRanges": [{"start": IP, "end": IP}], "subnetInfo": subnet, "nodeSelector": {}}
    with own_lab("card", Settings(nodes=3, agent={"transportInterface": "eth0"})) as lab:
        lab.api.apply(json.dumps(crd("ExternalIPPool", "carded", pool)))
        lab.api.apply(SERVICE)
        wait_for("a Node for the address", lambda: owner(lab, NODES[0]), seconds=60)
        lost = owner(lab, NODES[0])
        stays = next(name for name in NODES if name != lost)
        with quiet_pods(lab, {"carded": stays}, SERVING):
            lab.api.kubectl("label", "pod", "carded", "app=carded")
            reached(lab)
            assert told(lab) == {}
            fault.inject(lab, lost, "cut-link", link=CARD)
            try:
                wait_for("a next Node", lambda: owner(lab, stays) not in ("", lost), seconds=60)
                reached(lab)
                wait_for("the Event", lambda: lost in told(lab), seconds=30)
                assert f"gateway {ROUTER} does not answer Node {lost} on {CARD}" in told(lab)[lost]
            finally:
                fault.inject(lab, lost, "heal-link", link=CARD)
            wait_for("the address at home", lambda: owner(lab, stays) == lost, seconds=60)
            reached(lab)
