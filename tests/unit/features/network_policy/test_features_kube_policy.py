"""What agents are told of Kubernetes NetworkPolicies: rules, groups, and to which Nodes they go."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from native_world import Told, named, space

from antrea.apis import controlplane as cp
from antrea.apis import core
from antrea.apis.networking import NetworkPolicy
from antrea.controller.compute.runtime import FEATURES
from antrea.engine import Engine, Facts
from antrea.facts.cluster import Pod
from antrea.facts.external_ip import FencedLeadership
from antrea.features.framework.event import RecordEvent
from antrea.features.grouping.publication import Membership, PublishedPolicy
from antrea.features.grouping.row import namespace_row, pod_row
from antrea.features.network_policy.controller.kube_policy import KubePolicy, policy_row, rules

NOBODY = cp.NetworkPolicyPeer()
V4 = bytes(10) + b"\xff\xff"
ANY = (cp.IPBlock(cidr=cp.IPNet(ip=V4 + bytes(4))), cp.IPBlock(cidr=cp.IPNet(ip=bytes(16))))
WEB, DB = {"matchLabels": {"app": "web"}}, {"matchLabels": {"app": "db"}}


def policy(name: str = "p", **spec: Any) -> KubePolicy:
    meta = {"name": name, "namespace": "ns", "uid": f"uid-{name}", "generation": 3}
    found = {"metadata": meta, "spec": {"podSelector": WEB, **spec}}
    return policy_row(msgspec.convert(found, NetworkPolicy))


def pod(name: str, app: str, node: str, ip: str = "10.0.0.7") -> Pod:
    found = {
        "metadata": {"name": name, "namespace": "ns", "labels": {"app": app}},
        "spec": {"nodeName": node, "containers": [{"ports": [{"containerPort": 80, "name": "http"}, {}]}]},
        "status": {"podIPs": [{"ip": ip}] if ip else []},
    }
    row = pod_row(msgspec.convert(found, core.Pod))
    assert row is not None
    return row


def test_ports_of_a_native_sidecar_are_ports_of_its_pod_and_those_of_ended_containers_are_not() -> None:
    found = {
        "metadata": {"name": "side", "namespace": "ns"},
        "spec": {
            "initContainers": [
                {"ports": [{"containerPort": 1, "name": "once"}]},
                {"ports": [{"containerPort": 9100, "name": "metrics"}], "restartPolicy": "Always"},
                {"ports": [{"containerPort": 3, "name": "never"}], "restartPolicy": "OnFailure"},
            ],
            "containers": [{"ports": [{"containerPort": 80, "name": "http"}]}],
        },
    }
    row = pod_row(msgspec.convert(found, core.Pod))
    assert row is not None
    assert row.ports == (("http", 80, "TCP"), ("metrics", 9100, "TCP"))


def rule(direction: str, peer: cp.NetworkPolicyPeer, *services: cp.Service) -> cp.NetworkPolicyRule:
    return cp.NetworkPolicyRule(
        direction=direction,
        from_=peer if direction == "In" else NOBODY,
        to=peer if direction == "Out" else NOBODY,
        services=services,
        priority=-1,
        action="Allow",
        enable_logging=False,
    )


def isolated(direction: str, *, logging: bool = False) -> cp.NetworkPolicyRule:
    return cp.NetworkPolicyRule(direction=direction, from_=NOBODY, to=NOBODY, enable_logging=logging)


RULES = {
    "nothing may come in": ({"policyTypes": ["Ingress"]}, [isolated("In")]),
    "nothing at all": ({"policyTypes": ["Ingress", "Egress"]}, [isolated("In"), isolated("Out")]),
    "everything may come in": (
        {"ingress": [{}], "policyTypes": ["Ingress"]},
        [rule("In", cp.NetworkPolicyPeer(ip_blocks=ANY))],
    ),
    "a port of everybody": (
        {
            "policyTypes": ["Egress"],
            "egress": [{"ports": [{"protocol": "UDP", "port": 53}, {"port": 80, "endPort": 90}]}],
        },
        [
            rule(
                "Out",
                cp.NetworkPolicyPeer(ip_blocks=ANY),
                cp.Service(protocol="UDP", port=53),
                cp.Service(protocol="TCP", port=80, end_port=90),
            )
        ],
    ),
    "a named port of everybody needs everybody's numbers": (
        {"policyTypes": ["Egress"], "egress": [{"ports": [{"port": "http"}]}]},
        [
            rule(
                "Out",
                cp.NetworkPolicyPeer(address_groups=(named("namespaceSelector="),), ip_blocks=ANY),
                cp.Service(protocol="TCP", port="http"),
            )
        ],
    ),
    "a named port of its own Pods does not": (
        {"ingress": [{"ports": [{"port": "http"}]}]},
        [rule("In", cp.NetworkPolicyPeer(ip_blocks=ANY), cp.Service(protocol="TCP", port="http"))],
    ),
    "groups and blocks": (
        {
            "ingress": [
                {
                    "from": [
                        {"podSelector": DB},
                        {"namespaceSelector": WEB, "podSelector": DB},
                        {"podSelector": DB},
                        {"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.1.0.0/16"]}},
                        {"ipBlock": {"cidr": "fd00::/64"}},
                    ]
                }
            ]
        },
        [
            rule(
                "In",
                cp.NetworkPolicyPeer(
                    address_groups=(
                        named("namespace=ns And podSelector=app=db"),
                        named("namespaceSelector=app=web And podSelector=app=db"),
                    ),
                    ip_blocks=(
                        cp.IPBlock(
                            cidr=cp.IPNet(ip=V4 + bytes((10, 0, 0, 0)), prefix_length=8),
                            except_=(cp.IPNet(ip=V4 + bytes((10, 1, 0, 0)), prefix_length=16),),
                        ),
                        cp.IPBlock(cidr=cp.IPNet(ip=b"\xfd" + bytes(15), prefix_length=64)),
                    ),
                ),
            )
        ],
    ),
}


@pytest.mark.parametrize(("spec", "wanted"), RULES.values(), ids=RULES.keys())
def test_rules_are_told_like_this(spec: dict[str, Any], wanted: list[cp.NetworkPolicyRule]) -> None:
    assert [*rules(policy(**spec), logging=False)] == wanted


FROM_DB: dict[str, Any] = {"ingress": [{"from": [{"podSelector": DB}]}]}
DBS = named("namespace=ns And podSelector=app=db")


def test_a_policy_and_its_peers_go_to_the_nodes_of_the_pods_it_is_for() -> None:
    told = Told().put(policy(**FROM_DB), pod("w1", "web", "n1"), pod("w2", "web", "n2"), pod("d", "db", "n3"))
    assert told.nodes() == {"uid-p": ("n1", "n2"), DBS: ("n1", "n2")}
    assert told.drop(Pod, "ns/w2").nodes() == {"uid-p": ("n1",), DBS: ("n1",)}
    assert told.drop(Pod, "ns/w1").nodes() == {"uid-p": ()}


def test_a_group_goes_to_the_nodes_of_all_policies_that_name_it() -> None:
    told = Told().put(pod("w", "web", "n1"), pod("d", "db", "n2"), policy("a", **FROM_DB))
    told.put(policy("b", podSelector=DB, **FROM_DB))
    assert told.nodes()[DBS] == ("n1", "n2")
    assert told.drop(KubePolicy, "ns/a").nodes() == {"uid-b": ("n2",), DBS: ("n2",)}


def test_members_have_what_their_kind_of_group_needs() -> None:
    told = Told().put(pod("w", "web", "n1"), pod("d", "db", "n2"), pod("new", "db", "n2", ip=""))
    told.put(policy(**FROM_DB))
    ports = (cp.NamedPort(name="http", port=80, protocol="TCP"),)
    web, database = (cp.PodReference(name=name, namespace="ns") for name in ("w", "d"))
    assert {(entry.resource, entry.member) for entry in told.of(Membership)} == {
        ("appliedtogroups", cp.GroupMember(pod=web, ports=ports)),
        ("addressgroups", cp.GroupMember(pod=database, ips=(V4 + bytes((10, 0, 0, 7)),), ports=ports)),
    }


def test_policies_are_logged_where_their_namespace_says_so() -> None:
    told = Told().put(policy(policyTypes=["Ingress"]))

    def logged() -> bool:
        (entry,) = told.of(PublishedPolicy)
        return bool(entry.policy.rules[0].enable_logging)

    assert not logged()
    for value, wanted in (("true", True), ("1", True), ("yes", False), ("TRUE", True), ("false", False)):
        meta = {"name": "ns", "annotations": {"networkpolicy.antrea.io/enable-logging": value}}
        told.put(namespace_row(msgspec.convert({"metadata": meta}, core.Namespace)))
        assert logged() == wanted, value


def test_a_policy_that_goes_leaves_nothing() -> None:
    told = Told().put(pod("w", "web", "n1"), policy(**FROM_DB))
    assert told.of(PublishedPolicy)
    told.drop(KubePolicy, "ns/p").drop(Pod, "ns/w")
    assert told.standing == {}
    assert told.facts.empty


ODD = (
    "010.0.0.0/8",
    "10.0.0.0",
    "10.0.0.0/33",
    "10.0.0.0/-1",
    "10.0.0.0/ 8",
    "10.0.0.0/255.0.0.0",
    "fe80::%eth0/64",
    "x",
)


@pytest.mark.parametrize("cidr", ODD)
@pytest.mark.parametrize("hole", [False, True])
def test_a_block_that_cannot_be_read_is_nobody_and_all_else_of_the_policy_holds(
    cidr: str, hole: bool
) -> None:
    odd = {"cidr": "10.0.0.0/8", "except": [cidr]} if hole else {"cidr": cidr}
    sound = {"ipBlock": {"cidr": "192.0.2.7/24"}}
    told = Told().put(
        space("ns"),
        pod("w", "web", "n1"),
        policy(
            policyTypes=["Ingress"],
            ingress=[{"from": [{"ipBlock": odd}, sound]}, {"from": [{"ipBlock": odd}]}],
        ),
    )
    block = cp.IPBlock(cidr=cp.IPNet(ip=V4 + bytes((192, 0, 2, 7)), prefix_length=24))
    assert told.policy("p").rules == (
        rule("In", cp.NetworkPolicyPeer(ip_blocks=(block,))),
        rule("In", NOBODY),
    )
    assert told.nodes() == {"uid-p": ("n1",)}


def test_the_leader_tells_of_blocks_that_cannot_be_read() -> None:
    odd = {"ipBlock": {"cidr": "010.0.0.0/8"}}
    found = policy(ingress=[{"from": [{"podSelector": WEB}, odd]}], egress=[{"to": [odd]}])
    facts = Facts()
    engine = Engine(facts, [unit for feature in FEATURES for unit in feature.units])
    facts.put(found)
    assert engine.plan().acts == []
    facts.put(FencedLeadership())
    message = (
        "spec.ingress[0].from[1].ipBlock.cidr: '010.0.0.0/8' is not a CIDR such as 10.0.0.0/8 or fd00::/64 (and 1 more):"
        " it allows nobody; the other peers and rules are enforced"
    )
    assert engine.plan().acts == [
        RecordEvent(
            "uid-p", message, "networking.k8s.io/v1", "NetworkPolicy", "p", "uid-p", "PeerIgnored", message,
            warning=True, namespace="ns",
        )
    ]  # fmt: skip
