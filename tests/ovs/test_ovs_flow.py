"""Every flow, group and meter that our values can state means to OVS what it means to us."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from antrea.openflow import action, fields, learn, match, tables
from antrea.openflow.cookie import Category
from antrea.openflow.ct import NAT, ct, nat_dst, nat_src
from antrea.openflow.field import Match
from antrea.openflow.flow import Flow, flows_of
from antrea.openflow.group import MAX_BUCKETS, Bucket, Group, GroupType, delete_line
from antrea.openflow.group_tree import HASHED
from antrea.openflow.meter import PacketInMeter, packet_in_meter
from antrea.openflow.pipeline import Pipeline
from antrea.openflow.table import NEXT, Stage
from antrea.openflow.tables import CLASSIFIER, ENDPOINT_DNAT, OUTPUT, SERVICE_LB, SESSION_AFFINITY

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ovs_bridge import OvsBridge

    from antrea.openflow.field import Action

flow = flows_of(Category.SERVICE)
ALL = Pipeline.realize(tables.TABLES)
POD, GATEWAY = "0a:00:00:00:00:07", "0a:00:00:00:00:01"

# All that a match can hold at once, for the order of its terms.
EVERYTHING: tuple[Match, ...] = (
    match.tun_id(7),
    match.dl_vlan(7),
    match.dl_src(POD),
    match.dl_dst(GATEWAY),
    match.in_port(7),
    match.conj_id(10),
    match.ct_state("+trk+rpl"),
    *(mark.match for mark in (fields.HAIRPIN_CT_MARK, fields.FROM_POD_REG_MARK, fields.FROM_LOCAL_REG_MARK)),
    fields.EGRESS_RULE_CT_LABEL(7).match,
    fields.SNAT_PKT_MARK(7).match,
)
OF_ONE_KIND: tuple[tuple[Match, ...], ...] = (
    (match.udp, match.tp_dst(0), match.ct_udp_dst(53), match.dst("10.0.0.2")),
    (match.udp6, match.ct_udp_dst(53)),
    (
        match.tcp,
        match.tp_dst(80),
        match.tp_src(81),
        match.dscp(7),
        match.dst("10.0.0.2"),
        match.src("10.0.0.1"),
    ),
    (
        match.ip,
        match.nw_proto(50),
        match.tun_dst("192.0.2.9"),
        match.dst("10.0.0.2"),
        match.ct_src("10.0.0.3"),
    ),
    (
        match.tcp6,
        match.tp_dst(80),
        match.tp_src(81),
        match.dscp(7),
        match.dst("fd00::2"),
        match.src("fd00::1"),
    ),
    (
        match.icmp6,
        match.icmp_code(0),
        match.icmp_type(135),
        match.tun_dst("2001:db8::9"),
        match.ct_src("fd00::3"),
    ),
    (
        match.arp,
        match.arp_sha(POD),
        match.arp_op(match.ARP_REPLY),
        match.arp_tpa("10.0.0.2"),
        match.arp_spa("10.0.0.1"),
    ),
)

MATCHES: tuple[tuple[Match, ...], ...] = (
    (match.ANY,),
    *((field(1).match,) for field in fields.FIELDS),
    *((mark.match,) for mark in fields.MARKS.values()),
    (fields.FROM_POD_REG_MARK.match, fields.OUTPUT_TO_OF_PORT_REG_MARK.match),
    (fields.ENDPOINT_IP.within(0x0A0A0200, 0xFFFFFF00), match.ip),
    (match.ct_state("+trk+new"), match.ip),
    (match.ct_state("-new-rpl+trk"), match.ct_state("-inv"), match.ipv6),
    (match.ct_state("+new+trk"), match.ct_src("203.0.113.0/24")),
    (match.ct_state("+new+trk"), match.ct_src("2001:db8::/64")),
    (match.in_port(7),),
    (match.in_port(32769),),
    (match.in_port(match.LOCAL_PORT),),
    (match.in_port(match.CONTROLLER_PORT),),
    (match.dl_src(POD.upper()), match.dl_dst(GATEWAY)),
    (match.dl_vlan(100), match.ip),
    (match.dl_vlan(0), match.ip),
    (match.tagged,),
    (match.arp, match.arp_op(match.ARP_REQUEST), match.arp_tpa("10.10.2.1")),
    (match.arp, match.in_port(7), match.arp_spa("10.10.0.7"), match.arp_sha(POD)),
    (match.ip, match.nw_src("10.10.0.7"), match.nw_dst("10.10.2.0/24")),
    (match.ipv6, match.ipv6_src("fd00:0:0::7"), match.ipv6_dst("fd00:10::/64")),
    (match.src("10.10.0.7/32"),),
    (match.dst("fd00::8/128"),),
    (match.src("0.0.0.0/0"),),
    (match.dst("::/0"),),
    *((protocol, match.tp_dst(8080)) for protocol in (match.tcp, match.udp, match.sctp)),
    *((protocol, match.tp_src(53)) for protocol in (match.tcp6, match.udp6, match.sctp6)),
    (match.tcp, match.tp_dst(0x1F90, 0xFFF8)),
    (match.icmp, match.icmp_type(8), match.icmp_code(0)),
    (match.icmp6, match.icmp_type(135), match.icmp_code(0)),
    (match.igmp, match.nw_dst("224.0.0.1")),
    (match.ip, match.nw_proto(50)),
    (match.ip, match.dscp(7)),
    (match.ip, match.tun_dst("192.0.2.9")),
    (match.ipv6, match.tun_dst("2001:db8::9")),
    (match.tun_id(0xFFFFFF),),
    (match.conj_id(10), match.ip),
    *((*EVERYTHING, *terms) for terms in OF_ONE_KIND),
)

ACTIONS: tuple[tuple[Action, ...], ...] = (
    action.DROP,
    *((field(1).load,) for field in fields.FIELDS if field.register not in ("ct_mark", "ct_label")),
    *(
        (ct(fields.Zone.CT_ZONE, commit=True, then=[field(1).load]),)
        for field in fields.FIELDS
        if field.register in ("ct_mark", "ct_label")
    ),
    *((ct(zone, table=NEXT, nat=NAT),) for zone in fields.Zone),
    (ct(fields.CT_ZONE, table=Stage.EGRESS_SECURITY),),
    (ct(65520, commit=True, nat=nat_src("10.10.0.1")),),
    (ct(65520, commit=True, nat=nat_dst("10.10.2.7", 8080)),),
    (
        ct(
            65520,
            commit=True,
            then=[action.move(fields.PKT_SOURCE, fields.CONN_SOURCE_CT_MARK), fields.SERVICE_CT_MARK.load],
        ),
        action.goto(tables.OUTPUT),
    ),
    (action.goto(NEXT),),
    (action.goto(Stage.ROUTING),),
    (action.resubmit(CLASSIFIER), action.resubmit(OUTPUT)),
    (action.NORMAL,),
    (action.IN_PORT,),
    (action.DEC_TTL, action.goto(NEXT)),
    (action.output(7),),
    (action.output(match.LOCAL_PORT),),
    (action.output(fields.TARGET_OF_PORT), action.output(fields.TRAFFIC_CONTROL_TARGET_OF_PORT)),
    (action.controller(fields.PacketIn.NETWORK_POLICY, 3),),
    (action.controller(fields.PacketIn.DNS, pause=True), action.goto(NEXT)),
    (action.meter(PacketInMeter.NETWORK_POLICY), action.controller(fields.PacketIn.NETWORK_POLICY, 1)),
    (action.group(9),),
    (action.set_eth_src(GATEWAY), action.set_eth_dst(fields.GLOBAL_VIRTUAL_MAC.upper())),
    (action.set_tun_dst("192.0.2.9"), action.set_tun_id(7)),
    (action.set_tun_dst("2001:db8::9"),),
)

# What only packets of one kind can have done to them.
SPECIAL: tuple[tuple[tuple[Match, ...], tuple[Action, ...]], ...] = (
    (
        (match.arp,),
        (
            action.move(action.ETH_SRC, action.ETH_DST),
            action.set_eth_src(GATEWAY),
            action.set_arp_op(match.ARP_REPLY),
            action.move(action.ARP_SHA, action.ARP_THA),
            action.set_arp_sha(GATEWAY),
            action.move(action.ARP_TPA, fields.SWAP),
            action.move(action.ARP_SPA, action.ARP_TPA),
            action.move(fields.SWAP, action.ARP_SPA),
            action.set_arp_spa("10.10.2.1"),
            action.IN_PORT,
        ),
    ),
    ((match.tagged,), (action.POP_VLAN, action.goto(NEXT))),
    (
        (match.dl_vlan(0),),
        (action.PUSH_VLAN, action.set_vlan(100), action.output(7)),
    ),
    (
        (match.dl_vlan(0), match.in_port(9)),
        (
            action.PUSH_VLAN,
            action.move(fields.L7_NP_RULE_VLAN_ID_CT_LABEL, action.VLAN_VID),
            action.output(7),
        ),
    ),
    ((match.ip,), (action.set_dscp(7), action.goto(NEXT))),
    ((match.ipv6,), (ct(65510, commit=True, nat=nat_dst("fd00:10::7", 8080)),)),
    ((match.ipv6, match.in_port(9)), (ct(65510, commit=True, nat=nat_src("fd00:10::1")),)),
)

CONJUNCTIONS = (action.conjunction(10, 1, 2), action.conjunction(11, 2, 3))


def affinity(protocol: str, *, v6: bool) -> tuple[Action, ...]:
    """What ServiceLB does to a client that must stay on its Endpoint."""
    remembered = learn.learn(
        SESSION_AFFINITY,
        200,
        cookie_of=(Category.SERVICE, 9),
        timeouts=[learn.hard_timeout(100), learn.idle_timeout(160), learn.fin_idle_timeout(5)],
        specs=[
            *learn.same_protocol(protocol, v6=v6),
            learn.same_dst_port(protocol),
            learn.same_src_port(protocol),
            learn.same_dst(v6=v6),
            learn.same_src(v6=v6),
            learn.learned_copy(fields.ENDPOINT_PORT),
            learn.learned_copy(fields.ENDPOINT_IP6 if v6 else fields.ENDPOINT_IP),
            learn.learned_load(fields.EP_SELECTED_REG_MARK),
            learn.learned_load(fields.REWRITE_MAC_REG_MARK),
        ],
    )
    return (remembered, fields.EP_SELECTED_REG_MARK.load, action.goto(NEXT))


def samples() -> Iterator[Flow]:
    """One flow for each match and each list of actions, told apart by priority."""
    for number, terms in enumerate(MATCHES):
        yield flow(SERVICE_LB, 1000 + number, *terms, then=[action.goto(NEXT)])
    for number, then in enumerate(ACTIONS):
        yield flow(SERVICE_LB, 2000 + number, match.ip, then=then)
    for number, (terms, then) in enumerate(SPECIAL):
        yield flow(SERVICE_LB, 3000 + number, *terms, then=then)
    yield flow(SERVICE_LB, 4000, match.src("192.0.2.1"), then=CONJUNCTIONS)
    for number, protocol in enumerate(("tcp", "udp", "sctp")):
        ipv4, ipv6 = Match(protocol), Match(f"{protocol}6")
        yield flow(SERVICE_LB, 5000 + number, ipv4, then=affinity(protocol, v6=False), object_id=9)
        yield flow(SERVICE_LB, 5000 + number, ipv6, then=affinity(protocol, v6=True), object_id=9)
    yield flow(SERVICE_LB, 6000, match.ip, then=action.DROP, hard_timeout=300)


@pytest.fixture
def empty(ovs: OvsBridge) -> OvsBridge:
    """The bridge with nothing but what flows refer to: the meters and group 9."""
    ovs.clear()
    for meter in PacketInMeter:
        ovs.ofctl("add-meter", packet_in_meter(meter, 500, Category.DEFAULT).text)
    ovs.bundle(f"group {line}" for line in Group(9, GroupType.SELECT, (), Category.SERVICE).lines(ALL))
    return ovs


@pytest.mark.parametrize(
    "pipeline",
    [
        ALL,
        Pipeline.realize(t for t in tables.TABLES if t not in (tables.IPV6, tables.NON_IP)),
        Pipeline.realize([tables.CLASSIFIER, tables.OUTPUT]),
    ],
    ids=["everything", "ipv4", "least"],
)
def test_ovs_holds_every_default_flow_as_we_wrote_it(empty: OvsBridge, pipeline: Pipeline) -> None:
    lines = [each.text(pipeline, 1) for each in pipeline.default_flows()]
    empty.add_flows(lines)
    assert empty.difference(lines) == ""
    assert len(empty.dump()) == len(lines)


def test_ovs_holds_a_sample_of_every_match_and_action_as_we_wrote_it(empty: OvsBridge) -> None:
    lines = [each.text(ALL, 1) for each in samples()]
    empty.add_flows(lines)
    assert empty.difference(lines) == ""
    assert len(empty.dump()) == len(lines)


def test_our_normal_form_of_a_match_is_the_one_that_ovs_prints(empty: OvsBridge) -> None:
    """But for zero and igmp, which we write as upstream does, and xxreg3, which OVS prints as four registers."""
    flows = [each for each in samples() if not any(re.match("xxreg3|igmp", term) for term in each.match)]
    empty.add_flows(each.text(ALL, 1) for each in flows)
    printed = {re.sub(r"^.*?priority=| actions=.*|(?<==)0(?=/)", "", line) for line in empty.dump()}
    ours = {re.sub(r"(?<==)0x0(?=/)", "", ",".join((str(each.priority), *each.match))) for each in flows}
    assert printed == ours


def test_every_sample_can_be_deleted_by_its_match_alone(empty: OvsBridge) -> None:
    flows = list(samples())
    empty.add_flows(each.text(ALL, 1) for each in flows)
    empty.bundle(f"flow delete_strict {each.match_text(ALL)}" for each in flows)
    assert empty.dump() == []


def test_actions_we_do_not_print_as_ovs_does_are_still_the_same_actions(empty: OvsBridge) -> None:
    empty.add_flows([flow(OUTPUT, 200, then=[action.controller(1, 3, pause=True)]).text(ALL, 1)])
    (printed,) = empty.dump()
    assert printed.endswith("actions=controller(reason=no_match,id=32776,userdata=01.03,pause)")


def bucket(number: int, weight: int = 100) -> Bucket:
    """The widest that a Service has: an IPv6 Endpoint on another Node."""
    actions = (
        fields.REMOTE_ENDPOINT_REG_MARK.load,
        fields.ENDPOINT_IP6((0xFD << 120) + number).load,
        fields.ENDPOINT_PORT(8080).load,
        action.resubmit_after(SERVICE_LB),
    )
    return Bucket(number, actions, weight)


def service(*buckets: Bucket) -> Group:
    return Group(5, GroupType.SELECT, buckets, Category.SERVICE, HASHED)


def put(ovs: OvsBridge, lines: Iterable[str]) -> None:
    ovs.bundle(f"group {line}" for line in lines)


def standing_buckets(ovs: OvsBridge) -> list[str]:
    dump = ovs.ofctl("dump-groups", "5").splitlines()[1]
    return dump.strip().split(",bucket=")[1:]


def count_buckets(ovs: OvsBridge) -> int:
    """By statistics, since OVS cannot describe a group of more than 64 KiB."""
    return len(re.findall(r"\bbucket\d+:", ovs.ofctl("dump-group-stats", "group_id=5")))


def test_a_group_of_any_size_fits_messages_of_700_of_the_widest_buckets(empty: OvsBridge) -> None:
    lines = list(service(*map(bucket, range(1, 2 * MAX_BUCKETS + 2))).lines(ALL))
    assert len(lines) == 3
    put(empty, lines)
    assert count_buckets(empty) == 2 * MAX_BUCKETS + 1


def test_one_bucket_more_and_one_less_leave_the_others_in_place(empty: OvsBridge) -> None:
    before, after = service(bucket(1), bucket(2), bucket(3)), service(bucket(1), bucket(3), bucket(4))
    put(empty, before.lines(ALL))
    changes = list(after.changes(before, ALL))
    assert [line.split(" ", 1)[0] for line in changes] == ["remove_bucket", "insert_bucket"]
    put(empty, changes)
    changed = standing_buckets(empty)
    put(empty, after.lines(ALL))
    assert changed == standing_buckets(empty)
    assert len(changed) == 3


def test_a_bucket_is_replaced_under_its_id_in_one_bundle(empty: OvsBridge) -> None:
    before, after = service(bucket(1), bucket(2)), service(bucket(1), bucket(2, weight=50))
    put(empty, before.lines(ALL))
    put(empty, after.changes(before, ALL))
    assert standing_buckets(empty)[-1].startswith("bucket_id:2,weight:50,")


def test_a_group_may_be_replaced_while_flows_name_it_and_takes_them_along_when_it_goes(
    empty: OvsBridge,
) -> None:
    named = flow(SERVICE_LB, 200, match.ip, then=[action.group(5)]).text(ALL, 1)
    put(empty, service(bucket(1)).lines(ALL))
    empty.add_flows([named])
    put(empty, service(bucket(2)).lines(ALL))
    assert empty.difference([named]) == ""
    put(empty, [delete_line(service().id)])
    assert empty.dump() == []


def test_a_packet_goes_through_the_tables_that_default_flows_join(empty: OvsBridge) -> None:
    empty.add_port("p7", 7)
    pipeline = Pipeline.realize(
        [tables.ARP_SPOOF_GUARD, CLASSIFIER, ENDPOINT_DNAT, tables.L3_DEC_TTL, OUTPUT]
    )
    entered = flow(CLASSIFIER, 190, match.in_port(7), then=[action.goto(Stage.PRE_ROUTING)])
    sent = flow(OUTPUT, 200, then=[action.IN_PORT])
    empty.add_flows(each.text(pipeline, 1) for each in (*pipeline.default_flows(), entered, sent))
    trace = empty.trace("in_port=7,ip,nw_src=10.0.0.1,nw_dst=10.0.0.2")
    passed = [pipeline.name_of(int(number)) for number in re.findall(r"^ ?(\d+)\. ", trace, re.MULTILINE)]
    assert passed == ["PipelineRootClassifier", "Classifier", "EndpointDNAT", "L3DecTTL", "Output"]
    assert trace.rstrip().endswith("Datapath actions: 7")
