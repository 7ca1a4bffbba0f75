"""BGPPolicy in a cluster whose chart turned the gate on: a router learns an address of a Service, and clients behind it use it."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import workstation
from agent_node import in_agent, pid_of, restart_agent, wait_ready
from frr_router import configuration, routing
from metallb import fetch, inside
from own_lab import own_lab
from quiet_pod import SERVING, quiet_pods

from lab import cluster
from lab.process import wait_for
from lab.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab.cluster import Lab

pytestmark = pytest.mark.timeout(900)
GATE = {"featureGates": {"BGPPolicy": True}}
NODES = ("node-1", "node-2")
ROUTER, ROUTER_AS, NODES_AS = "172.30.0.1", 64513, 64512
PROGRAM = Path(__file__).with_name("service_client.py")
VIP = "203.0.113.35"
"""In no network of a Node: without a route no router finds it."""
POLICY = f"""
apiVersion: crd.antrea.io/v1alpha1
kind: BGPPolicy
metadata: {{name: routers}}
spec:
  nodeSelector: {{}}
  localASN: {NODES_AS}
  advertisements: {{service: {{ipTypes: [LoadBalancerIP]}}}}
  bgpPeers: [{{address: {ROUTER}, asn: {ROUTER_AS}, connectRetrySeconds: 1}}]
---
apiVersion: crd.antrea.io/v1alpha1
kind: BGPPolicy
metadata: {{name: younger}}
spec: {{nodeSelector: {{}}, localASN: 64999}}
"""
SERVICE = """
apiVersion: v1
kind: Service
metadata: {name: web}
spec:
  type: LoadBalancer
  loadBalancerClass: example.com/none
  selector: {app: web}
  ports: [{port: 80, targetPort: 8080}]
