"""The status of a policy: what agents have reported of this generation, from Nodes that it is for."""

from __future__ import annotations

from typing import Any

import pytest
from native_world import Told, node, pod, row, space

from antrea.apis.controlplane_report import NetworkPolicyNodeStatus, NetworkPolicyStatus
from antrea.apis.crd.part import Condition
from antrea.apis.meta import ObjectMetadata
from antrea.apis.policy_report import AT_SERVICES as BEHIND
from antrea.apis.policy_report import ON_NODE
from antrea.apis.status import Status
from antrea.features.grouping.publication import PublishedPolicy
from antrea.features.network_policy.controller.antrea_internal_policy import ClusterPolicy
from antrea.features.network_policy.controller.realization import UNAWARE, NodeReport, record_report

WEB = {"matchLabels": {"app": "web"}}
REALIZABLE = Condition("Realizable", "True")
NO_FAILURE, NOTHING_KEPT = Condition("RealizationFailure"), Condition("LockoutPrevented")


def policy(generation: int = 1, namespace: str = "", **applied: Any) -> Any:
    spec = {"priority": 1, "appliedTo": [applied or {"podSelector": WEB}], "ingress": [{"action": "Drop"}]}
    kind = "NetworkPolicy" if namespace else "ClusterNetworkPolicy"
    found = row(kind, "p", namespace, spec=spec)
    return type(found)(namespace, "p", "uid-p", generation, found.spec)  # type: ignore[attr-defined]


def world(*nodes: str) -> Told:
    pods = [pod(f"w-{name}", "ns", name, app="web") for name in nodes]
    return Told().put(space("ns"), policy(), *pods)


def reports(told: Told, *found: tuple[Any, ...]) -> Told:
    """Node, generation, and, if that failed, the message."""
    nodes = tuple(
        NetworkPolicyNodeStatus(
            node_name=node, generation=generation, realization_failure=bool(why), message="".join(why)
        )
        for node, generation, *why in found
    )
    record_report(told.facts, NetworkPolicyStatus(metadata=ObjectMetadata(name="uid-p"), nodes=nodes))
    return told.step()


def status(told: Told) -> tuple[Any, ...]:
    """Phase, generation, realized Nodes of how many, conditions."""
    (found,) = told.of(Status)
    assert (found.kind, found.manager) == ("ClusterNetworkPolicy", "antrea-controller")
    assert found.path == "/apis/crd.antrea.io/v1beta1/clusternetworkpolicies/p"
    fields = dict(found.fields)
    return (
        fields["phase"],
        fields["observedGeneration"],
        fields["currentNodesRealized"],
        fields["desiredNodesRealized"],
        found.conditions,
    )


ENFORCED, PORTS_KNOWN = Condition("Audited"), Condition("PortNameUnknown")
AT_SERVICES = Condition("NotAtServiceAddresses")
GOOD = (REALIZABLE, NO_FAILURE, NOTHING_KEPT, ENFORCED, PORTS_KNOWN, AT_SERVICES)


def test_a_policy_is_realized_when_all_its_nodes_say_so() -> None:
    told = world("n1", "n2")
    assert status(told) == ("Realizing", 1, 0, 2, GOOD)
    assert status(reports(told, ("n1", 1))) == ("Realizing", 1, 1, 2, GOOD)
    assert status(reports(told, ("n2", 1))) == ("Realized", 1, 2, 2, GOOD)


def test_a_policy_for_nobody_is_realized() -> None:
    assert status(world()) == ("Realized", 1, 0, 0, GOOD)


def test_reports_on_another_generation_do_not_count() -> None:
    told = reports(world("n1"), ("n1", 1))
    assert status(told.put(policy(2))) == ("Realizing", 2, 0, 1, GOOD)
    assert status(reports(told, ("n1", 1))) == ("Realizing", 2, 0, 1, GOOD)
    assert status(reports(told, ("n1", 2))) == ("Realized", 2, 1, 1, GOOD)


