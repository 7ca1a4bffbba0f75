"""Audited policies in agent and controller: what agents are told, their flows, log, counters, status and admission."""

from __future__ import annotations

import struct
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from admission_world import World as Admission
from admission_world import named as admitted
from counted_world import Switch, World, counted
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
    native,
    peer,
    policy,
    port,
    rule,
)

from antrea.apis import controlplane as cp
from antrea.apis import core, networking
from antrea.apis.annotation import AUDIT, AUDITED_RULES, ENFORCE, ENFORCEMENT
from antrea.apis.crd.network_policy import ClusterNetworkPolicySpec
from antrea.apis.crd.part import Metadata
from antrea.apis.status import Status
from antrea.controller.compute.runtime import FEATURES
from antrea.engine import Engine, Facts
from antrea.facts.external_ip import FencedLeadership
from antrea.facts.node import ThisNode
from antrea.features.framework.event import RecordEvent
from antrea.features.framework.idle_request import ProgramGates, annotation_findings
from antrea.features.grouping.publication import PublishedPolicy
from antrea.features.grouping.row import namespace_row
from antrea.features.network_policy.agent.audit import audit_records
from antrea.features.network_policy.agent.audit_pass import AuditedIsolation
from antrea.features.network_policy.agent.conjunction import ConjunctionId
from antrea.features.network_policy.agent.received import SentPolicy
from antrea.features.network_policy.agent.rule import StatedRule
from antrea.features.network_policy.agent.statistics import COUNTED
from antrea.features.network_policy.audit_mode import AuditMode, audit_mode
from antrea.features.network_policy.controller.antrea_internal_policy import ClusterPolicy, NamespacedPolicy
from antrea.features.network_policy.controller.kube_policy import policy_row
from antrea.features.registry.annotations import BY_NAME
from antrea.openflow.packet import TCP, packet
from antrea.openflow.packet_in import PacketIn

if TYPE_CHECKING:
    from pathlib import Path

    from antrea.facts.fact import Fact

V4 = ThisNode("n1", ("10.10.0.0/24",), ("192.0.2.1",), ("192.0.2.1",))
WEB = (interface("web", 7, "10.10.0.7"), *applied("g", member("web")))
WHOLE = {ENFORCEMENT: AUDIT}


def audited(found: SentPolicy, **notes: str) -> SentPolicy:
    meta = msgspec.structs.replace(found.policy.metadata, annotations=notes or WHOLE)
    return SentPolicy(msgspec.structs.replace(found.policy, metadata=meta))


def own(*rows: Fact) -> list[str]:
    """The flows of these policies for one Pod, without cookies."""
    return [line.replace("cookie=0x1020000000000,", "") for line in flows(*WEB, *rows, node=V4)]


def test_an_audited_rule_that_drops_asks_copies_alone_and_only_its_log_hears_of_it() -> None:
    found = own(
        audited(native("p", "g", rule("In", peer("b"), action="Reject"))),
        *addresses("b", member("b", "10.10.1.5")),
    )
    table, metric = f"{PIPELINE.id('AntreaPolicyIngressRule'):#x}/0xff", "table=IngressMetric"
    rules = "table=AntreaPolicyIngressRule,priority=32544"
    told = (
        "set_field:0x2->reg3,set_field:0x400/0x400->reg0,set_field:0x1000/0x1800->reg0,"
        f"set_field:0x2000000/0xfe000000->reg0,set_field:{table}->reg2,group:4"
    )
    assert found == [
        f"{rules},conj_id=2 actions={told}",
        f"{rules},ip,nw_src=10.10.1.5 actions=conjunction(2,1/2)",
        f"{rules},reg0=0x8000/0x8000,reg1=0x7 actions=conjunction(2,2/2)",
        f"{metric},priority=205,ct_state=+new,reg0=0x0/0x20400,reg1=0x7 actions=group:5",
        f"{metric},priority=206,reg0=0x8000/0x8000 actions=drop",
        f"{metric},priority=208,reg0=0x400/0x400,reg3=0x2 actions=drop",
    ]


def test_without_audited_rules_there_is_no_flow_for_them_and_with_one_other_pods_have_none() -> None:
    enforced = native("p", "g", *(rule("In", ANY, port(n), action="Drop", priority=n) for n in range(1, 21)))
    idle = flows(*WEB, enforced, node=V4)
    assert not any("0x8000/0x8000" in line for line in idle)
    # 20 rules that are enforced for the Pod, with one flow each; a copy, its end, and what the rule itself has
    one = audited(native("q", "g", rule("In", ANY, port(99), action="Drop"), priority=9.0))
    beside = flows(*WEB, enforced, one, node=V4)
    alone = flows(*WEB, native("q", "g", rule("In", ANY, port(99), action="Drop"), priority=9.0), node=V4)
    assert len(beside) - len(idle) == len(alone) + 20 + 2
    other = (interface("other", 8, "10.10.0.8"), *applied("h", member("other")))
    of_other = audited(native("q", "h", rule("In", ANY, port(99), action="Drop"), priority=9.0))
    after = flows(*WEB, *other, enforced, of_other, node=V4)
    assert len(after) - len(idle) == len(alone) + 2


