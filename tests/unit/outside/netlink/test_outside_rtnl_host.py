"""What goes to the kernel about a Node's devices, addresses, routes, rules and neighbours is what pyroute2 reads in it."""

from __future__ import annotations

import errno
import socket
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroute2.netlink.rtnl.fibmsg import fibmsg
from pyroute2.netlink.rtnl.ifaddrmsg import ifaddrmsg
from pyroute2.netlink.rtnl.ifinfmsg import ifinfmsg
from pyroute2.netlink.rtnl.ndmsg import ndmsg
from pyroute2.netlink.rtnl.rtmsg import rtmsg
from rtnl_peer import ASK, ASK_ALL, INDEXES, INTERFACES, MACS, NEW, PUT, answer, read, spelled

from antrea.host.address import Address
from antrea.host.route import CATEGORIES, PROTOCOL, Neighbour, Route, RoutingRule
from antrea.outside.netlink import host_message as message
from antrea.outside.netlink.host_message import Device, DeviceAddress, KernelRoute, KnownNeighbour
from antrea.outside.netlink.message import replies

if TYPE_CHECKING:
    import ipaddress

    from antrea.outside.netlink.message import Reply, Request

    Ip = ipaddress.IPv4Address | ipaddress.IPv6Address
    Interface = ipaddress.IPv4Interface | ipaddress.IPv6Interface

NUMBERS = st.integers(1, 2**32 - 1)
OURS = st.integers(0, CATEGORIES - 1)
LO = socket.if_nametoindex("lo")


def family(version: int) -> int:
    return 2 if version == 4 else 10


def listed(request: Request) -> Reply:
    """What we put, as the kernel lists it: in the same form."""
    (reply,) = replies(request.encode(1))
    return reply


def said(**fields: Any) -> dict[str, Any]:
    """What `read` answers: fields that are zero or empty are not in it."""
    return {name: value for name, value in fields.items() if value}


@given(INDEXES, st.booleans(), st.integers(68, 65535), MACS)
def test_of_a_device_only_what_is_given_changes(index: int, up: bool, mtu: int, mac: str) -> None:
    changes = [
        message.set_device(index),
        message.set_device(index, up=up),
        message.set_device(index, mtu=mtu, mac=mac),
    ]
    about: dict[str, Any] = {"event": "RTM_NEWLINK", "ask": ASK, "index": index}
    assert [read(change) for change in changes] == [
        about,
        said(**about, flags=int(up), change=1),
        {**about, "IFLA_MTU": mtu, "IFLA_ADDRESS": mac},
    ]


@given(INDEXES, INTERFACES, OURS)
def test_an_address_carries_its_category_and_replaces_what_stands(
    index: int, cidr: Interface, category: int
) -> None:
    address = Address("gw0", str(cidr), category)
    ip, flags = spelled(cidr.ip), 2 if cidr.version == 6 else 0
    about = said(family=family(cidr.version), prefixlen=cidr.network.prefixlen, index=index)
    about |= {"IFA_LOCAL": ip, "IFA_ADDRESS": ip, "IFA_PROTO": PROTOCOL + category}
    if cidr.version == 4 and cidr.network.prefixlen < 31:
        about["IFA_BROADCAST"] = spelled(cidr.network.broadcast_address)
    assert [read(message.put_address(index, address)), read(message.drop_address(index, address))] == [
        {"event": "RTM_NEWADDR", "ask": PUT, **about, **said(IFA_FLAGS=flags)},
        {"event": "RTM_DELADDR", "ask": ASK, **about},
    ]


