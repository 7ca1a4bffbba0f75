"""Which policy on Nodes decides, where their gate is on."""

from __future__ import annotations

import functools
from typing import Any

import pytest
from explain_world import NAMESPACES, NODES, PODS, ask, native, rule

from antrea.antctl.explain.source import guard_ports
from antrea.config.agent import AgentConfig
from antrea.config.load import parse
from antrea.explain.guard import DEFAULT_PORTS, KEEP_SSH, GuardPorts
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


SERVER: Object = {
    "metadata": {
        "namespace": "default",
        "name": "kubernetes",
        "labels": {"kubernetes.io/service-name": "kubernetes"},
    },
    "addressType": "IPv4",
    "endpoints": [{"addresses": ["192.0.2.1"]}],
    "ports": [{"port": 6443, "protocol": "TCP"}],
}
KUBERNETES: Object = {
    "metadata": {"namespace": "default", "name": "kubernetes"},
    "spec": {"clusterIPs": ["10.96.0.1"], "ports": [{"port": 443, "protocol": "TCP"}]},
}
KEPT = "kubelet and antrea-agent, for kube-apiserver"


def locked(ports: GuardPorts = DEFAULT_PORTS, ssh: str = "") -> World:
    """Nodes of which a policy drops everything, in both directions."""
    everything = native("p", rule("Drop"), appliedTo=[{"nodeSelector": {}}], egress=[rule("Drop")])
    own = [{**one, "metadata": {**one["metadata"], "annotations": {KEEP_SSH: ssh}}} for one in NODES]
    found = {"pods": PODS, "nodes": own, "namespaces": NAMESPACES, "endpoint_slices": [SERVER]}
    rest = {"services": [KUBERNETES], "cluster_policies": [everything]}
    return World(objects({**found, **rest}), gates=("NodeNetworkPolicy",), ports=ports)


@pytest.mark.parametrize(
    ("source", "destination", "port", "kept"),
    [
        ("192.0.2.2", "192.0.2.1", "6443/tcp", "kube-apiserver"),
        ("203.0.113.1", "192.0.2.1", "6443/tcp", ""),
        ("192.0.2.1", "192.0.2.2", "10250/tcp", KEPT),
        ("192.0.2.1", "192.0.2.2", "10350/tcp", KEPT),
        ("192.0.2.2", "192.0.2.1", "10250/tcp", ""),
        ("192.0.2.2", "192.0.2.1", "10351/udp", "gossip"),
        ("192.0.2.2", "192.0.2.1", "10351/tcp", "gossip"),
        ("203.0.113.1", "192.0.2.1", "10351/tcp", ""),
        ("192.0.2.2", "192.0.2.1", "6081/udp", "tunnels"),
        ("192.0.2.2", "192.0.2.1", "6081/tcp", ""),
        ("192.0.2.2", "192.0.2.1", "10349/tcp", "antrea-controller"),
        ("203.0.113.1", "192.0.2.1", "68/udp", "DHCP"),
        ("203.0.113.1", "192.0.2.1", "22/tcp", ""),
        ("203.0.113.1", "192.0.2.1", "icmp", ""),
        # a Pod of another Node comes with the address of its Node
        ("a/client", "192.0.2.2", "10351/tcp", "gossip"),
    ],
)
def test_what_a_node_keeps_is_named_with_the_rule_that_would_refuse_it(
    source: str, destination: str, port: str, kept: str
) -> None:
    half = ask(locked(), source, destination, port).ingress
    node = "n1" if destination == "192.0.2.1" else "n2"
    if not kept:
        assert (half.verdict, half.reason) == ("Drop", "rule")
        return
    assert (half.verdict, half.reason, half.rule) == ("Allow", "guard", None)
    assert half.sentence == f"Node {node} keeps {kept} whatever policies say. Else: {DROP}"
    assert [(one.rule.policy, one.why) for one in half.lost] == [
        ("p", f"the Node lets {kept} through before any policy is asked, so as not to be locked out")
    ]


@pytest.mark.parametrize(
    ("destination", "port", "kept"),
    [
        ("192.0.2.1", "6443/tcp", "kube-apiserver"),
        ("10.96.0.1", "443/tcp", "kube-apiserver"),
        ("192.0.2.1", "10351/udp", "gossip"),
        ("203.0.113.1", "67/udp", "DHCP"),
        ("192.0.2.1", "10250/tcp", ""),
        ("203.0.113.1", "6443/tcp", ""),
    ],
)
def test_what_a_node_keeps_of_what_it_sends_is_named(destination: str, port: str, kept: str) -> None:
    half = ask(locked(), "192.0.2.2", destination, port).egress
    assert half.verdict == ("Allow" if kept else "Drop")
    assert half.sentence.startswith(f"Node n2 keeps {kept} " if kept else "Egress rule 0 (drop)")


