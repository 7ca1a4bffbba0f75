"""What tiers and groups may be: one row per rule, with the whole message."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from admission_world import OK, World, named

from antrea.features.network_policy.admission.group import ClusterGroupChildren, NamespacedGroupChildren
from antrea.features.network_policy.tier import NamespacedTierUse, TierRow, TierUse

if TYPE_CHECKING:
    from antrea.facts.fact import Fact

FULL = tuple(TierRow(f"t{n}", n) for n in range(20))
CNP = "ClusterNetworkPolicy"
OURS = "system:serviceaccount:kube-system:antrea-controller"
CREATED: list[tuple[str, int, tuple[Fact, ...], str]] = [
    ("free", 30, (TierRow("gold", 20),), OK),
    ("taken", 20, (TierRow("gold", 20),), "spec.priority: tier t priority 20 overlaps with existing Tier"),
    *((f"kept {n}", n, (), f"spec.priority: tier t priority {n} is reserved") for n in (251, 252, 254, 255)),
    ("of default tiers", 250, (), OK),
    ("the twentieth", 30, FULL[:19], OK),
    ("one too many", 30, FULL, "spec: maximum number of Tiers supported: 20"),
    ("many of one priority", 30, tuple(TierRow(f"t{n}", 7) for n in range(30)), OK),
    ("upstream's, gate off", 220, (), OK),
]


@pytest.mark.parametrize(("priority", "rows", "said"), [c[1:] for c in CREATED], ids=[c[0] for c in CREATED])
def test_a_new_tier_gets_this_answer(priority: int, rows: tuple[Fact, ...], said: str) -> None:
    assert World(*rows).decide("/validate/tier", named({"priority": priority}, "t")) == said


def test_of_a_thousand_tiers_asked_for_there_are_twenty() -> None:
    made: list[TierRow] = []
    said = Counter[str]()
    for number in range(1000):
        priority = number % 250
        answer = World(*made).decide("/validate/tier", named({"priority": priority}, f"t{number}"))
        said[answer] += 1
        if answer == OK:
            made.append(TierRow(f"t{number}", priority))
    assert said == {OK: 20, "spec: maximum number of Tiers supported: 20": 980}


def test_upstreams_admin_tier_is_reserved_with_its_gate() -> None:
    assert World(gates=(CNP,)).decide("/validate/tier", named({"priority": 220}, "t")) == (
        "spec.priority: tier t priority 220 is reserved for upstream ClusterNetworkPolicy when the"
        " ClusterNetworkPolicy feature gate is enabled; choose a different priority"
    )


def test_only_we_may_change_a_priority() -> None:
    before, after = named({"priority": 1}), named({"priority": 2})
    said = [World().decide("/validate/tier", after, before, user=user) for user in ("eve", OURS)]
    assert said == ["spec.priority: update to Tier priority is not allowed", OK]


def test_a_description_may_change() -> None:
    before, after = named({"priority": 1}), named({"priority": 1, "description": "new"})
    assert World().decide("/validate/tier", after, before) == OK


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("platform", "metadata.name: cannot delete reserved tier platform"),
        ("gold", "metadata.name: tier gold is referenced by 2 Antrea ClusterNetworkPolicies"),
        ("silver", "metadata.name: tier silver is referenced by 1 Antrea NetworkPolicies"),
        ("bronze", OK),
    ],
)
def test_a_tier_that_is_needed_stays(name: str, said: str) -> None:
    uses = (TierUse("", "a", "gold"), TierUse("", "b", "gold"), NamespacedTierUse("n", "c", "silver"))
    assert World(*uses).decide("/validate/tier", old=named({"priority": 3}, name)) == said


def test_upstreams_policy_needs_its_gate_and_a_free_priority() -> None:
    new: dict[str, Any] = {"metadata": {"name": "x"}}
    worlds = (World(), World(TierRow("mine", 220), gates=(CNP,)), World(gates=(CNP,)))
    assert [world.decide("/validate/cnp", new) for world in worlds] == [
        "kind: ClusterNetworkPolicy is not supported: the ClusterNetworkPolicy feature gate is not enabled",
        (
            "kind: ClusterNetworkPolicy creation is blocked: a user-created Tier at priority 220"
            " (cnpAdminTierPriority) already exists; the Tier and its associated policies must be"
            " deleted/migrated first before a ClusterNetworkPolicy can be created"
        ),
        OK,
    ]


WAYS = "externalEntitySelector, serviceReference,"
CLUSTER_WAYS = (
    f"spec: At most one of podSelector, nodeSelector, {WAYS} ipBlock, ipBlocks or childGroups can be set for a"
    " ClusterGroup"
)
GROUP_WAYS = f"spec: At most one of podSelector, {WAYS} ipBlocks or childGroups can be set for a Group"
BAD = {"matchLabels": {"": "v"}}
SPECS: dict[str, tuple[dict[str, Any], str, str]] = {
    "nothing": ({}, OK, OK),
    "Pods of Namespaces": ({"podSelector": {}, "namespaceSelector": {}}, OK, OK),
    "entities of Namespaces": ({"externalEntitySelector": {}, "namespaceSelector": {}}, OK, OK),
    "Pods and entities": ({"podSelector": {}, "externalEntitySelector": {}}, CLUSTER_WAYS, GROUP_WAYS),
    "Nodes and Namespaces": ({"nodeSelector": {}, "namespaceSelector": {}}, CLUSTER_WAYS, GROUP_WAYS),
    "three": ({"podSelector": {}, "namespaceSelector": {}, "childGroups": ["a"]}, CLUSTER_WAYS, GROUP_WAYS),
    "groups and addresses": (
        {"ipBlocks": [{"cidr": "10.0.0.0/8"}, {"cidr": "224.0.0.0/8"}]},
        "spec.ipBlocks: can not set multicast groupAddress together with unicast ip address",
        "spec.ipBlocks: can not set multicast groupAddress together with unicast ip address",
    ),
    "a bad exception": (
        {"ipBlocks": [{"cidr": "10.0.0.0/8", "except": ["11.0.0.0/9"]}]},
        "spec.ipBlocks[0].except[0]: except CIDR 11.0.0.0/9 is not a strict subset of CIDR 10.0.0.0/8",
        "spec.ipBlocks[0].except[0]: except CIDR 11.0.0.0/9 is not a strict subset of CIDR 10.0.0.0/8",
    ),
    "itself": (
        {"childGroups": ["a", "x"]},
        "spec.childGroups[1]: cannot set ClusterGroup x as its own childGroup",
        "spec.childGroups[1]: cannot set Group n/x as its own childGroup",
    ),
    "a child with children": (
        {"childGroups": ["missing", "parent"]},
        "spec.childGroups[1]: cannot set ClusterGroup parent as childGroup, who has 1 childGroups itself",
        "spec.childGroups[1]: cannot set Group n/parent as childGroup, who has 1 childGroups itself",
    ),
}


@pytest.mark.parametrize(("spec", "cluster", "namespaced"), SPECS.values(), ids=SPECS.keys())
def test_a_group_gets_this_answer(spec: dict[str, Any], cluster: str, namespaced: str) -> None:
    world = World(ClusterGroupChildren("", "parent", ("a",)), NamespacedGroupChildren("n", "parent", ("a",)))
    said = (
        world.decide("/validate/clustergroup", named(spec)),
        world.decide("/validate/group", named(spec, namespace="n")),
    )
    assert said == (cluster, namespaced)


def test_a_child_gets_no_children() -> None:
    world = World(
        ClusterGroupChildren("", "p", ("x",)),
        NamespacedGroupChildren("n", "p", ("x",)),
        NamespacedGroupChildren("n", "q", ("x",)),
    )
    spec = {"childGroups": ["a"]}
    said = (
        world.decide("/validate/clustergroup", named(spec)),
        world.decide("/validate/group", named(spec, namespace="n")),
        world.decide("/validate/group", named(spec, namespace="other")),
    )
    assert said == (
        "spec.childGroups: cannot set childGroups for ClusterGroup x, who has 1 parents",
        "spec.childGroups: cannot set childGroups for Group n/x, who has 2 parents",
        OK,
    )


@pytest.mark.parametrize(
    ("key", "why"),
    [
        ("", "name part must be non-empty; name part must consist of"),
        ("a/b/c", "a qualified name must consist of"),
        ("/a", "prefix part must be non-empty"),
        ("A/a", "prefix part a lowercase RFC 1123 subdomain must consist of"),
        ("a" * 64, "name part must be no more than 63 characters"),
        (f"{'a.' * 127}a/b", "prefix part must be no more than 253 characters"),
    ],
)
def test_a_label_key_that_is_none_is_told_why(key: str, why: str) -> None:
    said = World().decide("/validate/group", named({"podSelector": {"matchLabels": {key: "v"}}}))
    assert said.startswith(f"spec.podSelector.matchLabels: Invalid label key: {key}: {why}")