def test_a_policy_of_kubernetes_that_is_audited_isolates_copies_alone() -> None:
    (closed,) = [
        line
        for line in own(audited(policy("p", "g", rule("In", cp.NetworkPolicyPeer()))))
        if "Default" in line
    ]
    assert "table=IngressDefaultRule,priority=200,reg0=0x8000/0x8000,reg1=0x7 actions=set_field" in closed
    both = own(
        policy("q", "g", rule("In", ANY)), audited(policy("p", "g", rule("In", cp.NetworkPolicyPeer())))
    )
    assert [line for line in both if "Default" in line] == [
        "table=IngressDefaultRule,priority=200,reg1=0x7 actions=drop"
    ]


def test_rules_by_name_are_audited_alone() -> None:
    rules = (
        rule("In", ANY, port(1), action="Drop", name="a"),
        rule("In", ANY, port(2), action="Drop", name="b", priority=1),
    )
    found = own(audited(native("p", "g", *rules), **{AUDITED_RULES: "b,c"}))
    targets = [line for line in found if "conjunction(" in line and "reg1=0x7" in line]
    assert [int("0x8000" in line) for line in targets].count(1) == 1
    assert min(targets).startswith("table=AntreaPolicyIngressRule,priority=32528,reg0=0x8000/0x8000")


def test_an_audited_policy_cuts_no_connection() -> None:
    both = {ENFORCEMENT: AUDIT, "antrea.io/on-deny": "flush"}
    facts, engine = engine_of(NODE, *WEB, audited(native("p", "g", rule("In", ANY, action="Drop")), **both))
    assert not engine.plan().acts
    facts.put(audited(native("p", "g", rule("In", ANY, action="Drop")), **{"antrea.io/on-deny": "flush"}))
    assert engine.plan().acts


# log and counters


def number_of(facts: Facts, name: str) -> int:
    """Of the one rule of a policy."""
    (stated,) = [one for one in facts.all(StatedRule) if one.policy == name]
    return next(one.number for one in facts.all(ConjunctionId) if one.rule == stated.rule)


def said(facts: Facts, table: str, number: int) -> list[str]:
    """Of a copy that was dropped."""
    ends = [ip_address(ip).packed for ip in ("10.10.1.5", "10.10.0.7")]
    text = struct.pack("!BBHHHBBH", 0x45, 0, 60, 0, 0, 64, TCP, 0) + b"".join(ends)
    text += struct.pack("!HH", 53646, 80) + b"\x08" * 36
    registers = {0: 1 << 11 | 0x400 | 0x8000, 2: PIPELINE.id(table), 3: number}
    found = PacketIn(b"\x01\x01", 20, 7, registers, b"\0" * 12 + b"\x08\0" + text)
    return [line.text for line in audit_records(facts, found, packet(found.frame))]


def test_the_log_says_that_a_copy_was_dropped_by_a_rule_or_by_isolation() -> None:
    rows = (
        audited(native("p", "g", rule("In", ANY, action="Drop", name="no"))),
        audited(policy("k", "g", rule("In", cp.NetworkPolicyPeer()))),
    )
    facts, engine = engine_of(NODE, *WEB, *rows)
    engine.plan()
    packet_words = "a/web 10.10.1.5 53646 10.10.0.7 80 TCP 60 <nil>"
    by_rule, by_isolation = number_of(facts, "p"), facts.all(AuditedIsolation)[0].number
    assert said(facts, "AntreaPolicyIngressRule", by_rule) == [
        f"AntreaPolicyIngressRule AntreaClusterNetworkPolicy:p no Ingress AuditDrop 32544 {packet_words}"
    ]
    for number in (0, by_isolation):  # by an enforced policy after Pass, by the audited one
        assert said(facts, "IngressDefaultRule", number) == [
            f"IngressDefaultRule K8sNetworkPolicy <nil> Ingress AuditDrop <nil> {packet_words}"
        ]


def test_what_audited_policies_would_deny_is_counted_apart(tmp_path: Path) -> None:
    drop = audited(native("n", "g", rule("In", ANY, action="Drop", name="no")))
    passes = audited(native("m", "g", rule("Out", ANY, action="Pass", name="on")))
    isolates = audited(policy("k", "g", rule("In", cp.NetworkPolicyPeer())))
    found = World(
        tmp_path / "kept",
        Switch(
            *engine_of(NODE, *WEB, drop, passes, isolates, policy("other", "h")),
            PIPELINE,
            COUNTED,
            "reg3|reg5",
        ),
    )
    found.turn()
    facts = found.switch.facts
    found.switch.count(rf"reg3={number_of(facts, 'n'):#x}\b", 3, 50)
    found.switch.count(rf"reg5={number_of(facts, 'm'):#x}\b", 2, 50)
    found.switch.count(rf"reg3={facts.all(AuditedIsolation)[0].number:#x}\b", 5, 50)
    assert found.turn() == {
        ("n", "no (audit)"): counted(3, 150, 3),
        ("m", "on (audit)"): counted(2, 100, 2),
        ("k", ""): counted(5, 250, 5),
    }


