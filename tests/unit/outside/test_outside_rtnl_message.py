"""What goes to the kernel is what pyroute2 reads in it, and what pyroute2 would send is read as it was meant."""

from __future__ import annotations

import errno
import ipaddress
import socket
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroute2.netlink.rtnl.ifaddrmsg import ifaddrmsg
from pyroute2.netlink.rtnl.ifinfmsg import ifinfmsg
from pyroute2.netlink.rtnl.marshal import MarshalRtnl
from pyroute2.netlink.rtnl.rtmsg import rtmsg

from antrea.outside.rtnl_message import (
    Gateway,
    Link,
    Reply,
    Request,
    address_of,
    attribute,
    attributes,
    delete_link,
    gateway_of,
    get_addresses,
    get_link,
    get_routes,
    link_of,
    new_address,
    new_default_route,
    new_veth,
    replies,
    set_up,
)

NAMES = st.text("abcdefghijklmnopqrstuvwxyz0123456789-.", min_size=1, max_size=15)
MACS = st.binary(min_size=6, max_size=6).map(lambda octets: octets.hex(":"))
INDEXES = st.integers(1, 2**31 - 1)
INTERFACES = st.tuples(st.ip_addresses(), st.integers(0, 128)).map(
    lambda pair: ipaddress.ip_interface(f"{pair[0]}/{min(pair[1], pair[0].max_prefixlen)}")
)
ACK = 0x5
NEW = 0x605


def read(request: Request) -> dict[str, Any]:
    """As pyroute2 reads it: header fields that say something, and attributes by name, nested ones too."""
    (message,) = MarshalRtnl().parse(request.octets(7))
    header = message["header"]
    assert (header["length"], header["sequence_number"]) == (len(request.octets(7)), 7)
    return {"event": message["event"], "ask": header["flags"], **plain(message)}


def plain(message: Any) -> dict[str, Any]:
    fields = {name: message[name] for name, _ in message.fields if name != "__align" and message[name]}
    for name, value in message["attrs"]:
        fields[name] = plain(value) if isinstance(value, dict) else value
    return fields


def spelled(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> str:
    """As inet_ntop does and pyroute2 with it: Python spells those that hold an IPv4 address in another way."""
    return socket.inet_ntop(socket.AF_INET6 if address.version == 6 else socket.AF_INET, address.packed)


def answer(message: Any, **fields: Any) -> Reply:
    """A message as the kernel sends it, in pyroute2's hand."""
    for name, value in fields.items():
        message[name] = value
    message.encode()
    (reply,) = replies(bytes(message.data))
    return reply


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
        {"event": "RTM_GETLINK", "ask": ACK, "IFLA_IFNAME": name},
        {"event": "RTM_DELLINK", "ask": ACK, "IFLA_IFNAME": name},
        {"event": "RTM_NEWLINK", "ask": ACK, "index": index, "flags": 1, "change": 1},
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
        {"event": "RTM_GETADDR", "ask": 0x301},
        {"event": "RTM_GETROUTE", "ask": 0x301},
    ]


@given(INDEXES, st.integers(0, 2**32 - 1), MACS, INDEXES)
def test_a_link_that_stands_is_read(index: int, flags: int, mac: str, peer: int) -> None:
    attrs = [["IFLA_IFNAME", "eth0"], ["IFLA_ADDRESS", mac], ["IFLA_LINK", peer]]
    assert link_of(answer(ifinfmsg(), index=index, flags=flags, attrs=attrs)) == Link(index, flags, peer, mac)
    assert link_of(answer(ifinfmsg(), index=1, attrs=[["IFLA_IFNAME", "lo"]])) == Link(1, 0, 0, "")


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
    ] == [Gateway(index, table, gateway), None, None]


def test_an_answer_tells_its_request_whether_more_comes_and_why_not() -> None:
    refused = bytes.fromhex("14000000 0200 0000 09000000 00000000") + (-errno.EEXIST).to_bytes(
        4, "little", signed=True
    )
    done = bytes.fromhex("14000000 0300 0200 0a000000 00000000 00000000")
    more = bytes.fromhex("10000000 1000 0200 0b000000 00000000")
    assert [(one.number, one.ends, one.errno) for one in replies(refused + done + more)] == [
        (9, True, errno.EEXIST),
        (10, True, 0),
        (11, False, 0),
    ]


@given(st.lists(st.tuples(st.integers(0, 0x3FFF), st.binary(max_size=40)), unique_by=lambda pair: pair[0]))
def test_attributes_are_read_as_they_were_written(pairs: list[tuple[int, bytes]]) -> None:
    assert attributes(b"".join(attribute(*pair) for pair in pairs)) == dict(pairs)


@given(st.binary(max_size=200))
def test_octets_that_are_no_message_end(octets: bytes) -> None:
    assert len(list(replies(octets))) + len(attributes(octets)) <= len(octets)


@pytest.mark.parametrize("flag", [0x8000, 0x4000])
def test_the_flags_in_an_attributes_number_are_not_part_of_it(flag: int) -> None:
    assert attributes(attribute(5 | flag, b"five")) == {5: b"five"}
