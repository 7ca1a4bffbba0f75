"""The smallest change that turns a verdict over: said in one sentence, and true of the objects."""

from __future__ import annotations

import random
from typing import Any

import pytest
from explain_world import ask, kube, native, rule, world
from policy_cluster import cluster, question
from policy_switch import packet_of, world_of

from antrea.explain.answer import answer
from antrea.explain.change import changes
from antrea.explain.verdict import judged

WEB = {"matchLabels": {"app": "web"}}
CLIENT = {"podSelector": {"matchLabels": {"app": "client"}}}


def closed(*ingress: dict[str, Any]) -> dict[str, Any]:
    return kube("closed", podSelector=WEB, policyTypes=["Ingress"], ingress=list(ingress))


@pytest.mark.parametrize(
    ("ingress", "port", "sentence"),
    [
        (
            [{"from": [CLIENT], "ports": [{"port": 443}]}],
            "80",
            "Add port 80/tcp to ingress rule 0 of K8sNetworkPolicy a/closed.",
        ),
        (
            [{"from": [{"ipBlock": {"cidr": "192.0.2.0/24"}}], "ports": [{"port": 80}]}],
            "80",
            "Add a peer with podSelector app=client to `from` of ingress rule 0 of K8sNetworkPolicy a/closed.",
        ),
        (
            [{"from": [CLIENT], "ports": [{"port": 443}]}],
            "icmp",
            "Add an ingress rule with podSelector app=client in `from` and no ports to K8sNetworkPolicy a/closed.",
        ),
        (
            [],
            "53/udp",
            "Add an ingress rule with podSelector app=client in `from` and port 53/udp to K8sNetworkPolicy a/closed.",
        ),
    ],
)
def test_an_isolated_pod_is_opened_by_a_port_a_peer_or_a_rule(
    ingress: list[dict[str, Any]], port: str, sentence: str
) -> None:
    found = ask(world(kube_policies=[closed(*ingress)]), port=port)
    assert (found.verdict, found.changes) == ("Drop", (sentence,))


def test_who_is_elsewhere_is_named_with_the_namespace_or_by_address() -> None:
    found = world(kube_policies=[closed()])
    assert [ask(found, source).changes for source in ("b/db", "203.0.113.7")] == [
        (
            (
                "Add an ingress rule with podSelector app=db and namespaceSelector kubernetes.io/metadata.name=b"
                " in `from` and port 80/tcp to K8sNetworkPolicy a/closed."
            ),
        ),
        (
            "Add an ingress rule with ipBlock 203.0.113.7/32 in `from` and port 80/tcp to K8sNetworkPolicy a/closed.",
        ),
    ]


def test_a_rule_goes_if_that_is_enough_and_else_changes_its_action() -> None:
    drop = native("drop", rule("Drop"))
    assert ask(world(cluster_policies=[drop])).changes == (
        "Delete ingress rule 0 (drop) of AntreaClusterNetworkPolicy drop.",
    )
    assert ask(world(cluster_policies=[drop], kube_policies=[closed()])).changes == (
        "Change the action of ingress rule 0 (drop) of AntreaClusterNetworkPolicy drop from Drop to Allow.",
    )
    deep = native("deep", rule("Allow", l7Protocols=[{"http": {}}]))
    assert ask(world(cluster_policies=[deep], kube_policies=[closed()])).changes == (
        "Remove l7Protocols from ingress rule 0 (allow) of AntreaClusterNetworkPolicy deep.",
    )


def test_what_two_directions_refuse_takes_two_changes() -> None:
    silent = kube("silent", podSelector=CLIENT["podSelector"], policyTypes=["Egress"])
    assert ask(world(kube_policies=[silent, closed()])).changes == (
        "Add an egress rule with podSelector app=web in `to` and port 80/tcp to K8sNetworkPolicy a/silent.",
        "Add an ingress rule with podSelector app=client in `from` and port 80/tcp to K8sNetworkPolicy a/closed.",
    )


def test_what_is_allowed_is_refused_by_a_new_policy_or_without_the_rules_that_allow() -> None:
    assert ask(world()).changes == (
        (
            "Create a NetworkPolicy in Namespace a with podSelector app=web, policyTypes [Ingress] and no rule:"
            " it isolates Pod a/web."
        ),
    )
    assert ask(world(kube_policies=[closed({}, {"from": [CLIENT]})])).changes == (
        "Delete ingress rule 0 of K8sNetworkPolicy a/closed and ingress rule 1 of K8sNetworkPolicy a/closed.",
    )
    assert ask(world(cluster_policies=[native("open", rule("Allow"))])).changes == (
        "Change the action of ingress rule 0 (allow) of AntreaClusterNetworkPolicy open from Allow to Drop.",
    )
    assert ask(world(), "203.0.113.1", "203.0.113.2").changes == ()


def test_every_packet_that_a_policy_is_for_can_be_turned_over() -> None:
    for seed in range(15):
        rnd = random.Random(seed)
        found = world_of(cluster(rnd))
        for _ in range(8):
            packet = packet_of(found, question(rnd))
            if packet.destination.service:
                # no policy is for a port that a Service does not have
                continue
            said = judged(found, packet)
            if any(one.rule == half.rule for half in (said.egress, said.ingress) for one in half.silent):
                # a rule with a part that is not known here denies by it, and would accept nothing by it
                continue
            exempt = said.egress.reason == said.ingress.reason == "exempt"
            assert bool(changes(found, packet)) is not exempt
            assert answer(found, packet).verdict == said.verdict