@given(
    *(INTERFACES, st.ip_addresses(), INDEXES, st.booleans(), st.sampled_from(["global", "link"])),
    *(NUMBERS, st.integers(0, 2**32 - 1), OURS),
)
def test_a_route_that_was_put_is_read_back_as_it_was_wanted(
    to: Interface, gateway: Ip, index: int, onlink: bool, scope: Any, table: int, metric: int, category: int
) -> None:
    via = str(gateway) if gateway.version == to.version else ""
    route = Route(
        dst=str(to.network),
        dev="",
        via=via,
        onlink=onlink,
        scope=scope,
        src=str(to.ip),
        table=table,
        metric=metric,
        category=category,
    )
    request = message.put_route(index, route)
    expected = KernelRoute(
        dst=str(to.network),
        index=index,
        via=via,
        src=str(to.ip),
        table=table,
        metric=0 if to.version == 6 and metric == 1024 else metric,
        protocol=PROTOCOL + category,
        scope=253 if scope == "link" and to.version == 4 else 0,
        flags=4 if onlink else 0,
    )
    reply = listed(request)
    assert (message.route_of(reply), message.protocol_of(reply)) == (expected, PROTOCOL + category)
    assert read(request) == said(
        event="RTM_NEWROUTE",
        ask=PUT,
        family=family(to.version),
        dst_len=to.network.prefixlen,
        proto=PROTOCOL + category,
        scope=expected.scope,
        type=1,
        flags=expected.flags,
        RTA_DST=spelled(to.network.network_address) if to.network.prefixlen else "",
        RTA_PRIORITY=metric,
        RTA_TABLE=table,
        RTA_OIF=index,
        RTA_GATEWAY=spelled(gateway) if via else "",
        RTA_PREFSRC=spelled(to.ip),
    )


@given(INTERFACES, NUMBERS, OURS)
def test_a_route_is_dropped_whatever_its_next_hop_but_only_if_it_is_ours(
    to: Interface, table: int, category: int
) -> None:
    route = Route(
        dst=str(to.network), dev="eth0", via="10.0.0.1", src="10.0.0.2", table=table, category=category
    )
    assert read(message.drop_route(route)) == said(
        event="RTM_DELROUTE",
        ask=ASK,
        family=family(to.version),
        dst_len=to.network.prefixlen,
        proto=PROTOCOL + category,
        scope=255 if to.version == 4 else 0,
        type=1,
        RTA_DST=spelled(to.network.network_address) if to.network.prefixlen else "",
        RTA_TABLE=table,
    )


@given(st.ip_addresses(), MACS, OURS)
def test_a_neighbour_that_was_put_is_permanent_and_read_back_as_ours(ip: Ip, mac: str, category: int) -> None:
    neighbour = Neighbour(dev="lo", ip=str(ip), mac=mac, category=category)
    request = message.put_neighbour(LO, neighbour)
    about: dict[str, Any] = {"family": family(ip.version), "ifindex": LO, "state": 0x80}
    about |= {"NDA_DST": spelled(ip), "NDA_PROTOCOL": PROTOCOL + category}
    assert [read(request), read(message.drop_neighbour(LO, neighbour))] == [
        {"event": "RTM_NEWNEIGH", "ask": PUT, **about, "NDA_LLADDR": mac},
        {"event": "RTM_DELNEIGH", "ask": ASK, **about},
    ]
    assert message.neighbour_of(listed(request)) == neighbour
    assert message.any_neighbour_of(listed(request)) == KnownNeighbour(LO, str(ip), mac, 0x80)


@given(INDEXES, st.ip_addresses())
def test_a_neighbour_is_asked_for_as_if_a_packet_were_sent(index: int, ip: Ip) -> None:
    assert read(message.use_neighbour(index, str(ip))) == {
        "event": "RTM_NEWNEIGH",
        "ask": PUT,
        "family": family(ip.version),
        "ifindex": index,
        "flags": 1,
        "NDA_DST": spelled(ip),
    }


@given(st.sampled_from([4, 6]), NUMBERS, NUMBERS, NUMBERS, NUMBERS, OURS)
def test_a_rule_that_was_put_is_read_back_as_it_was_wanted(
    version: Any, mark: int, mask: int, table: int, priority: int, category: int
) -> None:
    rule = RoutingRule(
        family=version, mark=mark, mask=mask, table=table, priority=priority, category=category
    )
    request = message.put_rule(rule)
    about: dict[str, Any] = {
        "family": family(version),
        "action": 1,
        "FRA_PRIORITY": priority,
        "FRA_FWMARK": mark,
    }
    about |= {"FRA_FWMASK": mask, "FRA_TABLE": table, "FRA_PROTOCOL": PROTOCOL + category}
    assert [read(request), read(message.drop_rule(rule))] == [
        {"event": "RTM_NEWRULE", "ask": NEW, **about},
        {"event": "RTM_DELRULE", "ask": ASK, **about},
    ]
    assert message.rule_of(listed(request)) == rule


