"""BGPPolicy in a cluster whose chart turned the gate on: a router learns an address of a Service, and clients behind it use it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from agent_node import in_agent, restart_agent, wait_ready
from frr_router import configuration, routing
from metallb import fetch, inside
from own_lab import own_lab
from quiet_pod import SERVING, quiet_pods

from lab.process import wait_for
from lab.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab.cluster import Lab

pytestmark = pytest.mark.timeout(900)
GATE = {"featureGates": {"BGPPolicy": True}}
NODES = ("node-1", "node-2")
ROUTER, ROUTER_AS, NODES_AS = "172.30.0.1", 64513, 64512
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


@pytest.fixture(scope="module")
def two() -> Iterator[Lab]:
    settings = Settings(nodes=2, agent=GATE, controller=GATE, proxy_all=True, kube_proxy="none")
    with own_lab("bgp", settings) as lab:
        yield lab


def next_hops(lab: Lab) -> set[str]:
    """By which the router goes to the address, as BGP told it."""
    found: list[dict[str, Any]] = json.loads(
        inside(lab, "gateway", ["ip", "-j", "route", "show", VIP, "proto", "bgp"]) or "[]"
    )
    return {hop["gateway"] for route in found for hop in route.get("nexthops", [route])}


def effective(lab: Lab, name: str) -> tuple[str, str]:
    """Status and reason of the condition of a policy."""
    found = json.loads(lab.api.kubectl("get", "bgppolicies", name, "-o", "json"))
    conditions = found.get("status", {}).get("conditions", [{}])
    return conditions[0].get("status", ""), conditions[0].get("reason", "")


def test_a_router_learns_an_address_where_it_is_served_and_keeps_it_while_agents_restart(two: Lab) -> None:
    nodes = {two.topology.machine(name).address("eth0", 4): name for name in NODES}
    router = configuration(ROUTER_AS, ROUTER, dict.fromkeys(nodes, NODES_AS))
    with (
        quiet_pods(two, {"serves-a": "node-1", "serves-b": "node-2"}, SERVING),
        routing(two, "gateway", router),
    ):
        two.api.kubectl("label", "pod", "serves-a", "serves-b", "app=web")
        two.api.apply(SERVICE)
        ingress = json.dumps({"status": {"loadBalancer": {"ingress": [{"ip": VIP}]}}})
        two.api.kubectl("patch", "service", "web", "--subresource=status", "-p", ingress)
        two.api.apply(POLICY)
        wait_for("routes by all Nodes", lambda: next_hops(two) == set(nodes), seconds=60)
        wait_for("an answer", lambda: fetch(two, "outside", VIP), seconds=60)
        wait_for("the condition", lambda: effective(two, "routers") == ("True", "Followed"), seconds=60)
        assert effective(two, "younger") == ("False", "OlderPolicy")
        peers = in_agent(two, "node-1", "antctl", "get", "bgppeers")
        assert peers.split() == ["PEER", "ASN", "STATE", f"{ROUTER}:179", str(ROUTER_AS), "Established"]
        routes = in_agent(two, "node-1", "antctl", "get", "bgproutes", "-T", "ServiceLoadBalancerIP")
        assert routes.split()[-3:] == [f"{VIP}/32", "ServiceLoadBalancerIP", "default/web"]

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

        two.api.kubectl("delete", "bgppolicies", "routers", "younger")
        wait_for("no route", lambda: next_hops(two) == set(), seconds=60)
        two.api.kubectl("delete", "service", "web")
