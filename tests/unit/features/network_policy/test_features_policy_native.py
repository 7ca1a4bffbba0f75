"""Flows of Antrea's own policies: tables by tier, priorities in order, and what each action does, as text."""

from __future__ import annotations

import re

from policy_world import (
    ANY,
    NODE,
    PIPELINE,
    WITHOUT,
    addresses,
    applied,
    block,
    engine_of,
    flows,
    interface,
    member,
    named,
    native,
    peer,
    pipeline,
    policy,
    port,
    rule,
)

from antrea.apis import controlplane as cp
from antrea.apis.policy_report import PolicyReport
from antrea.facts.node import ThisNode
from antrea.features.framework.agent_feature import RealizedPipeline
from antrea.openflow.flow import Flow
from antrea.openflow.group import Group

V4 = ThisNode("n1", ("10.10.0.0/24",), ("192.0.2.1",), ("192.0.2.1",))
WEB = interface("web", 7, "10.10.0.7")
PEERS = addresses("peers", member("far", "10.10.1.5"))
FAR = peer("peers")


def made(*rows: object, priority: str = "N") -> list[str]:
    """Flows over these rows, `priority` for each number that is given by order."""
    found = flows(WEB, *applied("g", member("web")), *PEERS, *rows, node=V4)  # type: ignore[arg-type]
    return [re.sub(r"(?<=priority=)(?!1?[29]0[0,])\d+", priority, line) for line in found]


def lines(text: str) -> list[str]:
    return sorted(text.strip().splitlines())


DROP = """
table=AntreaPolicyIngressRule,priority=N,conj_id=2 actions=set_field:0x2->reg3,set_field:0x400/0x400->reg0,goto_table:IngressMetric
table=AntreaPolicyIngressRule,priority=N,ip,nw_src=10.10.1.5 actions=conjunction(2,1/2)
table=AntreaPolicyIngressRule,priority=N,reg1=0x7 actions=conjunction(2,2/2)
table=IngressMetric,priority=200,reg0=0x400/0x400,reg3=0x2 actions=drop
"""
ALLOW = """
table=AntreaPolicyEgressRule,priority=N,conj_id=2,ip actions=set_field:0x2->reg5,ct(commit,table=EgressMetric,zone=65520,exec(set_field:0x200000000/0xffffffff00000000->ct_label))
table=AntreaPolicyEgressRule,priority=N,icmp,icmp_type=8,icmp_code=0 actions=conjunction(2,3/3)
table=AntreaPolicyEgressRule,priority=N,ip,nw_dst=10.10.1.5 actions=conjunction(2,2/3)
table=AntreaPolicyEgressRule,priority=N,ip,nw_src=10.10.0.7 actions=conjunction(2,1/3)
table=AntreaPolicyEgressRule,priority=N,udp,tp_src=0x1000/0xfffe,tp_dst=53 actions=conjunction(2,3/3)
table=EgressMetric,priority=200,ct_state=+new,ct_label=0x200000000/0xffffffff00000000,ip actions=goto_table:L3Forwarding
table=EgressMetric,priority=200,ct_state=-new,ct_label=0x200000000/0xffffffff00000000,ip actions=goto_table:L3Forwarding
"""
PASS = """
table=AntreaPolicyIngressRule,priority=N,conj_id=2 actions=set_field:0x2->reg6,goto_table:IngressRule
table=AntreaPolicyIngressRule,priority=N,ip,nw_src=10.10.1.5 actions=conjunction(2,1/2)
table=AntreaPolicyIngressRule,priority=N,reg1=0x7 actions=conjunction(2,2/2)
"""


def test_what_is_denied_is_counted_and_dropped_in_every_family() -> None:
    assert made(native("p", "g", rule("In", FAR, action="Drop"))) == lines(DROP)


def test_what_is_rejected_is_counted_and_dropped_while_a_copy_goes_to_the_agent() -> None:
    number = PIPELINE.id("AntreaPolicyIngressRule")
    noted = f"set_field:0x4000000/0xfe000000->reg0,set_field:{number:#x}/0xff->reg2,group:4"
    wanted = DROP.replace("goto_table:IngressMetric", noted)
    assert made(native("p", "g", rule("In", FAR, action="Reject"))) == lines(wanted)
    _, engine = engine_of(NODE)
    groups = [entry for entry in engine.plan().put if isinstance(entry, Group)]
    assert [group.named(PIPELINE) for group in groups] == [
        f"group_id={number},type=all,bucket=bucket_id:0,actions=resubmit(,{table}),"
        "bucket=bucket_id:1,actions=set_field:0x400000/0x600000->reg0,resubmit(,Output)"
        for number, table in enumerate(("EgressRule", "EgressMetric", "IngressRule", "IngressMetric"), 1)
    ]


def test_what_is_allowed_is_committed_with_icmp_and_source_ports() -> None:
    icmp = cp.Service(protocol="ICMP", icmp_type=8, icmp_code=0)
    udp = cp.Service(protocol="UDP", port=53, src_port=4096, src_end_port=4097)
    assert made(native("p", "g", rule("Out", FAR, icmp, udp, action="Allow"))) == lines(ALLOW)


