"""What an explanation says of packets, rule by rule."""

from __future__ import annotations

from typing import Any

import pytest
from explain_world import PODS, ask, kube, native, pod, rule, world

from antrea.errors import Invalid
from antrea.explain.answer import Answer, packet_of
from antrea.explain.objects import objects
from antrea.explain.world import World

CLOSED = kube("closed", podSelector={"matchLabels": {"app": "web"}}, policyTypes=["Ingress"])


def lost(found: Answer) -> list[tuple[str, str]]:
    return [(one.rule.policy, one.why) for one in found.ingress.lost]


def test_without_policies_a_packet_passes() -> None:
    found = ask(world())
    assert (found.verdict, found.direction, found.sentence) == (
        "Allow",
        "Ingress",
        "No policy isolates Pod a/web for ingress, and no rule matches.",
    )


def test_a_pod_that_a_kubernetes_policy_selects_is_isolated() -> None:
    found = ask(world(kube_policies=[CLOSED]))
    assert (found.verdict, found.ingress.reason, [one.policy for one in found.ingress.isolated_by]) == (
        "Drop",
        "isolation",
        ["closed"],
    )
    assert found.egress.verdict == "Allow"


def test_tier_then_priority_then_number_then_age_then_uid_decide() -> None:
    allow = rule("Allow")
    policies = [
        native("later-uid", allow, created="2026-01-01T00:00:00Z"),
        native("first-uid", rule("Reject"), rule("Drop"), created="2026-01-01T00:00:00Z"),
        native("younger", allow, created="2026-01-02T00:00:00Z"),
        native("lower", allow, priority=6),
        native("late", allow, tier="baseline"),
        native("passes-by", allow, tier="emergency", ingress=[rule("Allow", ports=[{"port": 443}])]),
    ]
    found = ask(world(cluster_policies=policies, kube_policies=[{**CLOSED, "spec": {"ingress": [{}]}}]))
    assert (found.verdict, found.sentence) == (
        "Reject",
        (
            "Ingress rule 0 (reject) of AntreaClusterNetworkPolicy first-uid in tier application (250), priority 5"
            " rejects the packet."
        ),
    )
    assert lost(found) == [
        ("later-uid", "at equal priority and age, the UID of its policy is greater"),
        (
            "younger",
            "at equal priority, its policy is younger: 2026-01-02T00:00:00Z comes after 2026-01-01T00:00:00Z",
        ),
        ("first-uid", "it comes after rule 0 (reject) of the same policy"),
        ("lower", "its policy's priority 6 comes after 5"),
        ("closed", "Kubernetes NetworkPolicies come after tier application (250)"),
        ("late", "the baseline tier comes after tier application (250)"),
    ]


def test_pass_leaves_the_packet_to_kubernetes_and_these_to_the_baseline() -> None:
    policies = [
        native("passes", rule("Pass"), tier="platform"),
        native("after", rule("Allow")),
        native("base", rule("Drop"), tier="baseline"),
    ]
    found = ask(world(cluster_policies=policies))
    assert (found.verdict, found.ingress.rule and found.ingress.rule.policy) == ("Drop", "base")
    assert [name for name, _ in lost(found)] == ["passes", "after"]
    closed = ask(world(cluster_policies=policies, kube_policies=[CLOSED]))
    assert (closed.ingress.reason, [name for name, _ in lost(closed)]) == (
        "isolation",
        ["passes", "after", "base"],
    )


def test_what_a_pod_may_not_send_is_not_received() -> None:
    silent = kube("silent", podSelector={"matchLabels": {"app": "client"}}, policyTypes=["Egress"])
    found = ask(world(kube_policies=[silent], cluster_policies=[native("drop", rule("Drop"))]))
    assert (found.verdict, found.direction, found.ingress.verdict) == ("Drop", "Egress", "Drop")


@pytest.mark.parametrize(
    ("peer", "matches"),
    [
        ({"podSelector": {"matchLabels": {"app": "client"}}}, True),
        ({"podSelector": {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["client"]}]}}, False),
        ({"podSelector": {"matchExpressions": [{"key": "tier", "operator": "DoesNotExist"}]}}, True),
        ({"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "b"}}}, False),
        ({"ipBlock": {"cidr": "10.0.0.0/24", "except": ["10.0.0.0/28"]}}, False),
        ({"ipBlock": {"cidr": "10.0.0.0/24", "except": ["10.0.0.12/31"]}}, True),
        ({"group": "clients"}, True),
        ({"group": "parents"}, True),
        ({"group": "nobody"}, False),
        ({"serviceAccount": {"namespace": "a", "name": "default"}}, False),
        ({"namespaces": {"match": "Self"}}, True),
        ({"namespaces": {"sameLabels": ["kubernetes.io/metadata.name"]}}, True),
        ({"namespaces": {"sameLabels": ["missing"]}}, False),
        ({"nodeSelector": {}}, False),
        ({"externalEntitySelector": {}, "namespaceSelector": {}}, False),
        ({"ipBlock": {"cidr": "010.0.0.0/24"}}, False),
        ({"ipBlock": {"cidr": "10.0.0.0/24", "except": ["010.0.0.12/31"]}}, False),
        ({"podSelector": {"matchExpressions": [{"key": "a=b", "operator": "DoesNotExist"}]}}, False),
        ({"podSelector": {"matchExpressions": [{"key": "a/b", "operator": "NotIn", "values": ["c,d"]}]}}, False),
        ({"podSelector": {"matchExpressions": [{"key": "x.y/b", "operator": "NotIn", "values": ["", "c"]}]}}, True),
    ],
)  # fmt: skip
def test_a_peer_is_who_its_selectors_mean(peer: dict[str, Any], matches: bool) -> None:
    client = {"podSelector": {"matchLabels": {"app": "client"}}}
    groups = [
        {"metadata": {"name": "clients"}, "spec": client},
        {"metadata": {"name": "parents"}, "spec": {"childGroups": ["clients", "gone"]}},
        {"metadata": {"name": "nobody"}, "spec": {"childGroups": ["parents"]}},
    ]
    policy = native("drop", rule("Drop", **{"from": [peer]}))
    found = ask(world(cluster_policies=[policy], cluster_groups=groups))
    assert (found.verdict == "Drop") is matches


