"""Policies on Nodes in a cluster: the published manifests, what kubectl shows of them, and what packets meet."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
import traffic
from config_map import ConfigMap, wait_value

from lab import namespace
from lab.process import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab.cluster import Lab

NODES = ("node-1", "node-2", "node-3")
APPLIED = """
  appliedTo:
    - nodeSelector:
        matchExpressions:
          - key: kubernetes.io/hostname
            operator: In
            values: [node-1, node-2, node-3]
"""
RESTRICT = f"""
apiVersion: crd.antrea.io/v1beta1
kind: ClusterNetworkPolicy
metadata:
  name: restrict-http-to-node
spec:
  priority: 5
  tier: application
{APPLIED}
  ingress:
    - name: allow-cidr
      action: Allow
      from:
        - ipBlock: {{cidr: 10.100.5.0/24}}
        - ipBlock: {{cidr: 172.18.6.0/24}}
      ports: [{{protocol: TCP, port: 80}}]
    - name: drop-other
      action: Drop
      ports: [{{protocol: TCP, port: 80}}]
"""
EGRESS = f"""
apiVersion: crd.antrea.io/v1beta1
kind: ClusterNetworkPolicy
metadata:
  name: egress-drop-node-to-node
spec:
  priority: 5
  tier: application
{APPLIED}
  egress:
    - name: drop-22
      action: Drop
      to:
        - nodeSelector:
            matchExpressions:
              - key: kubernetes.io/hostname
                operator: In
                values: [node-1, node-2, node-3]
      ports: [{{protocol: TCP, port: 22}}]
"""
ALLOWED, OTHER = ("10.100.5.40", "172.18.6.40"), "172.18.5.40"
OPEN, CLOSED = "open", "timeout"
SERVER = """
import socket, sys
servers = [socket.create_server(("::", int(port)), family=socket.AF_INET6, dualstack_ipv6=True) for port in sys.argv[1:]]
print("listening", flush=True)
sys.stdin.read()
"""
PROBE = """
import socket, sys
try:
    socket.create_connection((sys.argv[1], int(sys.argv[2])), 1.5, (sys.argv[3], 0)).close()
    print("open")
except OSError as why:
    print("timeout" if isinstance(why, TimeoutError) else why.strerror)
"""


def inside(lab: Lab, machine: str, program: str, *words: str) -> list[str]:
    return namespace.inside(namespace.path(lab.record, machine), [sys.executable, "-c", program, *words])


def probe(lab: Lab, machine: str, target: str, port: int, source: str = "") -> str:
    words = inside(lab, machine, PROBE, target, str(port), source)
    return subprocess.run(words, capture_output=True, text=True, check=True, timeout=60).stdout.strip()


def address(lab: Lab, machine: str, version: int = 4) -> str:
    return lab.topology.machine(machine).address("eth0", version)


def listed(lab: Lab, name: str) -> list[str]:
    """Its row of `kubectl get acnp`, without the age."""
    return lab.api.kubectl("get", "acnp", name, "--no-headers").split()[:-1]


def ip(lab: Lab, machine: str, *words: str) -> None:
    subprocess.run(namespace.inside(namespace.path(lab.record, machine), ["ip", *words]), check=True)


@pytest.fixture
def nodes(three_nodes: Lab) -> Iterator[Lab]:
    """The gate is on, and `outside` has addresses of three networks that the gateway knows the way to."""
    lab, config = three_nodes, ConfigMap(three_nodes)
    config.change(featureGates={"NodeNetworkPolicy": True})
    for one in (*ALLOWED, OTHER):
        ip(lab, "outside", "addr", "add", f"{one}/32", "dev", "eth0")
        ip(lab, "gateway", "route", "add", one, "via", address(lab, "outside"))
    try:
        wait_value(lab, "featureGates", {"NodeNetworkPolicy": True})
        yield lab
    finally:
        lab.api.kubectl("delete", "acnp", "--all")
        for one in (*ALLOWED, OTHER):
            ip(lab, "gateway", "route", "del", one)
            ip(lab, "outside", "addr", "del", f"{one}/32", "dev", "eth0")
        config.write(config.text)
        wait_value(lab, "featureGates", {})


def test_nodes_let_in_http_from_some_networks_and_send_no_ssh_to_each_other(nodes: Lab) -> None:
    lab, there = nodes, address(nodes, "node-1")
    with (
        traffic.running("node-1", inside(lab, "node-1", SERVER, "80")) as http,
        traffic.running("node-2", inside(lab, "node-2", SERVER, "22", "2222")) as ssh,
        traffic.running("outside", inside(lab, "outside", SERVER, "22")) as far,
    ):
        for server in (http, ssh, far):
            server.says("listening")
        assert probe(lab, "outside", there, 80, OTHER) == OPEN
        lab.api.apply(RESTRICT)
        lab.api.apply(EGRESS)
        row = ["restrict-http-to-node", "application", "5", "3", "3"]
        wait_for("its row", lambda: listed(lab, row[0]) == row, seconds=60)
        other_row = ["egress-drop-node-to-node", *row[1:]]
        wait_for("the other row", lambda: listed(lab, other_row[0]) == other_row, seconds=60)
        assert [probe(lab, "outside", there, 80, one) for one in (*ALLOWED, OTHER)] == [OPEN, OPEN, CLOSED]
        second = address(lab, "node-2")
        assert probe(lab, "node-1", second, 22) == CLOSED
        assert probe(lab, "node-1", second, 2222) == OPEN
        assert probe(lab, "node-1", address(lab, "outside"), 22) == OPEN
        lab.api.kubectl("delete", "acnp", row[0], other_row[0])
        wait_for("the way in", lambda: probe(lab, "outside", there, 80, OTHER) == OPEN, seconds=60)
        wait_for("the way out", lambda: probe(lab, "node-1", second, 22) == OPEN, seconds=60)
