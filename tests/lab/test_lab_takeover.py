"""All Services go from a kube-proxy of the cluster to AntreaProxy by `antctl`, and back, under connections that stand."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING

import pytest
import workstation
from conversation import Conversation
from kube_proxy_daemon_set import run_kube_proxy
from own_lab import own_lab
from quiet_pod import SERVING, quiet_pods

from lab import control_plane, namespace
from lab.process import wait_for
from lab.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab.cluster import Lab

pytestmark = pytest.mark.wide

SETTINGS = Settings(nodes=2, kube_proxy="none")
TAKEOVER = ("kube-proxy", "takeover")
BALANCED = "198.51.100.8"
SERVICE = """
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {type: LoadBalancer, selector: {web: "yes"}, ports: [{port: 80, targetPort: 8080}]}
"""


@pytest.fixture(scope="module", params=["nftables", "iptables"])
def lab(request: pytest.FixtureRequest) -> Iterator[Lab]:
    with own_lab(f"take-{request.param}", SETTINGS) as found:
        run_kube_proxy(found, request.param)
        yield found


@pytest.fixture
def pods(lab: Lab) -> Iterator[dict[str, str]]:
    with (
        quiet_pods(lab, {"client": "node-1"}) as clients,
        quiet_pods(lab, {"web": "node-2"}, SERVING) as servers,
    ):
        lab.api.kubectl("label", "pod", "web", "web=yes")
        lab.api.apply(SERVICE)
        given = json.dumps({"status": {"loadBalancer": {"ingress": [{"ip": BALANCED}]}}})
        lab.api.kubectl("patch", "service", "web", "--subresource=status", "--type=merge", "-p", given)
        first = lab.topology.machine("node-1").address("eth0", 4)
        gateway = namespace.path(lab.record, "gateway")
        namespace.script(lab.record, gateway, [f"ip route replace {BALANCED} via {first}"])
        yield clients | servers


def answers(inside: list[str], ip: str, port: int) -> bool:
    words = [*inside, "curl", "-sS", "--max-time", "2", f"http://{ip}:{port}/hostname"]
    return subprocess.run(words, capture_output=True, text=True, check=False).stdout == "web"


def test_services_move_to_antrea_proxy_and_back(lab: Lab, pods: dict[str, str]) -> None:
    spec = json.loads(lab.api.kubectl("get", "service", "web", "-o", "json"))["spec"]
    cluster_ip, node_port = spec["clusterIP"], spec["ports"][0]["nodePort"]
    node_ip = lab.topology.machine("node-1").address("eth0", 4)
    node, outside = (
        namespace.inside(namespace.path(lab.record, machine), []) for machine in ("node-1", "outside")
    )
    wait_for("kube-proxy to serve a Node", lambda: answers(node, cluster_ip, 80), seconds=60)
    wait_for("kube-proxy to serve a NodePort", lambda: answers(outside, node_ip, node_port), seconds=60)
    wait_for(
        "kube-proxy to serve a load balancer's address", lambda: answers(outside, BALANCED, 80), seconds=60
    )
    override = control_plane.server_url(lab.topology)

    plan = workstation.run(lab, *TAKEOVER, "--plan").stdout
    assert "Nothing is in the way." in plan
    assert workstation.run(lab, *TAKEOVER, "--verify", code=1).stdout.count(" runs ") == 2
    with (
        Conversation(node, cluster_ip) as of_node,
        Conversation(outside, node_ip, node_port) as of_outside,
        Conversation(outside, BALANCED) as of_balanced,
    ):
        before = of_node.ask(), of_outside.ask(), of_balanced.ask()
        applied = workstation.run(lab, *TAKEOVER, "--apply", "--api-server", override, seconds=500).stdout
        assert applied.count("Services are served") == 2
        assert workstation.run(lab, *TAKEOVER, "--verify").stdout.count(" served") == 2
        assert (of_node.ask(), of_outside.ask(), of_balanced.ask()) == before
    assert answers(node, cluster_ip, 80)
    assert answers(outside, node_ip, node_port)
    assert answers(outside, BALANCED, 80)
    assert lab.api.kubectl("-n", "kube-system", "get", "pods", "-l", "k8s-app=kube-proxy", "-o", "name") == ""

    with (
        Conversation(node, cluster_ip) as of_node,
        Conversation(outside, node_ip, node_port) as of_outside,
        Conversation(outside, BALANCED) as of_balanced,
    ):
        before = of_node.ask(), of_outside.ask(), of_balanced.ask()
        back = workstation.run(lab, *TAKEOVER, "--rollback", seconds=500).stdout
        assert back.count("kube-proxy is back") == 2
        assert (of_node.ask(), of_outside.ask(), of_balanced.ask()) == before
    wait_for("kube-proxy to serve a Node", lambda: answers(node, cluster_ip, 80), seconds=60)
    wait_for("kube-proxy to serve a NodePort", lambda: answers(outside, node_ip, node_port), seconds=60)
    assert workstation.run(lab, *TAKEOVER, "--verify", code=1).stdout.count(" runs ") == 2
    labels = lab.api.kubectl("get", "nodes", "-l", "antrea.io/kube-proxy", "-o", "name")
    assert labels == ""
    no = workstation.run(lab, *TAKEOVER, "--rollback", code=1).stderr
    assert "no take-over was applied" in no
