"""Matches that are equal have one form; matches that cannot be are refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antrea.openflow import fields, match
from antrea.openflow.field import Match
from antrea.openflow.flow import normal

TERMS = (
    match.in_port(7),
    match.nw_src("10.0.0.1"),
    match.nw_dst("10.0.1.0/24"),
    match.ip,
    match.tcp,
    match.tp_dst(80),
    match.ct_state("+trk"),
    match.ct_state("+new"),
    fields.FROM_POD_REG_MARK.match,
    fields.REWRITE_MAC_REG_MARK.match,
    fields.HAIRPIN_CT_MARK.match,
    fields.TARGET_OF_PORT(9).match,
)


@given(st.permutations(TERMS), st.lists(st.sampled_from(TERMS)))
def test_the_order_and_repetition_of_terms_do_not_matter(order: list[Match], again: list[Match]) -> None:
    assert normal([*order, *again]) == (
        "ct_state=+new+trk",
        "ct_mark=0x40/0x40",
        "tcp",
        "reg0=0x203/0x20f",
        "reg1=0x9",
        "in_port=7",
        "nw_src=10.0.0.1",
        "nw_dst=10.0.1.0/24",
        "tp_dst=80",
    )


@given(st.lists(st.sampled_from(TERMS)))
def test_the_normal_form_is_its_own_normal_form(terms: list[Match]) -> None:
    assert normal(normal(terms)) == normal(terms)


def test_bits_of_a_whole_register_lose_their_mask() -> None:
    low, high = Match("reg3=0xa/0xffff"), Match("reg3=0xb0000/0xffff0000")
    assert normal([low, high]) == ("reg3=0xb000a",)


@pytest.mark.parametrize(
    ("terms", "why"),
    [
        ((match.in_port(1), match.in_port(2)), "in_port cannot be both 1 and 2"),
        ((match.ip, match.ipv6), "PROTOCOL cannot be both ip and ipv6"),
        ((match.tcp, match.udp), "PROTOCOL cannot be both tcp and udp"),
        ((match.tcp, match.ipv6), "PROTOCOL cannot be both tcp and ipv6"),
        (
            (fields.FROM_POD_REG_MARK.match, fields.FROM_TUNNEL_REG_MARK.match),
            "reg0 cannot be both 0x3/0xf and 0x1/0xf",
        ),
        ((fields.REWRITE_MAC_REG_MARK.match, fields.NOT_REWRITE_MAC_REG_MARK.match), "reg0 cannot be both"),
        ((match.ct_state("+new"), match.ct_state("-new+trk")), "wants new both set and unset"),
        ((match.ct_state("new"),), "is not a list of flags"),
        ((match.ct_state("+new+odd"),), "is not a list of flags"),
        ((match.ct_state(""),), "is not a list of flags"),
        ((Match("nw_srx=10.0.0.1"),), "'nw_srx=10.0.0.1' is not a match we know"),
        ((Match("tcp=1"),), "'tcp=1' is not a match we know"),
    ],
)
def test_a_match_that_contradicts_itself_is_refused(terms: tuple[Match, ...], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        normal(terms)


@pytest.mark.parametrize(
    ("term", "text"),
    [
        (match.nw_src("10.0.0.7/24"), "nw_src=10.0.0.0/24"),
        (match.nw_dst("10.0.0.7/32"), "nw_dst=10.0.0.7"),
        (match.ipv6_src("FD00:0:0::0007"), "ipv6_src=fd00::7"),
        (match.ipv6_dst("fd00::7/64"), "ipv6_dst=fd00::/64"),
        (match.src("10.0.0.0/8"), "ip,nw_src=10.0.0.0/8"),
        (match.dst("fd00::7"), "ipv6,ipv6_dst=fd00::7"),
        (match.ct_src("10.0.0.7"), "ip,ct_nw_src=10.0.0.7"),
        (match.ct_src("fd00::/8"), "ipv6,ct_ipv6_src=fd00::/8"),
        (match.tun_dst("192.0.2.1"), "tun_dst=192.0.2.1"),
        (match.tun_dst("2001:db8::1"), "tun_ipv6_dst=2001:db8::1"),
        (match.tun_id(0xFFFFFF), "tun_id=0xffffff"),
        (match.dl_src("AA:BB:CC:DD:EE:FF"), "dl_src=aa:bb:cc:dd:ee:ff"),
        (match.dl_vlan(7), "dl_vlan=7"),
        (match.dl_vlan(0), "vlan_tci=0x0000/0x1000"),
        (match.in_port(match.LOCAL_PORT), "in_port=LOCAL"),
        (match.tp_dst(0x1F90, 0xFFF8), "tp_dst=0x1f90/0xfff8"),
        (match.dscp(7), "nw_tos=28"),
    ],
)
def test_a_term_has_one_spelling(term: Match, text: str) -> None:
    assert term == text


def test_every_address_of_a_family_is_the_family_alone() -> None:
    assert normal([match.src("0.0.0.0/0")]) == ("ip",)
    assert normal([match.dst("::/0")]) == ("ipv6",)


@pytest.mark.parametrize("wrong", [lambda: match.nw_src("fd00::1"), lambda: match.ipv6_dst("10.0.0.1")])
def test_an_address_of_the_other_family_is_refused(wrong: object) -> None:
    assert callable(wrong)
    with pytest.raises(ValueError, match=r"is not an IPv[46] address"):
        wrong()
