"""Announcement frames byte by byte, and the names of Pod interfaces."""

from __future__ import annotations

import pytest

from antrea.outside.neighbour.announcement import announcement
from antrea.outside.netlink.pod_veth import host_interface_name, random_mac


def test_a_gratuitous_arp_asks_for_its_own_address() -> None:
    # the frame of upstream's pkg/agent/util/arping/arping_linux_test.go
    assert announcement("42:af:b8:14:cb:4e", "192.168.10.1").hex() == (
        "ffffffffffff42af b814cb4e0806 0001080006040001 42afb814cb4e c0a80a01 ffffffffffff c0a80a01".replace(
            " ", ""
        )
    )


def test_a_neighbour_advertisement_overrides_and_its_checksum_adds_up() -> None:
    frame = announcement("0a:00:00:00:00:05", "fd00:10:244:1::5")
    assert frame[:14].hex() == "3333000000010a000000000586dd"
    packet, body = frame[14:54], frame[54:]
    assert (packet[6], packet[7]) == (58, 255)
    assert body[:2] + body[4:] == (
        bytes.fromhex("8800") + bytes.fromhex("20000000") + packet[8:24] + bytes.fromhex("02010a0000000005")
    )
    words = packet[8:40] + len(body).to_bytes(4, "big") + (58).to_bytes(4, "big") + body
    total = sum(int.from_bytes(words[i : i + 2], "big") for i in range(0, len(words), 2))
    assert (total & 0xFFFF) + (total >> 16) == 0xFFFF


@pytest.mark.parametrize(
    ("pod", "container", "if_name", "name"),
    [
        ("web", "c1", "eth0", "web-2f2276"),
        ("yelb-db-84d6dc8f-x7v5r", "c1", "eth0", "yelb-db--2f2276"),
        ("--------tail", "c1", "eth0", "-2f2276"),
        ("web", "c1", "net1", "web-190603"),
    ],
)
def test_the_host_interface_is_named_after_the_pod_and_its_container(
    pod: str, container: str, if_name: str, name: str
) -> None:
    assert host_interface_name(pod, container, if_name) == name
    assert len(name) <= 15


def test_random_macs_are_local_unicast_and_differ() -> None:
    macs = {random_mac() for _ in range(50)}
    assert len(macs) == 50
    assert {int(mac[:2], 16) & 0x03 for mac in macs} == {0x02}
