"""Which policy on Nodes decides, where their gate is on."""

from __future__ import annotations

from typing import Any

import pytest
from explain_world import NAMESPACES, NODES, PODS, ask, native, rule

from antrea.explain.objects import objects
from antrea.explain.world import Proxy, World

Object = dict[str, Any]
BLOCK = {"from": [{"ipBlock": {"cidr": "203.0.113.0/24"}}]}
OWN: Object = {"from": [{"podSelector": {}}]}
CLIENT_NODE: Object = {"from": [{"nodeSelector": {"matchLabels": {"node": "n1"}}}]}


def nodes(name: str, *ingress: Object, **more: Any) -> Object:
    return native(name, *ingress, appliedTo=[{"nodeSelector": {"matchLabels": {"node": "n2"}}}], **more)


def world(*policies: Object) -> World:
    found = {"pods": PODS, "nodes": NODES, "namespaces": NAMESPACES, "cluster_policies": list(policies)}
    return World(objects(found), gates=("NodeNetworkPolicy",))


DROP = "Ingress rule 0 (drop) of AntreaClusterNetworkPolicy p in tier application (250), priority 5 drops the packet."
FREE = "No rule on Node n2 matches for ingress."


@pytest.mark.parametrize(
    ("source", "policies", "verdict", "sentence"),
    [
        ("203.0.113.1", [nodes("p", rule("Drop"))], "Drop", DROP),
        ("203.0.113.1", [nodes("p", rule("Drop", **BLOCK))], "Drop", DROP),
        ("198.51.100.1", [nodes("p", rule("Drop", **BLOCK))], "Allow", FREE),
        (
            "203.0.113.1",
            [nodes("p", rule("Drop")), nodes("q", rule("Pass"), tier="emergency")],
            "Allow",
            FREE,
        ),
        # a Pod of another Node comes with the address of its Node, one of this Node with its own
        ("a/client", [nodes("p", rule("Drop", **OWN))], "Allow", FREE),
        ("a/client", [nodes("p", rule("Drop", **CLIENT_NODE))], "Drop", DROP),
        ("b/db", [nodes("p", rule("Drop", **OWN))], "Drop", DROP),
        ("192.0.2.2", [nodes("p", rule("Drop"))], "Allow", "Node n2 reaches itself whatever policies say."),
    ],
)
def test_the_rule_that_decides_is_named(
    source: str, policies: list[Object], verdict: str, sentence: str
) -> None:
    found = ask(world(*policies), source, "192.0.2.2", "22/tcp")
    assert (found.ingress.verdict, found.ingress.sentence) == (verdict, sentence)
    # what would turn over the verdict on a Node is not said
    assert not found.changes or (source == "a/client" and verdict == "Allow")


def test_what_a_node_sends_is_decided_where_it_leaves() -> None:
    out = native("p", appliedTo=[{"nodeSelector": {}}], egress=[rule("Drop", to=[{"nodeSelector": {}}])])
    found = ask(world(out), "192.0.2.1", "192.0.2.2", "22/tcp")
    assert (found.verdict, found.direction) == ("Drop", "Egress")
    assert found.egress.sentence == DROP.replace("Ingress", "Egress")


SERVICE: Object = {
    "metadata": {"namespace": "a", "name": "s"},
    "spec": {"clusterIPs": ["10.96.0.10"], "ports": [{"port": 80}], "selector": {"app": "web"}},
}
TRANSLATED = "No rule on Services refuses it; kube-proxy makes a packet to a Pod of Service a/s, which all others judge."


@pytest.mark.parametrize("proxy", [None, Proxy(), Proxy(all_addresses=True)])
def test_what_a_node_sends_to_a_service_is_decided_whoever_serves_it(proxy: Proxy | None) -> None:
    out = native(
        "p",
        appliedTo=[{"nodeSelector": {}}],
        egress=[rule("Drop", toServices=[{"name": "s", "namespace": "a"}])],
    )
    found = {"pods": PODS, "nodes": NODES, "namespaces": NAMESPACES, "services": [SERVICE]}
    there = World(objects({**found, "cluster_policies": [out]}), proxy, ("NodeNetworkPolicy",))
    assert ask(there, "192.0.2.1", "10.96.0.10", "80/tcp").egress.sentence == DROP.replace("In", "E", 1)
    last = ask(there, "192.0.2.1", "10.96.0.10", "81/tcp").egress
    free = proxy is not None and proxy.all_addresses
    assert last.sentence == ("No rule on Node n1 matches for egress." if free else TRANSLATED)
    assert ask(there, "192.0.2.1", "10.0.0.12", "80/tcp").egress.verdict == "Allow"