def test_a_packet_that_is_kept_on_both_nodes_is_explained_by_what_is_kept() -> None:
    found = ask(locked(), "192.0.2.2", "192.0.2.1", "10351/udp")
    assert (found.verdict, found.direction) == ("Allow", "Ingress")
    assert found.sentence.startswith("Node n1 keeps gossip whatever policies say. Else: Ingress rule 0")
    assert not found.changes


def test_without_a_policy_that_would_refuse_it_what_is_kept_has_no_more_to_it() -> None:
    there = world()
    assert ask(there, "192.0.2.2", "192.0.2.1", "10351/udp").sentence == (
        "Node n1 keeps gossip whatever policies say."
    )


@pytest.mark.parametrize(
    ("ssh", "port", "verdict"),
    [("true", 22, "Allow"), ("22,2222", 2222, "Allow"), ("2222", 22, "Drop"), ("22,x", 22, "Drop")],
)
def test_ports_of_ssh_are_kept_as_the_node_is_annotated(ssh: str, port: int, verdict: str) -> None:
    assert ask(locked(ssh=ssh), "203.0.113.1", "192.0.2.1", f"{port}/tcp").verdict == verdict


def test_without_tunnels_no_port_is_kept_for_them() -> None:
    for mode, verdict in (("encap", "Allow"), ("noEncap", "Drop")):
        there = locked(guard_ports(parse(AgentConfig, f"trafficEncapMode: {mode}").config))
        assert ask(there, "192.0.2.2", "192.0.2.1", "6081/udp").verdict == verdict


def test_ports_that_are_kept_are_those_of_the_configuration() -> None:
    there = locked(GuardPorts(tunnel=4789, gossip=1234, api=2345))
    for port, verdict in (("4789/udp", "Allow"), ("1234/tcp", "Allow"), ("6081/udp", "Drop")):
        assert ask(there, "192.0.2.2", "192.0.2.1", port).verdict == verdict
    assert ask(there, "192.0.2.1", "192.0.2.2", "2345/tcp").ingress.verdict == "Allow"


BALANCED = "198.51.100.77"
LOAD_BALANCER: Object = {
    **SERVICE,
    "spec": {**SERVICE["spec"], "externalIPs": ["198.51.100.78"]},
    "status": {"loadBalancer": {"ingress": [{"ip": BALANCED}]}},
}
HTTP = {"ports": [{"port": 80}]}
OUT_THERE = "203.0.113.1"


def at_service(
    *policies: Object, proxy: Proxy | None, to: str = BALANCED, source: str = OUT_THERE, port: str = "80/tcp"
) -> Any:
    found = {"pods": PODS, "nodes": NODES, "namespaces": NAMESPACES, "services": [LOAD_BALANCER]}
    whole = World(objects({**found, "cluster_policies": list(policies)}), proxy, gates=("NodeNetworkPolicy",))
    return ask(whole, source, to, port)


def everywhere(name: str, *ingress: Object) -> Object:
    return native(name, *ingress, appliedTo=[{"nodeSelector": {}}])


@pytest.mark.parametrize("to", [BALANCED, "198.51.100.78", "10.96.0.10"])
def test_a_policy_on_nodes_holds_at_addresses_of_services_that_antrea_proxy_serves(to: str) -> None:
    ask_ = functools.partial(at_service, proxy=Proxy(all_addresses=True), to=to)
    assert (ask_(everywhere("p", rule("Drop", **HTTP))).verdict) == "Drop"
    assert ask_(everywhere("p", rule("Drop", **HTTP))).sentence == DROP
    assert ask_(everywhere("p", rule("Drop", **HTTP)), port="81/tcp").ingress.reason == "no port"
    assert ask_(everywhere("p", rule("Drop", ports=[{"port": 8080}]))).verdict == "Allow"
    assert ask_(everywhere("p", rule("Drop", **BLOCK))).verdict == "Drop"
    assert ask_(everywhere("p", rule("Drop", **BLOCK)), source="198.51.100.1").verdict == "Allow"
    some = ask_(nodes("p", rule("Drop", **HTTP)))
    assert (some.verdict, some.sentence) == (
        "Drop",
        f"If Node n2 gets the packet: {DROP} Let through by Node n1.",
    )
    assert ask_().sentence == (
        "No policy on Nodes refuses the packet at Service a/s; policies of the Endpoint judge it after that."
    )


@pytest.mark.parametrize("proxy", [None, Proxy(), Proxy(frozenset({"a/s"}), all_addresses=True)])
def test_where_another_program_serves_a_service_it_is_said_that_rules_on_nodes_do_not_hold(
    proxy: Proxy | None,
) -> None:
    found = at_service(everywhere("p", rule("Drop", **HTTP)), proxy=proxy)
    assert (found.verdict, found.direction) == ("Allow", "Ingress")
    assert found.sentence.startswith(
        f"Service a/s is not served by AntreaProxy at {BALANCED}: kube-proxy, or"
    )
    assert [(one.rule.policy, one.why) for one in found.ingress.silent] == [
        ("p", "it does not hold at an address that another program than AntreaProxy translates")
    ]