@pytest.mark.parametrize(
    ("port", "said", "matches"),
    [
        ({"port": "http"}, "8080/tcp", True),
        ({"port": "http"}, "80/tcp", False),
        ({"port": "http", "protocol": "UDP"}, "8080/udp", False),
        ({"port": 80, "endPort": 90}, "90/tcp", True),
        ({"port": 80, "endPort": 90}, "91/tcp", False),
        ({"protocol": "SCTP"}, "132/sctp", True),
        ({"port": "http", "sourcePort": 1024}, "8080/tcp", False),
        ({"sourcePort": 30000, "sourceEndPort": 50000}, "8080/tcp", True),
    ],
)
def test_a_port_is_what_it_says(port: dict[str, Any], said: str, matches: bool) -> None:
    found = ask(world(cluster_policies=[native("drop", rule("Drop", ports=[port]))]), port=said)
    assert (found.verdict == "Drop") is matches


def test_a_native_sidecar_names_ports_of_its_pod_and_another_init_container_does_not() -> None:
    sidecar = {"ports": [{"name": "metrics", "containerPort": 9100}], "restartPolicy": "Always"}
    ended = {"ports": [{"name": "metrics", "containerPort": 9200}]}
    web = pod("a", "web", "10.0.0.12", initContainers=[ended, sidecar])
    found = world(
        pods=[PODS[0], web], cluster_policies=[native("drop", rule("Drop", ports=[{"port": "metrics"}]))]
    )
    assert [ask(found, port=port).verdict for port in ("9100/tcp", "9200/tcp", "8080/tcp")] == [
        "Drop",
        "Allow",
        "Allow",
    ]


def test_a_port_name_that_the_receiver_does_not_have_is_said_of_each_rule_that_would_match() -> None:
    why = "the receiver has no port named 'metrics' with protocol TCP: the rule matches nothing by it"
    ports = [{"port": "metrics"}, {"port": "http"}]
    drop, other = native("drop", rule("Drop", ports=ports)), native("other", rule("Drop", ports=ports))
    other["spec"]["ingress"][0]["from"] = [{"podSelector": {"matchLabels": {"app": "nobody"}}}]
    allow = kube("allow", podSelector={}, ingress=[{"ports": [{"port": "metrics"}]}])
    found = ask(world(cluster_policies=[drop, other], kube_policies=[allow]), port="80/tcp")
    assert [(one.rule.policy, one.why) for one in found.ingress.silent] == [("drop", why), ("allow", why)]
    assert (found.verdict, found.ingress.reason) == ("Drop", "isolation")
    out = kube("out", podSelector={}, policyTypes=["Egress"], egress=[{"ports": [{"port": "metrics"}]}])
    assert [one.why for one in ask(world(kube_policies=[out])).egress.silent] == [why]


def test_icmp_goes_by_type_and_code() -> None:
    policy = native("drop", rule("Drop", protocols=[{"icmp": {"icmpType": 8}}, {"igmp": {}}]))
    assert [
        ask(world(cluster_policies=[policy]), port=port).verdict for port in ("icmp", "icmp/0", "80")
    ] == [
        "Drop",
        "Allow",
        "Allow",
    ]


def test_what_is_not_built_says_so_and_application_protocols_are_dropped_while_their_gate_is_off() -> None:
    first = native("web", rule("Allow", l7Protocols=[{"http": {}}]))
    far = native(
        "far",
        egress=[
            rule("Drop", to=[{"fqdn": "a.example"}]),
            rule("Drop", toServices=[{"name": "s", "namespace": "a", "scope": "ClusterSet"}]),
        ],
        appliedTo=[{"podSelector": {}}],
    )
    found = ask(world(cluster_policies=[first, far]))
    assert found.verdict == "Drop"
    assert [one.why for one in (*found.egress.silent, *found.ingress.silent)] == [
        "fqdn matches by the names of --name alone: which names DNS gave this address to is not asked",
        "toServices of scope ClusterSet is not built yet: the rule matches nothing by it",
        "l7Protocols: the feature gate L7NetworkPolicy is off: all that the rule names is dropped",
    ]


