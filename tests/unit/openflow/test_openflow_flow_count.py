"""What a flow has counted is read from the words of ovs-ofctl."""

from __future__ import annotations

from antrea.openflow.fields import AP_CONJ_ID, AP_DENY, EGRESS_RULE_CT_LABEL, INGRESS_RULE_CT_LABEL
from antrea.openflow.flow_count import FlowCount, flow_count

HEAD = "cookie=0x1020000000000, duration=24.660s, table=27, n_packets=3, n_bytes=222, idle_age=5, "
ALLOWED = HEAD + "priority=200,ct_state=+new,ct_label=0xa/0xffffffff,ip actions=goto_table:28"
SENT = HEAD + "priority=200,ct_state=-new,ct_label=0xa00000000/0xffffffff00000000,ipv6 actions=goto_table:17"
DENIED = HEAD + "reset_counts priority=200,reg0=0x400/0x400,reg3=0xb actions=drop"


def test_counters_and_the_identity_of_a_flow_are_read() -> None:
    assert flow_count(ALLOWED) == FlowCount(
        "table=27,priority=200,ct_state=+new,ct_label=0xa/0xffffffff,ip", 3, 222
    )
    assert flow_count(DENIED) == FlowCount(
        "table=27,priority=200,reg0=0x400/0x400,reg3=0xb", 3, 222, drops=True
    )
    everything = flow_count(HEAD + "priority=0 actions=goto_table:28")
    assert everything == FlowCount("table=27,priority=0", 3, 222)


def test_what_is_no_flow_is_none() -> None:
    assert [flow_count(line) for line in ("", "OFPST_FLOW reply (OF1.5) (xid=0x2):")] == [None, None]


def test_fields_are_those_that_the_flow_looks_at() -> None:
    fields = (INGRESS_RULE_CT_LABEL, EGRESS_RULE_CT_LABEL, AP_DENY, AP_CONJ_ID)
    found = [
        [one.value(field) for field in fields]
        for line in (ALLOWED, SENT, DENIED)
        if (one := flow_count(line))
    ]
    assert found == [[10, None, None, None], [None, 10, None, None], [None, None, 1, 11]]


def test_states_are_those_that_the_flow_is_on() -> None:
    found = [one.state("+new") for line in (ALLOWED, SENT, DENIED) if (one := flow_count(line))]
    assert found == [True, False, False]


def test_port_family_and_priority_are_those_that_the_flow_asks_for() -> None:
    pod = (
        HEAD
        + "priority=201,ct_state=+trk,ipv6,in_port=12,ipv6_dst=fd00::/64 actions=set_field:0x1->reg0,drop"
    )
    found = [
        (one.port, one.ipv6, one.priority, one.drops)
        for line in (pod, ALLOWED, DENIED)
        if (one := flow_count(line))
    ]
    assert found == [(12, True, 201, False), (None, False, 200, False), (None, False, 200, True)]
