"""What goes to the kernel about dummies and about neighbours that it answers for is what pyroute2 reads in it."""

from __future__ import annotations

import socket

from hypothesis import given
from hypothesis import strategies as st
from rtnl_peer import ASK, ASK_ALL, INDEXES, MACS, NEW, PUT, read, spelled

from antrea.host.route import CATEGORIES, PROTOCOL, ProxyNeighbour
from antrea.outside.netlink import device_message as message
from antrea.outside.netlink.message import replies

NTF_PROXY = 0x08


def test_a_dummy_is_made_under_its_name_and_deleted_by_it() -> None:
    about = {"IFLA_IFNAME": "antrea-egress0"}
    assert [read(message.new_dummy("antrea-egress0")), read(message.delete_device("antrea-egress0"))] == [
        {"event": "RTM_NEWLINK", "ask": NEW, **about, "IFLA_LINKINFO": {"IFLA_INFO_KIND": "dummy"}},
        {"event": "RTM_DELLINK", "ask": ASK, **about},
    ]


@given(INDEXES, st.integers(1, 4094), MACS)
def test_a_device_in_a_vlan_is_made_on_its_card(card: int, vlan: int, mac: str) -> None:
    about = {"IFLA_INFO_KIND": "vlan", "IFLA_INFO_DATA": {"IFLA_VLAN_ID": vlan}}
    assert read(message.new_vlan("antrea-ext.5", card, vlan, mac)) == {
        "event": "RTM_NEWLINK",
        "ask": NEW,
        "IFLA_IFNAME": "antrea-ext.5",
        "IFLA_LINK": card,
        "IFLA_ADDRESS": mac,
        "IFLA_LINKINFO": about,
    }


@given(INDEXES, st.ip_addresses(v=6), st.integers(0, CATEGORIES - 1))
def test_a_neighbour_that_is_answered_for_carries_our_protocol_number(
    index: int, ip: object, category: int
) -> None:
    proxy = ProxyNeighbour(dev="eth1", ip=str(ip), category=category)
    about = {
        "family": socket.AF_INET6,
        "ifindex": index,
        "flags": NTF_PROXY,
        "NDA_DST": spelled(ip),  # type: ignore[arg-type]
        "NDA_PROTOCOL": PROTOCOL + category,
    }
    assert read(message.put_proxy(index, proxy)) == {"event": "RTM_NEWNEIGH", "ask": PUT, **about}
    assert read(message.drop_proxy(index, proxy)) == {"event": "RTM_DELNEIGH", "ask": ASK, **about}


def test_all_that_are_answered_for_are_asked_for_and_read_back() -> None:
    assert read(message.get_proxies()) == {"event": "RTM_GETNEIGH", "ask": ASK_ALL, "flags": NTF_PROXY}
    lo = socket.if_nametoindex("lo")
    proxy = ProxyNeighbour(dev="lo", ip="fd00::9", category=4)
    (reply,) = replies(message.put_proxy(lo, proxy).encode(1))
    assert message.proxy_of(reply) == proxy
