"""What an explanation says of packets to NodePorts: rules for the Service, then those for the Pod that is chosen."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

import pytest
from explain_world import NODES, Object, ask, kube, native, rule, world
from test_explain_balanced import BOTH, DB, WEB, end, endpoints, service

from antrea.explain.world import Proxy

if TYPE_CHECKING:
    from antrea.explain.answer import Answer

ALL, OFF = Proxy(all_addresses=True), Proxy()
OUTSIDE, N1, PORT = "203.0.113.7", "192.0.2.1", "30080/tcp"
NODE_PORT: Object = {
    "ports": [{"name": "http", "port": 80, "protocol": "TCP", "nodePort": 30080}],
    "type": "NodePort",
}
APPLIED = [{"service": {"name": "svc", "namespace": "a"}}]
CLIENT = [{"ipBlock": {"cidr": "203.0.113.0/24"}}]


def asked(
    *policies: Object,
    slices: list[Object] = BOTH,
    source: str = OUTSIDE,
    proxy: Proxy = ALL,
    kube_policies: tuple[Object, ...] = (),
    **more: str,
) -> Answer:
    there = world(
        proxy,
        services=[service(**NODE_PORT, **more)],
        endpoint_slices=slices,
        cluster_policies=list(policies),
        kube_policies=list(kube_policies),
    )
    return ask(there, source, N1, PORT)


def verdicts(found: Answer) -> list[tuple[str, str]]:
    assert found.through is not None
    return [(one.endpoint, one.verdict) for one in found.through.endpoints]


def test_a_rule_for_the_service_decides_wherever_the_endpoint_is() -> None:
    drop = native("p", rule("Drop", **{"from": CLIENT}), appliedTo=APPLIED)
    hosts = [endpoints(WEB, DB, end("192.0.2.2", "n2"))]
    found = asked(drop, slices=hosts)
    assert verdicts(found) == [("a/web", "Drop"), ("b/db", "Drop"), ("192.0.2.2", "Drop")]
    assert found.sentence == (
        "Ingress rule 0 (drop) of AntreaClusterNetworkPolicy p in tier application (250), priority 5 drops the packet."
    )
    assert found.through is not None
    assert found.through.node_port == "n1"
    assert asked(drop, slices=hosts, source="198.51.100.1").verdict == "Allow"


@pytest.mark.parametrize("source", ["a/client", "b/host"])
def test_a_pod_of_the_node_is_judged_by_its_address_and_a_process_of_it_is_not(source: str) -> None:
    drop = native("p", rule("Drop", **{"from": [{"ipBlock": {"cidr": "10.0.0.0/16"}}]}), appliedTo=APPLIED)
    assert asked(drop, source=source).verdict == ("Drop" if source == "a/client" else "Allow")


def test_rules_for_the_pod_and_for_the_service_have_one_order_on_the_node_that_is_asked() -> None:
    closed = kube("closed", podSelector={}, policyTypes=["Ingress"])
    allow = native("p", rule("Allow", **{"from": CLIENT}), appliedTo=APPLIED)
    web = [endpoints(WEB)]
    assert asked(slices=web, kube_policies=(closed,)).verdict == "Drop"
    assert asked(allow, slices=web, kube_policies=(closed,)).verdict == "Allow"
    first = native("first", rule("Drop"), priority=1)
    assert asked(allow, first, slices=web).verdict == "Drop"
    ports = native("p", rule("Drop", ports=[{"port": 8080}]), appliedTo=APPLIED)
    assert asked(ports, slices=web).verdict == "Drop"


def test_the_node_of_another_endpoint_judges_what_comes_from_the_first() -> None:
    closed = kube("closed", space="b", podSelector={}, policyTypes=["Ingress"])
    allow = native("p", rule("Allow", **{"from": CLIENT}), appliedTo=APPLIED)
    found = asked(allow, slices=[endpoints(DB)], kube_policies=(closed,))
    assert found.verdict == "Drop"
    assert (
        found.sentence == "Pod b/db is isolated for ingress by NetworkPolicy b/closed, and no rule allows it."
    )
    assert [(one.rule.policy, one.why) for one in found.ingress.lost] == [
        ("p", "it lets the packet in by the NodePort, and the Node of the Endpoint judges it after that")
    ]
    by_gateway = native("q", rule("Drop", **{"from": [{"ipBlock": {"cidr": "10.0.0.1/32"}}]}))
    by_gateway["spec"]["appliedTo"] = [{"podSelector": {"matchLabels": {"app": "db"}}}]
    assert asked(by_gateway, slices=[endpoints(DB)]).verdict == "Drop"


def test_without_proxy_all_or_for_a_service_left_to_others_nothing_is_claimed() -> None:
    drop = native("p", rule("Drop"), appliedTo=APPLIED)
    for proxy in (OFF, Proxy(all_addresses=True, skipped=frozenset({"a/svc"}))):
        found = asked(drop, proxy=proxy)
        assert (found.verdict, found.through) == ("Allow", None)
        assert [(one.rule.policy, one.why) for one in found.ingress.silent] == [
            ("p", "appliedTo Service a/svc is not enforced: AntreaProxy does not serve its NodePorts")
        ]


def test_with_policy_local_a_node_without_an_endpoint_drops_what_comes_from_outside() -> None:
    found = asked(slices=[endpoints(DB)], externalTrafficPolicy="Local")
    assert (found.verdict, found.sentence) == (
        "Drop",
        "Service a/svc has no ready Endpoints on Node n1 (externalTrafficPolicy Local): AntreaProxy drops the packet before any policy is asked.",
    )
    assert verdicts(asked(externalTrafficPolicy="Local")) == [("a/web", "Allow")]
    assert asked(slices=[], externalTrafficPolicy="Local").verdict == "Reject"


@pytest.mark.parametrize(("mode", "verdict"), [("dsr", "Drop"), ("nat", "Allow")])
def test_an_endpoint_that_answers_directly_sees_the_client_itself(mode: str, verdict: str) -> None:
    """Elsewhere it sees the gateway of the Node that was asked."""
    by_client = native("q", rule("Drop", **{"from": CLIENT}))
    by_client["spec"]["appliedTo"] = [{"podSelector": {"matchLabels": {"app": "db"}}}]
    direct = Proxy(all_addresses=True, direct_default=mode)
    assert asked(by_client, slices=[endpoints(DB)], proxy=direct).verdict == verdict
    other = service(**NODE_PORT)
    other["metadata"]["annotations"] = {"service.antrea.io/load-balancer-mode": "DSR"}
    there = world(direct, services=[other], endpoint_slices=[endpoints(DB)], cluster_policies=[by_client])
    assert ask(there, OUTSIDE, N1, PORT).verdict == "Drop"


@pytest.mark.parametrize(
    ("said", "verdict"),
    [
        (("02:00:00:00:00:01 192.0.2.1/24", "02:00:00:00:00:02 192.0.2.2/24"), "Drop"),
        (("02:00:00:00:00:01 198.18.0.1/24", "02:00:00:00:00:02 192.0.2.2/24"), "Allow"),
        (("02:00:00:00:00:01 192.0.2.1/24", ""), "Allow"),
        (("what? 192.0.2.0/99", "?"), "Allow"),
    ],
)
def test_without_tunnels_an_endpoint_sees_the_client_itself_if_both_nodes_are_on_one_network(
    said: tuple[str, str], verdict: str
) -> None:
    """Else it sees the Node that was asked."""
    by_client = native("q", rule("Drop", **{"from": CLIENT}))
    by_client["spec"]["appliedTo"] = [{"podSelector": {"matchLabels": {"app": "db"}}}]
    direct = Proxy(all_addresses=True, direct_default="dsr", tunnels=False)
    nodes = copy.deepcopy(NODES)
    for node, text in zip(nodes, said, strict=True):
        node["metadata"]["annotations"] = {"node.antrea.io/link": text} if text else {}
    there = world(
        direct,
        services=[service(**NODE_PORT)],
        endpoint_slices=[endpoints(DB)],
        cluster_policies=[by_client],
        nodes=nodes,
    )
    assert ask(there, OUTSIDE, N1, PORT).verdict == verdict


@pytest.mark.parametrize(
    ("proxy", "source", "port", "through"),
    [
        (ALL, "a/web", 80, True),
        (ALL, "b/db", 80, False),  # on another Node, which sends it there as any host
        (ALL, "a/web", 81, False),
        (OFF, "a/web", 80, False),
        (Proxy(all_addresses=True, node_addresses=False), "a/web", 80, False),
        (ALL, "a/web", 10250, False),
    ],
)
def test_an_external_ip_that_is_the_nodes_own_leads_to_an_endpoint_there(
    proxy: Proxy, source: str, port: int, through: bool
) -> None:
    number = 10250 if port == 10250 else 80
    ports = [{"name": "http", "port": number, "protocol": "TCP"}]
    there = world(proxy, services=[service(ports=ports, externalIPs=[N1])], endpoint_slices=BOTH)
    found = ask(there, source, N1, f"{port}/tcp")
    assert (found.through is not None) == through


@pytest.mark.parametrize(
    ("ip", "through"),
    [("127.0.0.1", False), ("169.254.169.254", False), ("169.254.0.252", False), ("169.254.169.1", True), ("224.0.0.5", False), ("0.0.0.0", False), ("198.51.100.60", True)],
)  # fmt: skip
def test_an_external_ip_that_no_host_can_have_leads_to_no_endpoint(ip: str, through: bool) -> None:
    ports = [{"name": "http", "port": 80, "protocol": "TCP"}]
    there = world(ALL, services=[service(ports=ports, externalIPs=[ip])], endpoint_slices=BOTH)
    assert (ask(there, "a/web", ip, "80/tcp").through is not None) == through
