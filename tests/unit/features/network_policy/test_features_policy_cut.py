"""When the agent looks for connections to cut, which packets stay cut, and how a policy says that it wants that."""

from __future__ import annotations

import msgspec
import pytest
from policy_world import (
    ANY,
    NODE,
    PIPELINE,
    addresses,
    applied,
    engine_of,
    flows,
    interface,
    member,
    named,
    native,
    peer,
    policy,
    rule,
)

from antrea.apis.annotation import FLUSH, ON_DENY
from antrea.apis.crd.network_policy import ClusterNetworkPolicy
from antrea.apis.networking import NetworkPolicy
from antrea.engine import Engine, Facts
from antrea.facts.ovs import OvsPort
from antrea.features.grouping.publication import PublishedPolicy
from antrea.features.network_policy.agent.connection_flush import (
    Connection,
    FlushedConnection,
    InspectConnections,
    first_packet,
    forbidding_pod,
)
from antrea.features.network_policy.agent.received import SentAddressMember, SentPolicy
from antrea.features.network_policy.controller.antrea_internal_policy import cluster_policy_row
from antrea.features.network_policy.controller.antrea_policy import FEATURE as NATIVE
from antrea.features.network_policy.controller.kube_policy import FEATURE as KUBE
from antrea.features.network_policy.controller.kube_policy import policy_row

POD = interface("web", 7)
FAR = member("far", "10.10.1.5")


def cutting(one: SentPolicy) -> SentPolicy:
    meta = msgspec.structs.replace(one.policy.metadata, annotations={ON_DENY: FLUSH})
    return SentPolicy(msgspec.structs.replace(one.policy, metadata=meta))


def acts(engine: Engine) -> list[str]:
    return [act.interface for act in engine.plan().acts if isinstance(act, InspectConnections)]


def test_who_a_cutting_rule_is_for_is_looked_at_when_rules_or_peers_of_its_direction_change() -> None:
    facts, engine = engine_of(NODE, POD, interface("idle", 8), *applied("g", member("web")))
    for row in addresses("peers", FAR):
        facts.put(row)
    facts.put(native("plain", "g", rule("In", peer("peers"), action="Drop")))
    assert acts(engine) == []
    facts.put(cutting(native("p", "g", rule("In", peer("peers"), action="Drop"), priority=7)))
    assert acts(engine) == ["web-0"]
    facts.put(native("out", "g", rule("Out", ANY, action="Drop")))
    assert acts(engine) == []
    facts.drop(SentPolicy, "plain")
    assert acts(engine) == ["web-0"]
    late = addresses("peers", member("late", "10.10.1.6"))[0]
    facts.put(late)
    assert acts(engine) == ["web-0"]
    facts.drop(SentAddressMember, late.key)
    facts.put(late)
    assert acts(engine) == []
    facts.drop(SentPolicy, "p")
    assert acts(engine) == []


def test_the_same_rule_that_cuts_and_that_does_not_is_two() -> None:
    one = native("p", "g", rule("In", ANY, action="Drop"))
    lines = flows(
        POD, *applied("g", member("web")), one, cutting(native("q", "g", *one.policy.rules, priority=6))
    )
    assert len([line for line in lines if "conj_id" in line]) == 2


def test_what_is_cut_is_not_taken_up_by_its_server_as_long_as_a_rule_that_cuts_is_for_the_pod() -> None:
    facts, engine = engine_of(NODE, POD, *applied("g", member("web")))
    facts.put(cutting(policy("p", "g", rule("In", peer("nobody")))))
    engine.plan()
    facts.put(FlushedConnection("web-0", Connection("TCP", "10.10.1.5", "10.10.0.7", 40000, 80)))
    facts.put(FlushedConnection("web-0", Connection("UDP", "fd00:10:1::5", "fd00:10::7", 40000, 53)))
    new = "table=AntreaPolicyEgressRule,priority=64990,ct_state=+new+trk"
    v4, v6 = "tcp,nw_src=10.10.0.7,nw_dst=10.10.1.5", "udp6,ipv6_src=fd00:10::7,ipv6_dst=fd00:10:1::5"
    assert named(engine.plan().put) == [
        f"{new},{v4},tp_src=80,tp_dst=40000 actions=drop",
        f"{new},{v6},tp_src=53,tp_dst=40000 actions=drop",
    ]
    facts.drop(SentPolicy, "p")
    assert len([line for line in named(engine.plan().drop) if "tp_dst=40000" in line]) == 2


