"""A Service of type LoadBalancer with an address of a pool: given by the controller, answered for by one Node, reached from outside."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING

import pytest
from admission_object import crd
from agent_node import antctl
from quiet_pod import SERVING, quiet_pods

from antrea.errors import Unavailable
from lab import cluster, node
from lab.process import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab.cluster import Lab

IP, NEXT = "172.30.0.210", "172.30.0.211"
NODES = ("node-1", "node-2")
SERVICE = """
apiVersion: v1
kind: Service
metadata: {name: balanced, annotations: {service.antrea.io/external-ip-pool: ingress}}
spec: {type: LoadBalancer, selector: {app: balanced}, ports: [{port: 80, targetPort: 8080}]}
"""


@pytest.fixture
def service(lab: Lab) -> Iterator[None]:
    """On two Nodes, of which the pool selects both."""
    pool = {"ipRanges": [{"start": IP, "end": NEXT}], "nodeSelector": {}}
    with quiet_pods(lab, {"serves-a": "node-1", "serves-b": "node-2"}, SERVING):
        lab.api.kubectl("label", "pod", "serves-a", "serves-b", "app=balanced")
        lab.api.apply(json.dumps(crd("ExternalIPPool", "ingress", pool)))
        lab.api.apply(SERVICE)
        yield
        lab.api.kubectl("delete", "service", "balanced", "--ignore-not-found")
        lab.api.kubectl("delete", "externalippool", "ingress", "--ignore-not-found")


def fetch(lab: Lab, machine: str, path: str = "hostname") -> str:
    """What it gets from the address; empty: nothing."""
    words = ["curl", "-s", "--max-time", "2", f"http://{IP}/{path}"]
    return subprocess.run(
        cluster.enter(lab, machine, words), capture_output=True, text=True, check=False
    ).stdout


def assigned(lab: Lab, where: str = "node-1") -> list[str]:
    """The row of `antctl get serviceexternalip`; empty while a cell of it is."""
    head, *rows = antctl(lab, where, "get", "serviceexternalip").splitlines()
    assert head.split() == ["NAMESPACE", "NAME", "EXTERNAL-IP-POOL", "EXTERNAL-IP", "ASSIGNED-NODE"]
    return next((row.split() for row in rows if "balanced" in row.split() and "<NONE>" not in row), [])


def neighbour(lab: Lab, machine: str) -> str:
    """The MAC address that a host of the Nodes' subnet has for the address."""
    inside = cluster.enter(lab, machine, ["ip", "-j", "neigh", "show", "to", IP])
    found = json.loads(subprocess.run(inside, capture_output=True, text=True, check=True).stdout)
    return next((str(one["lladdr"]) for one in found if "lladdr" in one), "")


def mac(lab: Lab, name: str) -> str:
    return str(json.loads(node.execute(lab.record, name, "ip", "-j", "link", "show", "eth0"))[0]["address"])


def test_a_service_gets_an_address_that_hosts_outside_reach_by_the_node_that_antctl_names(
    lab: Lab, service: None
) -> None:
    wait_for("a Node for the address", lambda: len(assigned(lab)) == 5, seconds=60)
    where = assigned(lab)
    assert where[:4] == ["default", "balanced", "ingress", IP]
    wait_for("the same on the other Node", lambda: assigned(lab, "node-2") == where, seconds=60)
    for machine in ("gateway", "outside"):
        wait_for(f"an answer to {machine}", lambda machine=machine: fetch(lab, machine), seconds=60)  # type: ignore[misc]
    assert {fetch(lab, "outside") for _ in range(40)} == {"serves-a", "serves-b"}
    assert neighbour(lab, "gateway") == mac(lab, where[4])
    assert not any(IP in node.execute(lab.record, name, "ip", "addr") for name in NODES)
    shown = lab.api.kubectl("describe", "service", "balanced")
    assert [line.split()[2] for line in shown.splitlines() if line.startswith("LoadBalancer Ingress:")] == [
        IP
    ]
    assert "Events:" in shown
    assert shown.rstrip().endswith("<none>")
    row = lab.api.kubectl("get", "externalippool", "ingress", "--no-headers").split()
    assert row[:3] == ["ingress", "2", "1"]
    lab.api.kubectl("annotate", "service", "balanced", "service.antrea.io/external-ip-pool-")
    wait_for("an end of the address", lambda: not fetch(lab, "gateway"), seconds=60)
    status = json.loads(lab.api.kubectl("get", "service", "balanced", "-o", "json"))["status"]
    assert status == {"loadBalancer": {}}


@pytest.mark.wide
def test_an_address_that_is_never_to_go_back_stays_with_the_node_that_took_it(
    lab: Lab, service: None
) -> None:
    lab.api.kubectl("annotate", "service", "balanced", "service.antrea.io/failback=never")
    wait_for("a Node for the address", lambda: len(assigned(lab)) == 5, seconds=60)
    home = assigned(lab)[4]
    away = next(name for name in NODES if name != home)
    wait_for("the claim of the Node", lambda: kept(lab, home) == f"{IP}=1", seconds=60)
    lab.api.kubectl("cordon", home)
    try:
        wait_for("the next Node", lambda: is_at(lab, away), seconds=60)
        wait_for("its claim", lambda: kept(lab, away) == f"{IP}=2" and not kept(lab, home), seconds=60)
    finally:
        lab.api.kubectl("uncordon", home)
    with pytest.raises(Unavailable):
        wait_for("the address back", lambda: not is_at(lab, away), seconds=4)
    wait_for("an answer", lambda: fetch(lab, "gateway"), seconds=60)
    assert neighbour(lab, "gateway") == mac(lab, away)
    lab.api.kubectl("annotate", "service", "balanced", "service.antrea.io/failback-")
    wait_for("the address back", lambda: is_at(lab, home), seconds=60)
    wait_for("no claim", lambda: not kept(lab, away), seconds=60)


def is_at(lab: Lab, name: str) -> bool:
    """Both agents agree."""
    return all(assigned(lab, where)[4:] == [name] for where in NODES)


def kept(lab: Lab, name: str) -> str:
    notes = json.loads(lab.api.kubectl("get", "node", name, "-o", "json"))["metadata"]["annotations"]
    return str(notes.get("service.antrea.io/kept-external-ips", ""))
