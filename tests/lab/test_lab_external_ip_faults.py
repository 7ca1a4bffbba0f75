"""The gossip port of Nodes is closed, and all Nodes of a pool are gone: nobody answers for an external IP, the user is told, and it comes back."""

from __future__ import annotations

import contextlib
import json
import subprocess
from functools import partial
from typing import TYPE_CHECKING

import pytest
from admission_object import crd
from agent_node import in_agent, wait_ready
from external_address import events, owner, reached
from quiet_pod import SERVING, quiet_pods

from antrea.errors import Unavailable
from lab import cluster, fault, node
from lab.process import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab.cluster import Lab

pytestmark = pytest.mark.wide

IP = "172.30.0.218"
NODES = ("node-1", "node-2", "node-3")
SERVICE = """
apiVersion: v1
kind: Service
metadata: {name: faulty, annotations: {service.antrea.io/external-ip-pool: faulty}}
spec: {type: LoadBalancer, selector: {app: faulty}, ports: [{port: 80, targetPort: 8080}]}
"""
CLOSED = "for p in tcp udp; do iptables {} INPUT -p $p --dport 10351 -j DROP; done"


@pytest.fixture
def served(three_nodes: Lab) -> Iterator[Lab]:
    """A Service with an address of a pool of node-2 and node-3, and a Pod on node-1."""
    lab = three_nodes
    lab.api.kubectl("label", "node", *NODES[1:], "faulty=")
    wait_for("the pool, which a controller admits", partial(has_pool, lab), seconds=120)
    lab.api.apply(SERVICE)
    with quiet_pods(lab, {"faulty": "node-1"}, SERVING):
        lab.api.kubectl("label", "pod", "faulty", "app=faulty")
        wait_for("a Node for the address", lambda: owner(lab, "faulty", "node-1"), seconds=60)
        reached(lab, IP)
        yield lab
    lab.api.kubectl("delete", "service", "faulty")
    lab.api.kubectl("delete", "externalippool", "faulty")
    lab.api.kubectl("label", "node", *NODES[1:], "faulty-")


def has_pool(lab: Lab) -> bool:
    """Whether it could be made: the controller may have lost its power in the test before."""
    pool = {
        "ipRanges": [{"start": IP, "end": IP}],
        "nodeSelector": {"matchExpressions": [{"key": "faulty", "operator": "Exists"}]},
    }
    try:
        lab.api.apply(json.dumps(crd("ExternalIPPool", "faulty", pool)))
    except Unavailable:
        return False
    return True


def answers_not(lab: Lab, where: str) -> bool:
    """Whether the agent of a Node finds that this is not to answer."""
    return owner(lab, "faulty", where) != where


def is_found(lab: Lab) -> bool:
    """Whether any Node answers a host on their subnet that does not know it yet."""
    words = ["sh", "-c", f"ip neigh flush to {IP}; ping -c 1 -W 2 {IP}; ip neigh show to {IP}"]
    run = subprocess.run(cluster.enter(lab, "gateway", words), capture_output=True, text=True, check=False)
    return "lladdr" in run.stdout


def addresses(lab: Lab) -> str:
    return lab.api.kubectl(
        "get", "service", "faulty", "-o", "jsonpath={.status.loadBalancer.ingress[*].ip}"
    ).strip()


@contextlib.contextmanager
def closed(lab: Lab) -> Iterator[None]:
    """Nobody gets to the gossip port of any Node."""
    for name in NODES:
        node.execute(lab.record, name, "sh", "-c", CLOSED.format("-I"))
    try:
        yield
    finally:
        for name in NODES:
            node.execute(lab.record, name, "sh", "-c", CLOSED.format("-D"))


def test_with_the_gossip_port_closed_nobody_answers_and_events_and_the_doctor_say_so(served: Lab) -> None:
    lab, home = served, owner(served, "faulty", "node-1")
    with closed(lab):
        for name in NODES:
            wait_for(f"no answer of {name}", partial(answers_not, lab, name), seconds=60)
        wait_for("no Node found", lambda: not is_found(lab), seconds=60)
        assert addresses(lab) == IP
        wait_for("Events of all Nodes", lambda: events(lab, "MajorityLost").keys() >= set(NODES), seconds=90)
        assert "port 10351" in events(lab, "MajorityLost")[home]
        found = in_agent(lab, home, "sh", "-c", "antctl doctor || true")  # findings are its exit status
        assert "port 10351 of Node node-1" in found
    wait_for("the address at home", lambda: owner(lab, "faulty", "node-1") == home, seconds=60)
    reached(lab, IP)


def test_an_address_whose_nodes_have_all_lost_their_power_is_answered_for_once_one_is_back(
    served: Lab,
) -> None:
    lab = served
    with contextlib.ExitStack() as stack:
        for name in NODES[1:]:
            fault.inject(lab, name, "power-off")
            stack.callback(fault.inject, lab, name, "power-on")
        # of three agents one is left, which is no majority: it may not know
        wait_for("no Node found", lambda: not is_found(lab), seconds=60)
        assert addresses(lab) == IP
        wait_for("the Event of the Node", lambda: "node-1" in events(lab, "MajorityLost"), seconds=90)
    for name in NODES[1:]:
        wait_ready(lab, name)
    wait_for("a Node for the address", lambda: owner(lab, "faulty", "node-1"), seconds=120)
    assert addresses(lab) == IP
    reached(lab, IP)


def test_an_address_whose_pool_selects_no_node_any_more_is_kept_and_an_event_says_so(served: Lab) -> None:
    lab, home = served, owner(served, "faulty", "node-1")
    lab.api.kubectl("label", "node", *NODES[1:], "faulty-")
    wait_for("the Event", lambda: "faulty" in events(lab, "ExternalIPUnanswered"), seconds=60)
    assert (
        events(lab, "ExternalIPUnanswered")["faulty"]
        == f"no Node answers for {IP}: no Node of the pool is alive"
    )
    wait_for("no Node found", lambda: not is_found(lab), seconds=60)
    assert (addresses(lab), owner(lab, "faulty", "node-1")) == (IP, "")
    lab.api.kubectl("label", "node", *NODES[1:], "faulty=")
    wait_for("the address at home", lambda: owner(lab, "faulty", "node-1") == home, seconds=60)
    reached(lab, IP)
