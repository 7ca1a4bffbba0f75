"""What agents are told of policies of policy.networking.k8s.io, and what their status says."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from admin_world import admin_policy
from native_world import Told, named, node, pod, space

from antrea.apis.annotation import AUDIT, AUDITED_RULES, ENFORCEMENT
from antrea.apis.status import Status
from antrea.controller.compute.runtime import DISABLED, active
from antrea.engine import Engine, Facts
from antrea.facts.external_ip import FencedLeadership
from antrea.features.admin_policy.controller import FEATURES
from antrea.features.admin_policy.disabled import DisabledTieredPolicy
from antrea.features.framework.event import RecordEvent
from antrea.features.network_policy.controller.realization import NodeReport

WEB = {"matchLabels": {"app": "web"}}
ANY: dict[str, Any] = {}
Object = dict[str, Any]
ALL_ADDRESSES = [
    {"cidr": {"ip": "AAAAAAAAAAAAAP//AAAAAA=="}},
    {"cidr": {"ip": "AAAAAAAAAAAAAAAAAAAAAA=="}},
]


def admin(**spec: Any) -> Any:
    given = {"priority": 10, "subject": {"namespaces": {}}, **spec}
    return admin_policy("AdminNetworkPolicy", "p", spec=given)


def baseline(**spec: Any) -> Any:
    return admin_policy("BaselineAdminNetworkPolicy", "default", spec={"subject": {"namespaces": {}}, **spec})


def tiered(**spec: Any) -> Any:
    given = {"tier": "Admin", "priority": 10, "subject": {"namespaces": {}}, **spec}
    return admin_policy("ClusterNetworkPolicy", "p", spec=given)


def told(policy: Any) -> Object:
    """As JSON would have it; its subject is Pods of two Nodes."""
    world = Told().put(space("ns"), pod("a", "ns"), pod("b", "ns", "n2", "10.0.0.8"), policy)
    found: Object = msgspec.json.decode(msgspec.json.encode(world.policy(policy.name)))
    return found


def rule(policy: Any) -> Object:
    (found,) = told(policy)["rules"]
    return found  # type: ignore[no-any-return]


def conditions(*rows: Any) -> dict[str, tuple[str, str, str]]:
    """Of the one policy: status, reason and message by type."""
    world = Told().put(space("ns"), pod("a", "ns"), pod("b", "ns", "n2", "10.0.0.8"), *rows)
    (status,) = world.of(Status)
    return {one.type: (one.status, one.reason, one.message) for one in status.conditions if one.status}


@pytest.mark.parametrize(
    ("policy", "kind", "tier", "priority"),
    [
        (admin(priority=7), "AdminNetworkPolicy", 251, 7),
        (baseline(), "BaselineAdminNetworkPolicy", 254, 1),
        (tiered(priority=0), "K8sClusterNetworkPolicy", 220, 0),
        (tiered(tier="Baseline"), "K8sClusterNetworkPolicy", 254, 10),
    ],
)
def test_a_policy_has_the_place_that_upstream_gives_it(
    policy: Any, kind: str, tier: int, priority: int
) -> None:
    found = told(policy)
    assert found["sourceRef"] == {"type": kind, "name": policy.name, "uid": policy.uid}
    assert (found["tierPriority"], found["priority"]) == (tier, priority)
    assert found["appliedToGroups"] == [named("namespaceSelector=")]


def test_the_subject_is_pods_by_their_labels_and_those_of_their_namespaces() -> None:
    subject = {"pods": {"podSelector": WEB, "namespaceSelector": {"matchLabels": {"a": "b"}}}}
    assert told(tiered(subject=subject, egress=[]))["appliedToGroups"] == [
        named("namespaceSelector=a=b And podSelector=app=web")
    ]


@pytest.mark.parametrize(
    ("policy", "actions"),
    [
        (admin, {"Allow": "Allow", "Deny": "Drop", "Pass": "Pass"}),
        (baseline, {"Allow": "Allow", "Deny": "Drop"}),
        (tiered, {"Accept": "Allow", "Deny": "Drop", "Pass": "Pass", "Later": "Drop"}),
    ],
)
def test_actions_are_those_of_the_agents_and_unknown_ones_drop(policy: Any, actions: dict[str, str]) -> None:
    rules = [{"action": action, "from": [{"namespaces": ANY}]} for action in actions]
    assert [one["action"] for one in told(policy(ingress=rules))["rules"]] == [*actions.values()]


def test_rules_keep_their_numbers_and_names_and_peers_of_all_sorts_are_united() -> None:
    peers = [
        {"namespaces": {"matchLabels": {"a": "b"}}},
        {"pods": {"podSelector": WEB}},
        {"nodes": {"matchLabels": {"role": "edge"}}},
        {"networks": ["10.0.0.0/8", "fd00::/8"]},
        {"domainNames": ["*.example.com", "example.com."]},
    ]
    first = {"action": "Pass", "to": [{"namespaces": ANY}]}
    second = {"name": "out", "action": "Accept", "to": peers}
    found = told(tiered(egress=[first, second], ingress=[{"action": "Deny", "from": [{"namespaces": ANY}]}]))
    assert [(one["direction"], one.get("priority", 0)) for one in found["rules"]] == [
        ("In", 0),
        ("Out", 0),
        ("Out", 1),
    ]
    assert found["rules"][2]["name"] == "out"
    to = found["rules"][2]["to"]
    assert to["addressGroups"] == [
        named("namespaceSelector=a=b"),
        named("namespaceSelector= And podSelector=app=web"),
        named("nodeSelector=role=edge"),
    ]
    assert [one["cidr"]["prefixLength"] for one in to["ipBlocks"]] == [8, 8]
    assert to["fqdns"] == ["*.example.com", "example.com."]


def test_ports_of_v1alpha1_and_a_named_one_has_the_protocol_that_pods_give_it() -> None:
    ports = [
        {"portNumber": {"port": 53, "protocol": "UDP"}},
        {"portNumber": {"port": 80}},
        {"portRange": {"start": 1000, "end": 2000, "protocol": "SCTP"}},
        {"namedPort": "dns"},
    ]
    assert rule(admin(ingress=[{"action": "Deny", "from": [{"namespaces": ANY}], "ports": ports}]))[
        "services"
    ] == [
        {"protocol": "UDP", "port": 53},
        {"protocol": "TCP", "port": 80},
        {"protocol": "SCTP", "port": 1000, "endPort": 2000},
        {"port": "dns"},
    ]


def test_protocols_of_v1alpha2() -> None:
    protocols = [
        {"tcp": {"destinationPort": {"number": 80}}},
        {"udp": {"destinationPort": {"range": {"start": 1, "end": 9}}}},
        {"destinationNamedPort": "dns"},
    ]
    found = rule(tiered(ingress=[{"action": "Deny", "from": [{"namespaces": ANY}], "protocols": protocols}]))
    assert found["services"] == [
        {"protocol": "TCP", "port": 80},
        {"protocol": "UDP", "port": 1, "endPort": 9},
        {"port": "dns"},
    ]


ODD = {"later": {"fancy": True}}
PEER = {"namespaces": {"matchLabels": {"a": "b"}}}


@pytest.mark.parametrize("policy", [admin, tiered])
@pytest.mark.parametrize("odd", [ODD, {"networks": ["10.0.0.0/8", "nonsense"]}])
def test_a_peer_that_is_not_known_matches_nothing_for_who_accepts_and_everybody_for_who_does_not(
    policy: Any, odd: Object
) -> None:
    accepts = "Allow" if policy is admin else "Accept"
    accepted = rule(policy(egress=[{"action": accepts, "to": [PEER, odd]}]))
    assert accepted["to"]["addressGroups"] == [named("namespaceSelector=a=b")]
    assert len(accepted["to"].get("ipBlocks", [])) == ("networks" in odd)
    for action in ("Deny", "Pass"):
        denied = rule(policy(egress=[{"action": action, "to": [PEER, odd]}]))
        assert denied["action"] == "Drop"
        assert denied["to"] == {"ipBlocks": ALL_ADDRESSES}


@pytest.mark.parametrize(
    ("policy", "ports"),
    [(admin, {"ports": [{"namedPort": "web"}]}), (tiered, {"protocols": [{"destinationNamedPort": "web"}]})],
)
def test_who_denies_everybody_denies_the_ports_by_name_of_all_pods(policy: Any, ports: Object) -> None:
    denied = rule(policy(egress=[{"action": "Deny", "to": [ODD], **ports}]))
    everybody = [named("namespaceSelector=")]
    assert denied["to"] == {"ipBlocks": ALL_ADDRESSES, "addressGroups": everybody}


@pytest.mark.parametrize(
    ("policy", "field", "odd"),
    [
        (admin, "ports", ODD),
        (admin, "ports", {"portRange": {"start": 9, "end": 1}}),
        (tiered, "protocols", ODD),
        (tiered, "protocols", {"tcp": ODD}),
        (tiered, "protocols", {"tcp": {"destinationPort": ODD}}),
    ],
)
def test_a_port_that_is_not_known_is_none_for_who_accepts_and_all_for_who_does_not(
    policy: Any, field: str, odd: Object
) -> None:
    accepts = "Allow" if policy is admin else "Accept"
    alone = rule(policy(ingress=[{"action": accepts, "from": [PEER], field: [odd]}]))
    assert alone["from"] == {}
    known = {"namedPort": "web"} if policy is admin else {"destinationNamedPort": "web"}
    beside = rule(policy(ingress=[{"action": accepts, "from": [PEER], field: [known, odd]}]))
    assert beside["services"] == [{"port": "web"}]
    assert beside["from"] == {"addressGroups": [named("namespaceSelector=a=b")]}
    for action in ("Deny", "Pass"):
        denied = rule(policy(ingress=[{"action": action, "from": [PEER], field: [known, odd]}]))
        assert (denied["action"], denied.get("services")) == ("Drop", None)
        assert denied["from"] == {"addressGroups": [named("namespaceSelector=a=b")]}


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        (tiered(ingress=[{"action": "Deny", "from": [ODD]}]), "spec.ingress[0].from[0] has no field"),
        (admin(egress=[{"action": "Allow", "to": [PEER, ODD]}]), "spec.egress[0].to[1] has no field"),
        (tiered(egress=[{"action": "Pass", "to": [PEER], "protocols": [ODD]}]), "egress[0].protocols[0] has no"),
        (admin(egress=[{"action": "Deny", "to": [PEER], "ports": [ODD]}]), "spec.egress[0].ports[0] has no"),
        (tiered(egress=[{"action": "Later", "to": [PEER]}]), "spec.egress[0].action 'Later' is not known"),
        (tiered(tier="Later"), "spec.tier 'Later' is not known"),
        (tiered(subject=ODD), "spec.subject has no field"),
        (admin(subject={"namespaces": {"matchLabels": {"a=b": "c"}}}), "spec.subject.namespaces has a key"),
        (admin(egress=[{"action": "Allow", "to": [{"nodes": {"matchLabels": {"a b": ""}}}]}]), "to[0].nodes has a key"),
    ],
)  # fmt: skip
def test_the_status_tells_what_is_not_enforced_as_it_is_written(policy: Any, words: str) -> None:
    status, reason, message = conditions(policy)["Realizable"]
    assert (status, reason) == ("False", "NetworkPolicyPartNotEnforced")
    assert words in message


def test_the_status_counts_nodes_and_says_why_one_fails() -> None:
    policy = tiered()
    assert conditions(policy) == {
        "Realizable": ("True", "Supported", "all of the policy can be enforced"),
        "Realized": ("False", "NodesPending", "0 of 2 Nodes enforce the policy"),
    }
    both = NodeReport(policy.uid, "n1", 1), NodeReport(policy.uid, "n2", 1)
    assert conditions(policy, *both)["Realized"][0] == "True"
    failed = NodeReport(policy.uid, "n2", 1, failure=True, message="no room")
    found = conditions(policy, both[0], failed)
    assert found["Realized"] == ("False", "NodesPending", "1 of 2 Nodes enforce the policy")
    assert found["RealizationFailure"][0] == "True"
    assert "no room" in found["RealizationFailure"][2]


def test_the_status_goes_to_the_kind_and_version_of_the_policy() -> None:
    root = "/apis/policy.networking.k8s.io"
    for policy, path in (
        (admin(), f"{root}/v1alpha1/adminnetworkpolicies/p"),
        (baseline(), f"{root}/v1alpha1/baselineadminnetworkpolicies/default"),
        (tiered(), f"{root}/v1alpha2/clusternetworkpolicies/p"),
    ):
        (status,) = Told().put(policy).of(Status)
        assert status.path == path
        assert {one.observed_generation for one in status.conditions} == {1}


def test_peers_that_are_nodes_have_the_addresses_of_these() -> None:
    egress = [{"action": "Deny", "to": [{"nodes": {}}]}]
    world = Told().put(space("ns"), pod("a", "ns"), node("n1", "192.0.2.1"), tiered(egress=egress))
    assert world.members("addressgroups", named("nodeSelector=")) == {"node n1"}


def test_a_gate_that_is_off_withdraws_what_the_status_said() -> None:
    off = active(frozenset({"AntreaPolicy", "AdminNetworkPolicy"}))
    assert not {one.name for one in off} & {"ClusterNetworkPolicy", "AdminNetworkPolicy disabled"}
    assert [one.gate for one in FEATURES] == ["AdminNetworkPolicy", "ClusterNetworkPolicy"]
    facts = Facts()
    facts.put(DisabledTieredPolicy("/apis/policy.networking.k8s.io/v1alpha2/clusternetworkpolicies/p", 3))
    units = [unit for one in DISABLED if one in off for unit in one.units]
    (status,) = Engine(facts, units).plan().put
    assert [(one.type, one.status, one.reason) for one in status.conditions] == [
        ("Realizable", "False", "FeatureGateDisabled"),
        ("Realized", "False", "FeatureGateDisabled"),
    ]


AUDITED_WHOLE = "all of its rules are audited: nothing is dropped by that"


@pytest.mark.parametrize(
    ("annotations", "sent", "condition"),
    [
        ({}, {}, None),
        ({ENFORCEMENT: "enforce"}, {}, None),
        ({ENFORCEMENT: AUDIT}, {ENFORCEMENT: AUDIT}, AUDITED_WHOLE),
        (
            {AUDITED_RULES: "no"},
            {AUDITED_RULES: "no"},
            "no is audited: nothing is dropped by that",
        ),
        ({ENFORCEMENT: "dry"}, {}, None),
    ],
)
@pytest.mark.parametrize("kind", ["AdminNetworkPolicy", "BaselineAdminNetworkPolicy", "ClusterNetworkPolicy"])
def test_a_policy_or_a_rule_can_be_audited(
    kind: str, annotations: dict[str, str], sent: dict[str, str], condition: str | None
) -> None:
    deny = {"name": "no", "action": "Deny", "from": [{"namespaces": {}}]}
    spec = {"priority": 1, "tier": "Admin", "subject": {"namespaces": {}}, "ingress": [deny]}
    policy = admin_policy(kind, "default", spec=spec, annotations=annotations)
    assert told(policy)["metadata"].get("annotations", {}) == sent
    wanted = None if condition is None else ("True", "NetworkPolicyAudited", condition)
    assert conditions(policy).get("Audited") == wanted


def test_an_annotation_that_cannot_be_read_is_told_by_an_event_of_the_leader() -> None:
    policy = admin_policy(
        "ClusterNetworkPolicy", "p", annotations={ENFORCEMENT: "dry"},
        spec={"priority": 1, "tier": "Admin", "subject": {"namespaces": {}}},
    )  # fmt: skip
    world = Told()
    acts = []
    for one in (space("ns"), pod("a", "ns"), policy, FencedLeadership()):
        world.facts.put(one)
        acts += world.engine.plan().acts
    (found,) = [one for one in acts if isinstance(one, RecordEvent)]
    assert (found.reason, found.kind, found.name, found.api_version) == (
        "EnforcementUnknown", "ClusterNetworkPolicy", "p", "policy.networking.k8s.io/v1alpha2",
    )  # fmt: skip
    assert "'dry' is neither 'audit' nor 'enforce': the policy is enforced" in found.message