def test_a_node_that_fails_is_named_and_the_policy_has_failed_once_all_have_spoken() -> None:
    told = reports(world("n1", "n2"), ("n2", 1, "no room"))

    def failure(text: str) -> Condition:
        reason = "NetworkPolicyRealizationFailedOnNode"
        return Condition("RealizationFailure", "True", reason=reason, message=text)

    one = failure('Failed Nodes count 1: "n2":"no room"')
    assert status(told) == (
        "Realizing",
        1,
        0,
        2,
        (REALIZABLE, one, NOTHING_KEPT, ENFORCED, PORTS_KNOWN, AT_SERVICES),
    )
    assert status(reports(told, ("n1", 1))) == (
        "Failed",
        1,
        1,
        2,
        (REALIZABLE, one, NOTHING_KEPT, ENFORCED, PORTS_KNOWN, AT_SERVICES),
    )
    two = failure('Failed Nodes count 2: "n1":"too", "n2":"no room"')
    assert status(reports(told, ("n1", 1, "too"))) == (
        "Failed",
        1,
        0,
        2,
        (REALIZABLE, two, NOTHING_KEPT, ENFORCED, PORTS_KNOWN, AT_SERVICES),
    )
    assert status(reports(told, ("n1", 1), ("n2", 1))) == ("Realized", 1, 2, 2, GOOD)


def test_the_generation_that_was_realized_is_named_until_a_later_one_is() -> None:
    told = world("n1", "n2")

    def realized() -> Any:
        (found,) = told.of(Status)
        assert found.keeps == ("realizedGeneration",)
        return dict(found.fields).get("realizedGeneration", "as it was")

    assert realized() == "as it was"
    reports(told, ("n1", 1))
    assert realized() == "as it was"
    reports(told, ("n2", 1))
    assert realized() == 1
    told.put(policy(2))
    reports(told, ("n1", 2), ("n2", 2, "no room"))
    assert realized() == "as it was"
    reports(told, ("n2", 2))
    assert realized() == 2


def test_what_many_nodes_say_is_cut() -> None:
    told = reports(world("n1"), ("n1", 1, "x" * 300))
    message = status(told)[-1][1].message
    assert (len(message), message[-4:]) == (259, "x...")


def test_a_report_on_a_policy_that_is_gone_or_not_for_that_node_is_not_kept() -> None:
    told = reports(world("n1"), ("n9", 1))
    reports(told.drop(ClusterPolicy, "/p"), ("n1", 1))
    assert told.facts.all(NodeReport) == []


def test_a_policy_of_a_namespace_for_strangers_says_so() -> None:
    everywhere = {"podSelector": WEB, "namespaceSelector": {}}
    told = Told().put(
        space("ns"), space("other"), row("Group", "g", "ns", spec=everywhere), policy(1, "ns", group="g")
    )
    told.put(pod("w", "ns", app="web"), pod("x", "other", app="web"))
    (found,) = (one for one in told.of(Status) if one.kind == "NetworkPolicy")
    assert found.path == "/apis/crd.antrea.io/v1beta1/namespaces/ns/networkpolicies/p"
    assert dict(found.fields)["phase"] == "Pending"
    assert found.conditions[0] == Condition(
        "Realizable",
        "False",
        reason="NetworkPolicyAppliedToUnsupportedGroup",
        message="Group ns/g with Pods in other Namespaces can not be used as AppliedTo",
    )


