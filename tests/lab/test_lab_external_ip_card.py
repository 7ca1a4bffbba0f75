"""The card of a Node to the network of an external IP is cut, while its gossip, by another card, goes on: the address goes to another Node."""

from __future__ import annotations

import json

import pytest
from admission_object import crd
from external_address import events, owner, reached
from own_lab import own_lab
from quiet_pod import SERVING, quiet_pods

from lab import fault
from lab.process import wait_for
from lab.settings import Settings

pytestmark = pytest.mark.wide

IP, ROUTER, CARD = "172.31.0.216", "172.31.0.1", "eth1"
SILENT = "PoolGatewaySilent"
NODES = ("node-1", "node-2", "node-3")
SERVICE = """
apiVersion: v1
kind: Service
metadata: {name: carded, annotations: {service.antrea.io/external-ip-pool: carded}}
spec: {type: LoadBalancer, selector: {app: carded}, ports: [{port: 80, targetPort: 8080}]}
"""


def test_an_address_leaves_a_node_whose_card_to_its_network_is_cut() -> None:
    subnet = {"gateway": ROUTER, "prefixLength": 24}
    pool = {"ipRanges": [{"start": IP, "end": IP}], "subnetInfo": subnet, "nodeSelector": {}}
    with own_lab("card", Settings(nodes=3, agent={"transportInterface": "eth0"})) as lab:
        lab.api.apply(json.dumps(crd("ExternalIPPool", "carded", pool)))
        lab.api.apply(SERVICE)
        wait_for("a Node for the address", lambda: owner(lab, "carded", NODES[0]), seconds=60)
        lost = owner(lab, "carded", NODES[0])
        stays = next(name for name in NODES if name != lost)
        with quiet_pods(lab, {"carded": stays}, SERVING):
            lab.api.kubectl("label", "pod", "carded", "app=carded")
            reached(lab, IP)
            assert events(lab, SILENT) == {}
            fault.inject(lab, lost, "cut-link", link=CARD)
            try:
                wait_for("a next Node", lambda: owner(lab, "carded", stays) not in ("", lost), seconds=60)
                reached(lab, IP)
                wait_for("the Event", lambda: lost in events(lab, SILENT), seconds=30)
                assert f"gateway {ROUTER} does not answer Node {lost} on {CARD}" in events(lab, SILENT)[lost]
            finally:
                fault.inject(lab, lost, "heal-link", link=CARD)
            wait_for("the address at home", lambda: owner(lab, "carded", stays) == lost, seconds=60)
            reached(lab, IP)
