"""What an explanation says of packets from and to machines outside the cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from explain_world import NAMESPACES, NODES, PODS, Object, ask, kube, native, rule, world

from antrea.explain.objects import objects
from antrea.explain.world import World

if TYPE_CHECKING:
    from antrea.explain.answer import Answer

IPS, NOBODY = ("203.0.113.2", "2001:db8::2"), "203.0.113.99"
MACHINE: Object = {
    "metadata": {"namespace": "vms", "name": "vm1", "labels": {"role": "db"}},
    "spec": {"endpoints": [{"ip": ip} for ip in IPS], "externalNode": "vm1"},
}
APPLIED = [{"externalEntitySelector": {"matchLabels": {"role": "db"}}}]
ON_NODE = [{"nodeSelector": {"matchLabels": {"node": "n1"}}}]
"""Whose Pods have its address when they leave the cluster."""
WEB = [{"podSelector": {"matchLabels": {"app": "client"}}, "namespaceSelector": {}}]


def asked(*rules: Object, to: str = IPS[0], source: str = "a/client", port: str = "80/tcp") -> Answer:
    policy = native("p", *rules, space="vms", appliedTo=APPLIED)
    return ask(world(policies=[policy], entities=[MACHINE]), source, to, port)


def test_a_policy_on_a_machine_decides_what_enters_it() -> None:
    allowed = rule("Allow", **{"from": ON_NODE, "ports": [{"protocol": "TCP", "port": 80}]})
    assert asked(allowed, rule("Drop")).verdict == "Allow"
    found = asked(allowed, rule("Drop"), port="81/tcp")
    assert (found.verdict, found.direction, found.ingress.pod) == ("Drop", "Ingress", "")
    assert found.sentence == (
        "Ingress rule 1 (drop) of AntreaNetworkPolicy vms/p in tier application (250), priority 5 drops the packet."
    )
    assert asked(allowed, rule("Drop"), source=NOBODY).verdict == "Drop"
    assert asked(rule("Reject"), to=NOBODY).verdict == "Allow"


def test_a_rule_on_a_machine_that_names_pods_lets_none_of_them_in() -> None:
    """What they send arrives with the address of their Node."""
    allowed = rule("Allow", **{"from": WEB})
    assert asked(allowed, rule("Drop")).verdict == "Drop"
    assert asked(rule("Drop", **{"from": WEB})).verdict == "Allow"


def test_a_rule_on_a_machine_that_names_pods_lets_them_in_where_they_keep_their_addresses() -> None:
    """With noSNAT."""
    policy = native("p", rule("Allow", **{"from": WEB}), rule("Drop"), space="vms", appliedTo=APPLIED)
    there = {
        "pods": PODS,
        "nodes": NODES,
        "namespaces": NAMESPACES,
        "policies": [policy],
        "entities": [MACHINE],
    }
    found = World(objects(there), pods_keep_addresses=True)
    assert ask(found, "a/client", IPS[0], "80/tcp").verdict == "Allow"
    assert ask(found, "a/web", IPS[0], "80/tcp").verdict == "Drop"


def test_a_policy_on_a_machine_decides_what_leaves_it() -> None:
    policy = native("p", space="vms", appliedTo=APPLIED, egress=[rule("Reject", to=WEB)])
    there = world(policies=[policy], entities=[MACHINE])
    found = ask(there, IPS[0], "a/client", "80/tcp")
    assert (found.verdict, found.direction) == ("Reject", "Egress")
    assert ask(there, IPS[0], "a/web", "80/tcp").verdict == "Allow"


def test_what_no_policy_is_for_passes_and_those_of_kubernetes_are_for_pods_alone() -> None:
    closed = kube("closed", space="vms", podSelector={}, policyTypes=["Ingress"])
    found = ask(world(kube_policies=[closed], entities=[MACHINE]), "a/client", IPS[0], "80/tcp")
    assert (found.verdict, found.ingress.reason) == ("Allow", "nothing")


@pytest.mark.parametrize(
    ("fields", "verdict", "why"),
    [
        ({"action": "Allow", "l7Protocols": [{"http": {}}]}, "Drop", "l7Protocols are not for ExternalNodes"),
        ({"action": "Drop", "ports": [{"protocol": "TCP", "port": "http"}]}, "Allow", "have no names"),
    ],
)
def test_what_machines_cannot_have_is_said(fields: Object, verdict: str, why: str) -> None:
    found = asked({"name": "r", **fields})
    assert found.verdict == verdict
    (silent,) = found.ingress.silent
    assert why in silent.why