def test_where_a_policy_on_nodes_does_not_hold_at_services_is_a_condition_and_no_failure() -> None:
    told = Told().put(space("ns"), policy(nodeSelector={}), node("n1", "192.0.2.1"), node("n2", "192.0.2.2"))
    text = "drop at 80/TCP"
    rows = [
        NetworkPolicyNodeStatus(node_name="n1", generation=1, message=f"{ON_NODE}{BEHIND}{text}"),
        NetworkPolicyNodeStatus(node_name="n2", generation=1, message=f"drop would cut gossip{BEHIND}{text}"),
    ]
    record_report(told.facts, NetworkPolicyStatus(metadata=ObjectMetadata(name="uid-p"), nodes=tuple(rows)))
    found = status(told.step())
    assert found[:4] == ("Realized", 1, 2, 2)
    assert {one.type: one.message for one in found[4] if one.status == "True"} == {
        "Realizable": "",
        "LockoutPrevented": 'Nodes count 1: "n2":"drop would cut gossip"',
        "NotAtServiceAddresses": f'Nodes count 2: "n1":"{text}", "n2":"{text}"',
    }


def test_what_nodes_keep_against_the_policy_is_a_condition_of_its_own() -> None:
    told = world("n1", "n2")
    kept = NetworkPolicyNodeStatus(node_name="n1", generation=1, message="r would cut gossip")
    record_report(told.facts, NetworkPolicyStatus(metadata=ObjectMetadata(name="uid-p"), nodes=(kept,)))
    prevented = Condition(
        *("LockoutPrevented", "True"),
        reason="NodePolicyWouldCutNode",
        message='Nodes count 1: "n1":"r would cut gossip"',
    )
    assert status(reports(told, ("n2", 1))) == (
        "Realized",
        1,
        2,
        2,
        (REALIZABLE, NO_FAILURE, prevented, ENFORCED, PORTS_KNOWN, AT_SERVICES),
    )


def test_an_agent_that_does_not_know_policies_on_nodes_has_not_realized_one() -> None:
    """As after a downgrade: it takes the policy for one without Pods, and reports that all of it stands."""
    nodes = [row("Node", name, labels={"role": "edge"}) for name in ("n1", "n2")]
    edge = {"matchLabels": {"role": "edge"}}
    told = Told().put(policy(nodeSelector=edge), *nodes)
    assert status(told) == ("Realizing", 1, 0, 2, GOOD)
    for name in ("n1", "n2"):
        aware = NetworkPolicyNodeStatus(node_name=name, generation=1, message=ON_NODE)
        record_report(told.facts, NetworkPolicyStatus(metadata=ObjectMetadata(name="uid-p"), nodes=(aware,)))
    assert status(told.step()) == ("Realized", 1, 2, 2, GOOD)
    phase, _, current, desired, conditions = status(reports(told, ("n2", 1)))
    assert (phase, current, desired) == ("Failed", 1, 2)
    assert conditions[1] == Condition(
        "RealizationFailure",
        "True",
        reason="NetworkPolicyRealizationFailedOnNode",
        message=f'Failed Nodes count 1: "n2":"{UNAWARE}"',
    )
    told.put(row("Node", "n2", labels={}))
    assert status(told.step())[:4] == ("Realized", 1, 1, 1)


@pytest.mark.parametrize(
    ("annotations", "told"),
    [
        ({}, {}),
        ({"antrea.io/confirm-within": "1m30s"}, {"antrea.io/confirm-within": "90s"}),
        ({"antrea.io/confirm-within": "1m30s", "antrea.io/confirmed": "1"}, {}),
        (
            {"antrea.io/confirm-within": "60s", "antrea.io/confirmed": "7"},
            {"antrea.io/confirm-within": "60s"},
        ),
        ({"antrea.io/confirm-within": "soon"}, {}),
    ],
)
def test_nodes_are_told_how_long_they_wait_for_a_confirmation(
    annotations: dict[str, str], told: dict[str, str]
) -> None:
    spec = {"priority": 1, "appliedTo": [{"podSelector": WEB}], "ingress": [{"action": "Drop"}]}
    found = row("ClusterNetworkPolicy", "p", spec=spec, annotations=annotations)
    (published,) = Told().put(found).of(PublishedPolicy)
    assert published.policy.metadata.annotations == told