def test_a_first_packet_enters_by_its_pod_or_by_the_gateway() -> None:
    facts, _ = engine_of(NODE, POD)
    outward = Connection("TCP", "10.10.0.7", "192.0.2.9", 40000, 80)
    assert first_packet(facts, "antrea-gw0", outward) is None
    facts.put(OvsPort("antrea-gw0", "gateway", 2, "aa:aa:aa:aa:aa:aa"))
    assert first_packet(facts, "antrea-gw0", outward) == (
        "in_port=7,tcp,dl_src=0a:00:00:00:00:07,dl_dst=aa:aa:aa:aa:aa:aa,nw_ttl=64,nw_src=10.10.0.7,nw_dst=192.0.2.9,"
        "tcp_src=40000,tcp_dst=80"
    )
    assert first_packet(facts, "antrea-gw0", Connection("ICMP", "fd00:10:1::5", "fd00:10::7", 128, 0)) == (
        "in_port=2,icmp6,dl_src=aa:aa:aa:aa:aa:aa,dl_dst=0a:00:00:00:00:07,nw_ttl=64,ipv6_src=fd00:10:1::5,"
        "ipv6_dst=fd00:10::7,icmpv6_type=128,icmpv6_code=0"
    )
    assert first_packet(facts, "antrea-gw0", Connection("TCP", "192.0.2.8", "192.0.2.9", 1, 2)) is None


@pytest.mark.parametrize(
    ("table", "conjunction", "cut"),
    [
        ("IngressDefaultRule", False, True),
        ("IngressMetric", True, False),
        ("EgressDefaultRule", False, False),
        ("L3Forwarding", False, False),
    ],
)
def test_only_a_rule_that_cuts_and_decides_cuts(table: str, *, conjunction: bool, cut: bool) -> None:
    """Isolation by a policy that cuts does, and a Drop rule that does not cut leaves things alone."""
    facts, engine = engine_of(NODE, POD, *applied("g", member("web")))
    facts.put(cutting(policy("p", "g", rule("In", peer("nobody")))))
    facts.put(native("drop", "g", rule("In", ANY, action="Drop")))
    engine.plan()
    number = next(line for line in named(engine.standing().values()) if "conj_id=" in line).split("conj_id=")[
        1
    ][0]
    trace = f" 12. conj_id={number}, priority 9\n" if conjunction else ""
    trace += f"{PIPELINE.ids[table]}. priority 0\n    drop\n"
    one = Connection("TCP", "10.10.1.5", "10.10.0.7", 40000, 80)
    assert (forbidding_pod(facts, one, trace) == POD) == cut
    assert forbidding_pod(facts, one, trace + " -> output port is 7") is None


@pytest.mark.parametrize("value", [FLUSH, "keep", ""])
def test_agents_are_told_by_the_annotation_of_policies_of_either_kind(value: str) -> None:
    meta = {"name": "p", "uid": "u", "annotations": {ON_DENY: value, "other": "1"}}
    given = {"metadata": meta, "spec": {"priority": 1}}
    kube = policy_row(msgspec.convert(given, NetworkPolicy))
    own = cluster_policy_row(msgspec.convert(given, ClusterNetworkPolicy))
    told = []
    for feature, row in ((KUBE, kube), (NATIVE, own)):
        facts = Facts()
        facts.put(row)
        plan = Engine(facts, feature.units).plan()
        told += [one.policy.metadata.annotations for one in plan.put if isinstance(one, PublishedPolicy)]
    assert told == [{ON_DENY: FLUSH} if value == FLUSH else {}] * 2
