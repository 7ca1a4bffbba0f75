"""The questions that are asked for an address, byte by byte as the RFCs have them."""

from __future__ import annotations

from ipaddress import ip_address

from antrea.openflow.checksum import checksum
from antrea.outside.neighbour.probe import question

MAC = bytes.fromhex("0a0000000007")


def test_an_arp_probe_names_its_sender_by_mac_alone() -> None:
    assert question(MAC, ip_address("192.0.2.50")).hex(" ", 2) == (
        "ffff ffff ffff 0a00 0000 0007 0806 0001 0800 0604 0001"
        " 0a00 0000 0007 0000 0000 0000 0000 0000 c000 0232"
    )


def test_a_neighbour_solicitation_of_nobody_asks_the_group_of_the_address() -> None:
    frame = question(MAC, ip_address("2001:db8:2::abcd:50"))
    body = frame[54:]
    assert (frame[:54] + body[:2]).hex(" ", 2) == (
        "3333 ffcd 0050 0a00 0000 0007 86dd 6000 0000 0018 3aff"
        " 0000 0000 0000 0000 0000 0000 0000 0000 ff02 0000 0000 0000 0000 0001 ffcd 0050 8700"
    )
    assert body[4:].hex() == "00000000" + ip_address("2001:db8:2::abcd:50").packed.hex()
    # a sum over all with the checksum in its place is nothing
    assert checksum(frame[22:54] + bytes((0, 0, 0, 24, 0, 0, 0, 58)) + body) == 0