def test_lists_are_asked_for_whole_and_routes_by_family() -> None:
    lists = [message.get_devices(), message.get_neighbours(), message.get_rules(), *message.get_routes()]
    assert [read(request) for request in lists] == [
        {"event": "RTM_GETLINK", "ask": ASK_ALL},
        {"event": "RTM_GETNEIGH", "ask": ASK_ALL},
        {"event": "RTM_GETRULE", "ask": ASK_ALL},
        {"event": "RTM_GETROUTE", "ask": ASK_ALL, "family": 2},
        {"event": "RTM_GETROUTE", "ask": ASK_ALL, "family": 10},
    ]


@given(INDEXES, st.integers(0, 2**32 - 1), st.integers(0, 65535), MACS)
def test_a_device_that_stands_is_read(index: int, flags: int, mtu: int, mac: str) -> None:
    attrs = [["IFLA_IFNAME", "gw0"], ["IFLA_MTU", mtu], ["IFLA_ADDRESS", mac]]
    found = message.device_of(answer(ifinfmsg(), index=index, flags=flags, attrs=attrs))
    assert found == Device(index, "gw0", flags, mtu, mac)


@given(INDEXES, INTERFACES, st.sampled_from([0, 200, 253, 254]), st.integers(0, 255), st.integers(0, 255))
def test_an_address_that_stands_is_read_whoever_put_it(
    index: int, cidr: Interface, scope: int, protocol: int, flags: int
) -> None:
    """IPv6 has no IFA_LOCAL; old kernels have no IFA_PROTO."""
    attrs: list[Any] = [["IFA_LOCAL" if cidr.version == 4 else "IFA_ADDRESS", str(cidr.ip)]]
    attrs += [["IFA_PROTO", protocol]] if protocol else []
    fields = {"family": family(cidr.version), "prefixlen": cidr.network.prefixlen, "scope": scope}
    fields["flags"] = flags
    found = message.address_of(answer(ifaddrmsg(), index=index, attrs=attrs, **fields))
    assert found == DeviceAddress(
        index, f"{cidr.ip}/{cidr.network.prefixlen}", scope == 0, protocol, flags & 8 != 0
    )


def test_what_others_put_is_not_ours() -> None:
    ip: Any = ["NDA_DST", "10.0.0.9"]
    others = [PROTOCOL - 1, PROTOCOL + CATEGORIES]
    neighbours = [
        answer(ndmsg(), family=2, ifindex=LO, attrs=[ip, ["NDA_PROTOCOL", number]]) for number in others
    ]
    rules = [answer(fibmsg(), family=2, attrs=[["FRA_PROTOCOL", number]]) for number in others]
    nobodys = [answer(ndmsg(), family=2, ifindex=LO, attrs=[ip]), answer(fibmsg(), family=2)]
    assert [message.neighbour_of(reply) for reply in (*neighbours, nobodys[0])] == [None] * 3
    assert [message.rule_of(reply) for reply in (*rules, nobodys[1])] == [None] * 3


def test_a_default_route_and_a_neighbour_without_address_are_read() -> None:
    by_default = answer(rtmsg(), family=10, table=254, proto=9, attrs=[["RTA_OIF", 7]])
    assert message.route_of(by_default) == KernelRoute("::/0", 7, "", "", 254, 0, 9, 0, 0)
    assert message.any_neighbour_of(answer(ndmsg(), family=7, ifindex=LO)) is None


@given(INTERFACES, st.booleans(), st.sampled_from(["global", "link"]), OURS)
def test_one_of_our_routes_is_an_entry_again(to: Interface, onlink: bool, scope: Any, category: int) -> None:
    scope = scope if to.version == 4 else "global"
    route = Route(dst=str(to.network), dev="lo", onlink=onlink, scope=scope, category=category)
    assert message.host_route(message.route_of(listed(message.put_route(LO, route)))) == route


def test_a_category_without_a_number_and_a_device_that_is_not_there_are_errors() -> None:
    with pytest.raises(ValueError, match="category 16 has no protocol number; 15 is the highest"):
        message.put_route(1, Route(dst="10.0.0.0/8", dev="lo", category=CATEGORIES))
    with pytest.raises(OSError, match="No such device") as refused:
        message.index_of("none-such")
    assert refused.value.errno == errno.ENODEV
