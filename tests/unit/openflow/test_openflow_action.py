"""Actions are the words of ovs-ofctl that upstream's flows have."""

import pytest

from antrea.openflow import action, fields, learn, match, tables
from antrea.openflow.cookie import Category
from antrea.openflow.ct import NAT, ct, nat_dst, nat_src
from antrea.openflow.field import Action
from antrea.openflow.table import NEXT, Stage


@pytest.mark.parametrize(
    ("one", "text"),
    [
        (action.goto(tables.OUTPUT), "goto_table:{Output}"),
        (action.goto(NEXT), "goto_table:{next}"),
        (action.goto(Stage.ROUTING), "goto_table:{stage:ROUTING}"),
        (action.resubmit(tables.SERVICE_LB), "resubmit(,{ServiceLB})"),
        (action.resubmit_after(tables.SERVICE_LB), "resubmit(,{after:ServiceLB})"),
        (action.output(match.LOCAL_PORT), "output:LOCAL"),
        (action.output(fields.TARGET_OF_PORT), "output:NXM_NX_REG1[]"),
        (action.controller(1, 3), "controller(id=32776,reason=no_match,userdata=01.03,max_len=65535)"),
        (
            action.controller(fields.PacketIn.DNS, pause=True),
            "controller(id=32776,reason=no_match,userdata=02,max_len=65535,pause)",
        ),
        (action.move(action.ETH_SRC, action.ETH_DST), "move:NXM_OF_ETH_SRC[]->NXM_OF_ETH_DST[]"),
        (
            action.move(fields.PKT_SOURCE, fields.CONN_SOURCE_CT_MARK),
            "move:NXM_NX_REG0[0..3]->NXM_NX_CT_MARK[0..3]",
        ),
        (action.set_tun_dst("192.0.2.1"), "set_field:192.0.2.1->tun_dst"),
        (action.set_tun_dst("2001:db8::1"), "set_field:2001:db8::1->tun_ipv6_dst"),
        (action.set_vlan(100), "set_field:4196->vlan_vid"),
        (
            ct(fields.Zone.CT_ZONE, table=tables.CONNTRACK_STATE, nat=NAT),
            "ct(table={ConntrackState},zone=65520,nat)",
        ),
        (
            ct(fields.CT_ZONE, table=NEXT, nat=nat_src("10.0.0.1")),
            "ct(table={next},zone=NXM_NX_REG8[0..15],nat(src=10.0.0.1))",
        ),
        (
            ct(65520, commit=True, nat=nat_dst("10.0.0.2", 80), then=[fields.SERVICE_CT_MARK.load]),
            "ct(commit,zone=65520,nat(dst=10.0.0.2:80),exec(set_field:0x10/0x10->ct_mark))",
        ),
        (ct(65510, commit=True, nat=nat_dst("fd00::2", 80)), "ct(commit,zone=65510,nat(dst=[fd00::2]:80))"),
        (ct(65510, commit=True, nat=nat_dst("fd00::2")), "ct(commit,zone=65510,nat(dst=fd00::2))"),
    ],
)
def test_an_action_is_the_text_that_upstream_has(one: Action, text: str) -> None:
    assert one == text


def test_only_a_committed_connection_can_be_marked() -> None:
    with pytest.raises(ValueError, match="only a committed connection"):
        ct(65520, then=[fields.SERVICE_CT_MARK.load])


def test_session_affinity_learns_under_round_0_so_that_no_sweep_takes_what_was_learned() -> None:
    # parity: pkg/agent/openflow/client_test.go, but for the round of the learned cookie
    learned = learn.learn(
        tables.SESSION_AFFINITY,
        200,
        cookie_of=(Category.SERVICE, 100),
        timeouts=[learn.hard_timeout(100)],
        specs=[
            *learn.same_protocol("tcp"),
            learn.same_dst_port("tcp"),
            learn.same_dst(),
            learn.same_src(),
            learn.learned_copy(fields.ENDPOINT_PORT),
            learn.learned_copy(fields.REMOTE_ENDPOINT),
            learn.learned_copy(fields.ENDPOINT_IP),
            learn.learned_load(fields.EP_SELECTED_REG_MARK),
            learn.learned_load(fields.REWRITE_MAC_REG_MARK),
        ],
    )
    assert learned == (
        "learn(table={SessionAffinity},hard_timeout=100,priority=200,delete_learned,cookie=0x30000000064,"
        "eth_type=0x800,nw_proto=6,OXM_OF_TCP_DST[],NXM_OF_IP_DST[],NXM_OF_IP_SRC[],"
        "load:NXM_NX_REG4[0..15]->NXM_NX_REG4[0..15],load:NXM_NX_REG4[26]->NXM_NX_REG4[26],"
        "load:NXM_NX_REG3[]->NXM_NX_REG3[],load:0x2->NXM_NX_REG4[16..18],load:0x1->NXM_NX_REG0[9])"
    )
