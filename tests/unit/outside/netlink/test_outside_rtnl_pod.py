"""What goes to the kernel about a Pod's interface is what pyroute2 reads in it, and the other way round."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hypothesis import given
from hypothesis import strategies as st
from pyroute2.netlink.rtnl.ifaddrmsg import ifaddrmsg
from pyroute2.netlink.rtnl.ifinfmsg import ifinfmsg
from pyroute2.netlink.rtnl.rtmsg import rtmsg
from rtnl_peer import ASK, ASK_ALL, INDEXES, INTERFACES, MACS, NEW, answer, read, spelled

from antrea.outside.netlink.message import get_addresses, get_link
from antrea.outside.netlink.pod_message import (
    StandingLink,
    StandingRoute,
    address_of,
    delete_link,
    gateway_of,
    get_routes,
    link_of,
    new_address,
    new_default_route,
    new_veth,
    set_up,
)

if TYPE_CHECKING:
    import ipaddress

NAMES = st.text("abcdefghijklmnopqrstuvwxyz0123456789-.", min_size=1, max_size=15)


@given(NAMES, NAMES, st.integers(68, 65535), MACS, st.integers(0, 2**20))
def test_a_pair_is_asked_for_with_its_host_end_up_and_without_arp(
    name: str, peer: str, mtu: int, mac: str, netns: int
) -> None:
    assert read(new_veth(name, peer, mtu=mtu, peer_mac=mac, netns=netns)) == {
        "event": "RTM_NEWLINK",
        "ask": NEW,
        "flags": 0x81,
        "change": 0x81,
        "IFLA_IFNAME": name,
        "IFLA_MTU": mtu,
        "IFLA_LINKINFO": {
            "IFLA_INFO_KIND": "veth",
            "IFLA_INFO_DATA": {
                "VETH_INFO_PEER": {
                    "IFLA_IFNAME": peer,
                    "IFLA_MTU": mtu,
                    "IFLA_ADDRESS": mac,
                    "IFLA_NET_NS_FD": netns,
                }
            },
        },
    }


@given(NAMES, INDEXES)
def test_a_link_is_named_by_its_name_or_its_index(name: str, index: int) -> None:
    assert [read(get_link(name)), read(delete_link(name)), read(set_up(index))] == [
        {"event": "RTM_GETLINK", "ask": ASK, "IFLA_IFNAME": name},
        {"event": "RTM_DELLINK", "ask": ASK, "IFLA_IFNAME": name},
        {"event": "RTM_NEWLINK", "ask": ASK, "index": index, "flags": 1, "change": 1},
    ]


@given(INDEXES, INTERFACES)
def test_an_address_brings_its_broadcast_or_asks_nobody_whether_it_is_free(
    index: int, address: ipaddress.IPv4Interface | ipaddress.IPv6Interface
) -> None:
    ip, prefix = spelled(address.ip), address.network.prefixlen
    extra: dict[str, Any] = {"IFA_FLAGS": 2} if address.version == 6 else {}
    if address.version == 4 and prefix < 31:
        extra = {"IFA_BROADCAST": str(address.network.broadcast_address)}
    assert read(new_address(index, address)) == {
        "event": "RTM_NEWADDR",
        "ask": NEW,
        "family": 2 if address.version == 4 else 10,
        **({"prefixlen": prefix} if prefix else {}),
        "index": index,
        "IFA_LOCAL": ip,
        "IFA_ADDRESS": ip,
        **extra,
    }


@given(INDEXES, st.ip_addresses())
def test_a_default_route_is_on_the_link_in_the_main_table(
    index: int, gateway: ipaddress.IPv4Address | ipaddress.IPv6Address
) -> None:
    assert read(new_default_route(index, gateway)) == {
        "event": "RTM_NEWROUTE",
        "ask": NEW,
        "family": 2 if gateway.version == 4 else 10,
        "table": 254,
        "proto": 3,
        "type": 1,
        "flags": 4,
        "RTA_GATEWAY": spelled(gateway),
        "RTA_OIF": index,
    }


def test_lists_are_asked_for_whole() -> None:
    assert [read(get_addresses()), read(get_routes())] == [
        {"event": "RTM_GETADDR", "ask": ASK_ALL},
        {"event": "RTM_GETROUTE", "ask": ASK_ALL},
    ]


@given(INDEXES, st.integers(0, 2**32 - 1), MACS, INDEXES)
def test_a_link_that_stands_is_read(index: int, flags: int, mac: str, peer: int) -> None:
    attrs = [["IFLA_IFNAME", "eth0"], ["IFLA_ADDRESS", mac], ["IFLA_LINK", peer]]
    assert link_of(answer(ifinfmsg(), index=index, flags=flags, attrs=attrs)) == StandingLink(
        index, flags, peer, mac
    )
    assert link_of(answer(ifinfmsg(), index=1, attrs=[["IFLA_IFNAME", "lo"]])) == StandingLink(1, 0, 0, "")


@given(INDEXES, INTERFACES)
def test_an_address_that_stands_is_read(
    index: int, address: ipaddress.IPv4Interface | ipaddress.IPv6Interface
) -> None:
    """IPv6 has no IFA_LOCAL."""
    name = "IFA_LOCAL" if address.version == 4 else "IFA_ADDRESS"
    fields = {"family": 2 if address.version == 4 else 10, "prefixlen": address.network.prefixlen}
    reply = answer(ifaddrmsg(), index=index, attrs=[[name, str(address.ip)]], **fields)
    assert address_of(reply) == (index, address)


@given(INDEXES, st.ip_addresses(), st.integers(1, 2**32 - 1))
def test_of_routes_only_default_ones_by_a_gateway_count(
    index: int, gateway: ipaddress.IPv4Address | ipaddress.IPv6Address, table: int
) -> None:
    fields: dict[str, Any] = {"family": 2 if gateway.version == 4 else 10}
    on_link: list[Any] = [["RTA_TABLE", table], ["RTA_OIF", index]]
    attrs = [*on_link, ["RTA_GATEWAY", str(gateway)]]
    assert [
        gateway_of(answer(rtmsg(), **fields, attrs=attrs)),
        gateway_of(answer(rtmsg(), **fields, attrs=attrs, dst_len=8)),
        gateway_of(answer(rtmsg(), **fields, attrs=on_link)),
    ] == [StandingRoute(index, table, gateway), None, None]
