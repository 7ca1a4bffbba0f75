"""Fields keep their bits, marks say them in the words of ovs-ofctl."""

from itertools import combinations

import pytest

from antrea.openflow import fields
from antrea.openflow.field import Field, Mark
from antrea.openflow.fields import FIELDS, MARKS

UNIONS = {
    ("EndpointPort", "EpUnion"),
    ("ServiceEPState", "EpUnion"),
    ("VLANID", "CtZone"),
    ("CtZoneType", "CtZone"),
    ("PeerClass", "SenderClass"),
}
SHARED = {
    ("Swap", "PacketInTable"),
    ("EndpointIP", "APConjID"),
    ("EndpointIP", "ClientIP"),
    ("APConjID", "ClientIP"),
    ("EndpointIP6", "ClientIP6"),
}


@pytest.mark.parametrize(
    ("register", "lo", "hi"),
    [
        ("reg0", 25, 32),
        ("reg0", 5, 4),
        ("reg0", -1, 3),
        ("ct_label", 64, 128),
        ("xxreg3", 0, 128),
        ("pkt_mark", 0, 32),
    ],
)
def test_a_field_that_leaves_its_register_is_refused_at_import(register: str, lo: int, hi: int) -> None:
    with pytest.raises(ValueError, match=r"Odd: .* leaves a \d+-bit register"):
        Field("Odd", register, lo, hi, "Nothing.")


@pytest.mark.parametrize("register", ["reg16", "xxreg4", "xreg0", "ct_state", "ct_mark1"])
def test_a_register_that_ovs_does_not_have_is_refused(register: str) -> None:
    with pytest.raises(ValueError, match=f"OVS has no register {register}"):
        Field("Odd", register, 0, 0, "Nothing.")


@pytest.mark.parametrize("value", [16, -1])
def test_a_mark_whose_value_needs_more_bits_is_refused(value: int) -> None:
    with pytest.raises(ValueError, match=f"PktSource: {value} does not fit 4 bits"):
        fields.PKT_SOURCE(value)


def test_fields_overlap_only_where_one_is_the_union_of_others_or_follows_them_in_time() -> None:
    overlapping = {
        (one.name, two.name)
        for one, two in combinations(FIELDS, 2)
        if one.register == two.register and one.mask & two.mask
    }
    assert overlapping == UNIONS | SHARED


def test_no_two_fields_have_one_name_and_no_two_marks_of_a_field_one_value() -> None:
    assert len({field.name for field in FIELDS}) == len(FIELDS)
    assert len({(mark.field.name, mark.value) for mark in MARKS.values()}) == len(MARKS)


@pytest.mark.parametrize(
    ("mark", "match", "load"),
    [
        (fields.FROM_POD_REG_MARK, "reg0=0x3/0xf", "set_field:0x3/0xf->reg0"),
        (fields.TO_GATEWAY_REG_MARK, "reg0=0x20/0xf0", "set_field:0x20/0xf0->reg0"),
        (fields.OUTPUT_TO_OF_PORT_REG_MARK, "reg0=0x200000/0x600000", "set_field:0x200000/0x600000->reg0"),
        (fields.NOT_REWRITE_MAC_REG_MARK, "reg0=0x0/0x200", "set_field:0x0/0x200->reg0"),
        (fields.PACKET_IN_OPERATION(3), "reg0=0x6000000/0xfe000000", "set_field:0x6000000/0xfe000000->reg0"),
        (fields.TARGET_OF_PORT(7), "reg1=0x7", "set_field:0x7->reg1"),
        (fields.EP_UNION(2 << 16 | 80), "reg4=0x20050/0x7ffff", "set_field:0x20050/0x7ffff->reg4"),
        (fields.ENDPOINT_IP6(0xFD << 120 | 7), f"xxreg3=0xfd{7:030x}", f"set_field:0xfd{7:030x}->xxreg3"),
        (fields.HAIRPIN_CT_MARK, "ct_mark=0x40/0x40", "set_field:0x40/0x40->ct_mark"),
        (
            fields.EGRESS_RULE_CT_LABEL(10),
            "ct_label=0xa00000000/0xffffffff00000000",
            "set_field:0xa00000000/0xffffffff00000000->ct_label",
        ),
        (fields.SNAT_PKT_MARK(1), "pkt_mark=0x1/0xff", "set_field:0x1/0xff->pkt_mark"),
        (fields.HOST_LOCAL_SOURCE_PKT_MARK, "pkt_mark=0x80000000/0x80000000", "set_field:0x80000000/0x80000000->pkt_mark"),
    ],
)  # fmt: skip
def test_a_mark_is_a_match_and_a_load_over_its_own_bits_only(mark: Mark, match: str, load: str) -> None:
    assert (mark.match, mark.load) == (match, load)


@pytest.mark.parametrize(
    ("field", "name"),
    [
        (fields.PKT_SOURCE, "NXM_NX_REG0[0..3]"),
        (fields.REWRITE_MAC, "NXM_NX_REG0[9]"),
        (fields.TARGET_OF_PORT, "NXM_NX_REG1[]"),
        (fields.ENDPOINT_IP6, "NXM_NX_XXREG3[]"),
        (fields.CONN_SOURCE_CT_MARK, "NXM_NX_CT_MARK[0..3]"),
        (fields.L7_NP_RULE_VLAN_ID_CT_LABEL, "NXM_NX_CT_LABEL[64..75]"),
    ],
)
def test_moves_and_learning_name_a_field_by_its_bits(field: Field, name: str) -> None:
    assert field.nxm == name


def test_part_of_a_field_can_be_matched_as_a_prefix_of_an_address() -> None:
    assert fields.ENDPOINT_IP.within(0x0A0A0200, 0xFFFFFF00) == "reg3=0xa0a0200/0xffffff00"
    assert fields.PKT_DESTINATION.within(1, 3) == "reg0=0x10/0x30"
    assert fields.ENDPOINT_IP.within(7, 0xFFFFFFFF) == "reg3=0x7"
    with pytest.raises(ValueError, match="PktDestination"):
        fields.PKT_DESTINATION.within(16, 16)
    with pytest.raises(ValueError, match="PktDestination"):
        fields.PKT_DESTINATION.within(3, 1)