# what agents are told, and users


def published(*rows: Fact) -> dict[str, Any]:
    facts = Facts()
    for row in rows:
        facts.put(row)
    engine = Engine(facts, [unit for feature in FEATURES for unit in feature.units])
    plan = engine.plan()
    assert not engine.errors.standing
    found = {
        one.policy.metadata.name: one.policy.metadata.annotations
        for one in plan.put
        if isinstance(one, PublishedPolicy)
    }
    return found | {one.path: one for one in plan.put if isinstance(one, Status)}


def space(value: str) -> Fact:
    return namespace_row(core.Namespace(metadata=core.ObjectMeta(name="a", annotations={ENFORCEMENT: value})))


def kube(**notes: str) -> Fact:
    meta = Metadata(name="k", namespace="a", uid="k", annotations=notes)
    return policy_row(networking.NetworkPolicy(metadata=meta, spec=networking.NetworkPolicySpec()))


@pytest.mark.parametrize(
    ("of_space", "of_policy", "is_audited"),
    [
        ("", "", False),
        ("", AUDIT, True),
        (AUDIT, "", True),
        (AUDIT, ENFORCE, False),
        (AUDIT, "audti", False),
        ("audti", "", False),
        ("", "audti", False),
    ],
)
def test_the_policys_word_goes_before_that_of_its_namespace(
    of_space: str, of_policy: str, is_audited: bool
) -> None:
    notes = {ENFORCEMENT: of_policy} if of_policy else {}
    assert published(space(of_space), kube(**notes))["k"] == (WHOLE if is_audited else {})
    own_policy = NamespacedPolicy("a", "n", "n", 1, spec(), audit=audit_mode(notes))
    assert published(space(of_space), own_policy)["n"] == (WHOLE if is_audited else {})
    of_cluster = ClusterPolicy("", "c", "c", 1, spec(), audit=audit_mode(notes))
    assert published(space(of_space), of_cluster)["c"] == (WHOLE if of_policy == AUDIT else {})


def spec() -> Any:
    rules = [{"action": "Drop", "name": name} for name in ("a", "b")]
    return msgspec.convert(
        {"priority": 5, "tier": "application", "appliedTo": [{"podSelector": {}}], "ingress": rules},
        ClusterNetworkPolicySpec,
    )


@pytest.mark.parametrize(
    ("mode", "told"),
    [
        (AuditMode(), ""),
        (AuditMode(whole=True), "all of its rules are audited: nothing is dropped by that"),
        (AuditMode(rules=("b",)), "b is audited: nothing is dropped by that"),
        (AuditMode(rules=("b", "a")), "a, b are audited: nothing is dropped by that"),
        (AuditMode(rules=("c",)), ""),
    ],
)
def test_the_status_says_what_is_audited(mode: AuditMode, told: str) -> None:
    found = published(ClusterPolicy("", "c", "c", 1, spec(), audit=mode))
    status = found["/apis/crd.antrea.io/v1beta1/clusternetworkpolicies/c"]
    (condition,) = [one for one in status.conditions if one.type == "Audited"]
    assert (condition.status, condition.message) == ("True" if told else "", told)


def test_an_event_says_that_a_word_of_a_kubernetes_policy_is_not_known() -> None:
    facts = Facts()
    for row in (kube(**{ENFORCEMENT: "audti"}), FencedLeadership()):
        facts.put(row)
    engine = Engine(facts, [unit for feature in FEATURES for unit in feature.units])
    (event,) = [one for one in engine.plan().acts if isinstance(one, RecordEvent)]
    assert event.message == (
        "metadata.annotations[antrea.io/enforcement]: 'audti' is neither 'audit' nor 'enforce': the policy is enforced"
    )
    kind, gates = "NetworkPolicy.networking.k8s.io", ProgramGates()
    assert list(annotation_findings(kind, {ENFORCEMENT: "audti"}, BY_NAME, gates)) == [], "a second Event"


@pytest.mark.parametrize(
    ("notes", "said_of_it"),
    [
        (WHOLE, ""),
        (
            {ENFORCEMENT: "audti"},
            "metadata.annotations[antrea.io/enforcement]: 'audti' is neither 'audit' nor 'enforce'",
        ),
        ({AUDITED_RULES: "a, z"}, "metadata.annotations[antrea.io/audited-rules]: no rule has the name 'z'"),
    ],
)
def test_admission_refuses_what_means_nothing(notes: dict[str, str], said_of_it: str) -> None:
    rules = [{"action": "Drop", "name": "a"}]
    found = admitted({"priority": 5, "appliedTo": [{"podSelector": {}}], "ingress": rules})
    found["metadata"]["annotations"] = notes
    answer = Admission().decide("/validate/acnp", found)
    assert (answer == said_of_it) if said_of_it else "enforcement" not in answer