"""


EGRESS_IP = "203.0.113.41"
EGRESS = f"""
apiVersion: crd.antrea.io/v1beta1
kind: ExternalIPPool
metadata: {{name: routed}}
spec: {{ipRanges: [{{start: {EGRESS_IP}, end: {EGRESS_IP}}}], nodeSelector: {{}}}}
---
apiVersion: crd.antrea.io/v1beta1
kind: Egress
metadata: {{name: routed}}
spec: {{appliedTo: {{podSelector: {{matchLabels: {{app: web}}}}}}, externalIPPool: routed}}
"""
METRICS = """
import ssl, urllib.request
token = open("/var/run/antrea/apiserver/loopback-client-token").read()
asked = urllib.request.Request("https://127.0.0.1:10350/metrics", headers={"Authorization": f"Bearer {token}"})
print(urllib.request.urlopen(asked, context=ssl._create_unverified_context(), timeout=30).read().decode())
"""


@pytest.fixture(scope="module")
def two() -> Iterator[Lab]:
    settings = Settings(nodes=2, agent=GATE, controller=GATE, proxy_all=True, kube_proxy="none")
    with own_lab("bgp", settings) as lab:
        yield lab


def next_hops(lab: Lab, ip: str = VIP) -> set[str]:
    """By which the router goes to the address, as BGP told it."""
    found: list[dict[str, Any]] = json.loads(
        inside(lab, "gateway", ["ip", "-j", "route", "show", ip, "proto", "bgp"]) or "[]"
    )
    return {hop["gateway"] for route in found for hop in route.get("nexthops", [route])}


def effective(lab: Lab, name: str) -> tuple[str, str]:
    """Status and reason of the condition of a policy."""
    found = json.loads(lab.api.kubectl("get", "bgppolicies", name, "-o", "json"))
    conditions = found.get("status", {}).get("conditions", [{}])
    return conditions[0].get("status", ""), conditions[0].get("reason", "")


@contextlib.contextmanager
def routed(lab: Lab) -> Iterator[dict[str, str]]:
    """A Service with a Pod on each Node, and a router with sessions to both; the Nodes by their addresses."""
    nodes = {lab.topology.machine(name).address("eth0", 4): name for name in NODES}
    router = configuration(ROUTER_AS, ROUTER, dict.fromkeys(nodes, NODES_AS))
    # several connections of one client take several ways
    inside(lab, "gateway", ["sysctl", "-qw", "net.ipv4.fib_multipath_hash_policy=1"])
    with (
        quiet_pods(lab, {"serves-a": "node-1", "serves-b": "node-2"}, SERVING),
        routing(lab, "gateway", router),
    ):
        lab.api.kubectl("label", "pod", "serves-a", "serves-b", "app=web")
        lab.api.apply(SERVICE)
        ingress = json.dumps({"status": {"loadBalancer": {"ingress": [{"ip": VIP}]}}})
        lab.api.kubectl("patch", "service", "web", "--subresource=status", "-p", ingress)
        lab.api.apply(POLICY)
        wait_for("routes by all Nodes", lambda: next_hops(lab) == set(nodes), seconds=60)
        wait_for("an answer", lambda: fetch(lab, "outside", VIP), seconds=60)
        yield nodes
        lab.api.kubectl("delete", "bgppolicies", "--all")
        wait_for("no route", lambda: next_hops(lab) == set(), seconds=60)
        wait_for("no condition", lambda: advertised(lab) == ("", ""), seconds=60)
        lab.api.kubectl("delete", "service", "web")


def advertised(lab: Lab) -> tuple[str, str]:
    """Status and message of the condition of the Service."""
    found = json.loads(lab.api.kubectl("get", "service", "web", "-o", "json"))
    for row in found["status"].get("conditions", []):
        if row["type"] == "service.antrea.io/Advertised":
            return row["status"], row["message"]
    return "", ""


@contextlib.contextmanager
def asking(lab: Lab) -> Iterator[dict[str, Any]]:
    """A client outside asks while the block lasts; then the dictionary has what came of it."""
    found: dict[str, Any] = {}
    words = cluster.enter(lab, "outside", [sys.executable, str(PROGRAM), VIP, "80"])
    with subprocess.Popen(words, stdin=-1, stdout=-1, text=True) as client:
        try:
            assert client.stdout is not None
            assert client.stdout.readline() == "asking\n"
            yield found
            found |= json.loads(client.communicate("\n", timeout=120)[0])
        finally:
            client.kill()


def test_a_router_learns_an_address_where_it_is_served_and_keeps_it_while_agents_restart(two: Lab) -> None:
    with routed(two) as nodes:
        wait_for("the condition", lambda: effective(two, "routers") == ("True", "Followed"), seconds=60)
        assert effective(two, "younger") == ("False", "OlderPolicy")
        peers = in_agent(two, "node-1", "antctl", "get", "bgppeers")
        assert peers.split() == ["PEER", "ASN", "STATE", f"{ROUTER}:179", str(ROUTER_AS), "Established"]
        routes = in_agent(two, "node-1", "antctl", "get", "bgproutes", "-T", "ServiceLoadBalancerIP")
        assert routes.split()[-3:] == [f"{VIP}/32", "ServiceLoadBalancerIP", "default/web"]
        both = f"advertised by BGP: node-1 to {ROUTER}; node-2 to {ROUTER}"
        wait_for("condition of the Service", lambda: advertised(two) == ("True", both), seconds=60)
        outside = two.topology.machine("outside").address("eth0", 4)
        words = ("explain", "--from", outside, "--to", VIP, "--port", "80/tcp")
        assert f"Routers: Service default/web is {both}" in workstation.run(two, *words).stdout
        series = in_agent(two, "node-1", "python3", "-c", METRICS)
        assert f'antrea_agent_bgp_session_up{{peer="{ROUTER}"}} 1' in series
        assert 'antrea_agent_bgp_advertised_route_count{type="ServiceLoadBalancerIP"} 1' in series

        # the agent's Pod keeps its container of FRR, and routers notice nothing
        restart_agent(two, "node-1")
        wait_ready(two, "node-1")
        assert next_hops(two) == set(nodes)

        local = json.dumps({"spec": {"externalTrafficPolicy": "Local"}})
        two.api.kubectl("patch", "service", "web", "-p", local)
        two.api.kubectl("label", "pod", "serves-b", "app-")
        first = {ip for ip, name in nodes.items() if name == "node-1"}
        wait_for("one Node alone", lambda: next_hops(two) == first, seconds=60)
        assert fetch(two, "outside", VIP) == "serves-a"
        alone = f"advertised by BGP: node-1 to {ROUTER}"
        wait_for("condition of the Service", lambda: advertised(two) == ("True", alone), seconds=60)


@pytest.mark.wide
def test_a_drain_loses_no_connection_of_a_client_behind_a_router(two: Lab) -> None:
    with routed(two) as nodes:
        second = {ip for ip, name in nodes.items() if name == "node-2"}
        with asking(two) as found:
            two.api.kubectl("cordon", "node-1")
            wait_for("one Node alone", lambda: next_hops(two) == second, seconds=60)
            assert fetch(two, "outside", VIP)
            two.api.kubectl("uncordon", "node-1")
            wait_for("both Nodes", lambda: next_hops(two) == set(nodes), seconds=60)
            # one that the cluster autoscaler is about to delete is used as little
            taint = "ToBeDeletedByClusterAutoscaler:NoSchedule"
            two.api.kubectl("taint", "node", "node-1", taint)
            wait_for("one Node alone", lambda: next_hops(two) == second, seconds=60)
            two.api.kubectl("taint", "node", "node-1", f"{taint}-")
            wait_for("both Nodes", lambda: next_hops(two) == set(nodes), seconds=60)
        assert (found["broken"], found["lost"], found["slow"]) == ([], [], 0)
        assert found["sent"] > 100


@pytest.mark.wide
def test_an_agent_that_ends_for_good_withdraws_before_its_switch_ends(two: Lab) -> None:
    with routed(two) as nodes:
        with asking(two) as found:
            before = pid_of(two, "node-1", "antrea-agent")
            selected = ("-l", "component=antrea-agent", "--field-selector=spec.nodeName=node-1")
            two.api.kubectl("-n", "kube-system", "delete", "pod", *selected)
            wait_for(
                "a new agent", lambda: pid_of(two, "node-1", "antrea-agent") not in (0, before), seconds=60
            )
            wait_ready(two, "node-1")
            wait_for("both Nodes", lambda: next_hops(two) == set(nodes), seconds=60)
        assert found["lost"] == []
        assert found["sent"] > 100


def egress_state(lab: Lab) -> tuple[str, str]:
    """The Node of the Egress, and the message of its condition Advertised."""
    status = json.loads(lab.api.kubectl("get", "egress", "routed", "-o", "json")).get("status", {})
    conditions = {row["type"]: row["message"] for row in status.get("conditions", [])}
    return status.get("egressNode", ""), conditions.get("Advertised", "")


@pytest.mark.wide
def test_an_egress_ip_is_advertised_by_the_node_that_has_it_and_moves_with_it(two: Lab) -> None:
    with routed(two) as nodes:
        addresses = {name: ip for ip, name in nodes.items()}
        kinds = {"advertisements": {"service": {"ipTypes": ["LoadBalancerIP"]}, "egress": {}}}
        two.api.kubectl("patch", "bgppolicy", "routers", "--type=merge", "-p", json.dumps({"spec": kinds}))
        two.api.apply(EGRESS)

        def agrees(home: str) -> bool:
            message = f"advertised by BGP: {home} to {ROUTER}"
            return next_hops(two, EGRESS_IP) == {addresses[home]} and egress_state(two) == (home, message)

        wait_for("a Node", lambda: egress_state(two)[0], seconds=60)
        home = egress_state(two)[0]
        wait_for("one way to it", lambda: agrees(home), seconds=60)
        other = next(name for name in NODES if name != home)
        two.api.kubectl("cordon", home)
        wait_for("gossip and BGP at the other Node", lambda: agrees(other), seconds=60)
        two.api.kubectl("uncordon", home)
        wait_for("both at home", lambda: agrees(home), seconds=60)
        two.api.kubectl("delete", "egress,externalippool", "routed")
        wait_for("no route", lambda: next_hops(two, EGRESS_IP) == set(), seconds=60)