def test_what_is_passed_goes_on_to_the_rules_of_kubernetes() -> None:
    assert made(native("p", "g", rule("In", FAR, action="Pass"))) == lines(PASS)


def test_the_baseline_tier_is_asked_after_kubernetes_and_below_its_isolation() -> None:
    found = made(native("p", "g", rule("In", FAR, action="Drop"), tier=253), priority="N")
    assert found == lines(DROP.replace("AntreaPolicyIngressRule", "IngressDefaultRule"))
    (priority,) = priorities(
        native("p", "g", rule("In", FAR, action="Drop"), tier=253), table="IngressDefaultRule"
    )
    assert 10 <= priority <= 180


def test_an_application_protocol_that_nobody_looks_into_is_closed() -> None:
    looked = (cp.L7Protocol(http=cp.HTTPProtocol(path="/x")),)
    assert made(native("p", "g", rule("In", FAR, action="Allow", l7_protocols=looked))) == lines(DROP)


def test_while_the_gate_is_off_there_is_nothing_of_them() -> None:
    facts, engine = engine_of(V4, WEB, *applied("g", member("web")), *PEERS)
    facts.put(RealizedPipeline(pipeline(WITHOUT)))
    engine.plan()
    before = engine.standing()
    facts.put(native("p", "g", rule("In", ANY, action="Drop")))
    engine.plan()
    assert engine.standing() == before


def priorities(*rows: object, table: str = "AntreaPolicyIngressRule") -> list[int]:
    """Those of the verdicts by the number of the TCP port that their rules name, greatest first."""
    found = flows(WEB, *applied("g", member("web")), *PEERS, *rows, node=V4)  # type: ignore[arg-type]
    head = rf"table={table},priority=(\d+),(?:tcp,tp_dst=(\d+)|conj_id)"
    pairs = [(int(hit[1]), int(hit[2] or 0)) for line in found if (hit := re.match(head, line))]
    tagged = [port for _, port in sorted(pairs, reverse=True) if port]
    return tagged or [priority for priority, _ in pairs]


def one(number: int, index: int = 0) -> cp.NetworkPolicyRule:
    return rule("In", FAR, port(number), action="Drop", priority=index)


def test_rules_stand_by_tier_then_policy_then_rule_then_uid() -> None:
    rows = [
        native("b", "g", one(6), tier=250, priority=5.0),
        native("a", "g", one(5), tier=250, priority=5.0),
        native("c", "g", one(4), tier=250, priority=4.9),
        native("d", "g", one(1, 0), one(2, 1), tier=50, priority=9000.0),
        native("e", "g", one(3), tier=250, priority=1.0),
        native("f", "g", one(7, 1), tier=250, priority=5.0),
    ]
    for order in (rows, rows[::-1], rows[3:] + rows[:3]):
        assert priorities(*order) == [1, 2, 3, 4, 5, 6, 7]


def test_a_rule_between_two_others_moves_neither() -> None:
    facts, engine = engine_of(V4, WEB, *applied("g", member("web")), *PEERS)
    for number in (1, 3):
        facts.put(native(f"p{number}", "g", one(number), priority=float(number)))
    engine.plan()
    facts.put(native("p2", "g", one(2), priority=2.0))
    plan = engine.plan()
    assert plan.drop == []
    assert {flow.table for flow in plan.put if isinstance(flow, Flow)} == {
        "AntreaPolicyIngressRule",
        "IngressMetric",
    }
    assert (
        len(
            {
                flow.priority
                for flow in plan.put
                if isinstance(flow, Flow) and flow.table == "AntreaPolicyIngressRule"
            }
        )
        == 1
    )


def test_only_policies_of_kubernetes_isolate() -> None:
    both = [
        native("n", "g", rule("In", ANY, action="Allow")),
        policy("k", "g", rule("Out", peer(blocks=[block("192.0.2.0/24")]))),
    ]
    drops = [line for line in made(*both) if "DefaultRule" in line]
    assert drops == ["table=EgressDefaultRule,priority=200,ip,nw_src=10.10.0.7 actions=drop"]


def test_the_node_reports_antreas_own_policies_alone_by_their_generation() -> None:
    facts, engine = engine_of(V4, native("n", "g"), policy("k", "g"))
    engine.plan()
    reports = [entry for entry in engine.standing().values() if isinstance(entry, PolicyReport)]
    assert reports == [PolicyReport("n", "n1", 0)]
    facts.put(RealizedPipeline(pipeline(WITHOUT)))
    engine.plan()
    assert not any(isinstance(entry, PolicyReport) for entry in engine.standing().values())


def test_nothing_of_a_withdrawn_policy_is_left() -> None:
    facts, engine = engine_of(NODE, WEB, *applied("g", member("web")), *PEERS)
    engine.plan()
    before, ids = named(engine.standing().values()), facts.ids.standing()
    row = native("p", "g", one(1), rule("Out", ANY, action="Pass"))
    facts.put(row)
    engine.plan()
    facts.drop(type(row), row.key)
    engine.plan()
    assert named(engine.standing().values()) == before
    assert facts.ids.standing() == ids