def test_application_protocols_are_allowed_as_far_as_packets_go_and_the_engine_is_named() -> None:
    shop = world(cluster_policies=[native("web", rule("Allow", l7Protocols=[{"http": {}}]))])
    found = ask(World(shop.objects, shop.proxy, ("L7NetworkPolicy",)))
    assert found.verdict == "Allow"
    (why,) = [one.why for one in (*found.egress.silent, *found.ingress.silent)]
    assert why.startswith("l7Protocols let single requests pass: the L7 engine resets")


def test_rules_for_nodes_and_entities_are_said_to_hold_nowhere() -> None:
    nodes = native("nodes", rule("Drop"), appliedTo=[{"nodeSelector": {}}])
    entities = native("entities", rule("Drop"), space="a", appliedTo=[{"externalEntitySelector": {}}])
    entity = {"metadata": {"namespace": "a", "name": "vm"}, "spec": {"endpoints": [{"ip": "203.0.113.2"}]}}
    there = world(cluster_policies=[nodes], policies=[entities], entities=[entity])
    found = [ask(there, "a/client", target) for target in ("192.0.2.2", "203.0.113.2", "203.0.113.3")]
    assert [[(one.rule.policy, one.why) for one in each.ingress.silent] for each in found] == [
        [("nodes", "appliedTo Node n2 has no effect: the feature gate NodeNetworkPolicy is off")],
        [
            (
                "entities",
                "appliedTo ExternalEntity a/vm has no effect: it is not an interface of an ExternalNode",
            )
        ],
        [],
    ]


def test_a_peer_that_cannot_be_meant_as_it_is_written_is_told() -> None:
    odd = rule(
        "Drop", **{"from": [{"ipBlock": {"cidr": "010.0.0.0/8"}}, {"podSelector": {}, "scope": "ClusterSet"}]}
    )
    found = ask(world(cluster_policies=[native("p", odd)]))
    assert [one.why for one in found.ingress.silent] == [
        "scope ClusterSet is not built yet: the rule matches Pods of this cluster alone",
        "an ipBlock of it cannot be read: it is nobody",
    ]


def test_a_policy_for_a_group_with_strangers_holds_nowhere() -> None:
    group = {"metadata": {"namespace": "a", "name": "all"}, "spec": {"namespaceSelector": {}}}
    policy = native("own", rule("Drop"), space="a", appliedTo=[{"group": "all"}])
    found = ask(world(policies=[policy], groups=[group]))
    assert found.verdict == "Allow"
    assert [one.why for one in found.ingress.silent] == [
        "Group all selects Pods of other Namespaces, so that the policy holds nowhere"
    ]


@pytest.mark.parametrize(
    ("source", "destination", "sentence"),
    [
        ("b/host", "a/web", "Processes of Node n1 reach its own Pods whatever policies say."),
        ("a/web", "a/web", "A packet of a Pod to itself does not leave it."),
        ("203.0.113.1", "192.0.2.2", "The destination 192.0.2.2 belongs to Node n2: no policy is for it."),
        ("203.0.113.1", "203.0.113.2", "The destination 203.0.113.2 is not a Pod of this cluster: no policy is for it."),
    ],
)  # fmt: skip
def test_some_packets_are_exempt(source: str, destination: str, sentence: str) -> None:
    found = ask(world(kube_policies=[CLOSED]), source, destination)
    assert (found.verdict, found.ingress.reason, found.ingress.sentence) == ("Allow", "exempt", sentence)


def test_a_node_speaks_to_pods_of_others_by_its_gateway() -> None:
    found = ask(world(), "b/host", "b/db")
    assert (found.packet.source_ip, found.ingress.verdict) == ("10.0.0.1", "Allow")


def test_a_question_that_has_no_answer_says_why() -> None:
    waiting = world(pods=[pod("a", "new", ""), pod("a", "v6", "fd00::1"), pod("a", "web", "10.0.0.12")])
    for source, port, why in (
        ("a/gone", "80", "a/gone: there is no such Pod, or it has ended"),
        ("a/v6", "80", "a/web: a/v6 and a/web have no address family in common"),
        ("nowhere", "80", "nowhere: neither <Namespace>/<Pod> nor an address"),
        ("a/web", "80/http", "--port: '80/http' is not a port such as 80/tcp, 53/udp, 132/sctp, or icmp/8"),
        ("a/web", "70000", "--port: '70000' in '70000' is not a number from 0 to 65535"),
    ):
        with pytest.raises(Invalid) as no:
            packet_of(waiting, source, "a/web", port, v=0, source_port=0)
        assert str(no.value) == why


def test_an_object_that_nobody_understands_is_named() -> None:
    with pytest.raises(Invalid, match=r"^NetworkPolicy a/odd: Expected `object`, got `int`"):
        objects({"kube_policies": [{"metadata": {"namespace": "a", "name": "odd"}, "spec": 1}]})
