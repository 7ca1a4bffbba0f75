"""Host entries on a real kernel: applied twice, refused, dropped twice, adopted and swept after a restart."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from antrea.errors import Refused
from antrea.host.address import Address
from antrea.host.link import Link
from antrea.host.route import Neighbour, ProxyNeighbour, Route, RoutingRule
from antrea.host.sysctl import Sysctl
from antrea.outside.netlink import transport_interface
from antrea.outside.netlink.sink import NetlinkSink

if TYPE_CHECKING:
    from conftest import Namespaces

EGRESS = 4
PEER_MAC = "aa:bb:cc:dd:ee:ff"
ENTRIES: tuple[Any, ...] = (
    Route(dst="10.244.2.0/24", dev="gw0", via="10.244.2.1", onlink=True, src="10.244.1.1"),
    Route(dst="fd00:2::/64", dev="gw0", via="fd00:2::1", onlink=True),
    Route(dst="169.254.0.253/32", dev="gw0", scope="link", category=3),
    Route(dst="0.0.0.0/0", dev="gw0", via="10.244.1.9", table=101, category=EGRESS),
    Route(dst="::/0", dev="gw0", via="fd00:1::9", table=101, category=EGRESS),
    RoutingRule(family=4, mark=3, mask=0xFF, table=101, priority=300, category=EGRESS),
    RoutingRule(family=6, mark=3, mask=0xFF, table=101, priority=300, category=EGRESS),
    Neighbour(dev="gw0", ip="169.254.0.253", mac=PEER_MAC, category=3),
    Neighbour(dev="gw0", ip="fd00:2::1", mac=PEER_MAC),
    Address("gw0", "10.244.1.1/24"),
    Address("gw0", "FD00:1:0::1/64"),
    Address("gw0", "10.9.9.9/32", EGRESS),
    Sysctl("net/ipv4/conf/gw0/arp_announce", "1"),
    Link("gw0", 1400, mac="0a:00:00:00:00:01"),
)


@pytest.fixture
def node(netns: Namespaces) -> Namespaces:
    """A Node with an interface gw0 whose other end answers in another namespace."""
    other = netns.make()
    netns.sh(f"ip link add gw0 type veth peer name eth0 netns {other}")
    netns.sh(
        "ip link set eth0 up; ip addr add 10.244.1.9/24 dev eth0; ip addr add 10.244.2.1/32 dev eth0", other
    )
    netns.sh("ip route add default via 10.244.1.1 dev eth0", other)
    return netns


def standing(netns: Namespaces) -> dict[str, list[str]]:
    """What a person reads, per kind, without what the kernel adds by itself."""

    def lines(command: str) -> list[str]:
        return sorted(line.strip() for line in netns.sh(command).splitlines())

    protocols = range(0x40, 0x50)
    return {
        "routes": sorted(
            f"{protocol - 0x40}: {line}"
            for protocol in protocols
            for family in "46"
            for line in lines(f"ip -{family} route show table all proto {protocol}")
        ),
        "rules": [line for family in "46" for line in lines(f"ip -{family} rule") if "0x3" in line],
        "neighbours": lines("ip neigh show nud permanent"),
        "addresses": [
            f"{row['local']}/{row['prefixlen']}"
            for link in json.loads(netns.sh("ip -j addr show dev gw0"))
            for row in link["addr_info"]
            if row["scope"] == "global"
        ],
    }


WANTED = {
    "routes": [
        "0: 10.244.2.0/24 via 10.244.2.1 dev gw0 src 10.244.1.1 onlink",
        "0: fd00:2::/64 via fd00:2::1 dev gw0 metric 1024 onlink pref medium",
        "3: 169.254.0.253 dev gw0 scope link",
        "4: default via 10.244.1.9 dev gw0 table 101",
        "4: default via fd00:1::9 dev gw0 table 101 metric 1024 pref medium",
    ],
    "rules": ["300:\tfrom all fwmark 0x3/0xff lookup 101 proto 68"] * 2,
    "neighbours": [
        "169.254.0.253 dev gw0 lladdr aa:bb:cc:dd:ee:ff PERMANENT proto 67",
        "fd00:2::1 dev gw0 lladdr aa:bb:cc:dd:ee:ff PERMANENT proto 64",
    ],
    "addresses": ["10.244.1.1/24", "10.9.9.9/32", "fd00:1::1/64"],
}


async def test_a_batch_in_any_order_is_applied_and_applying_it_again_changes_nothing(
    node: Namespaces,
) -> None:
    sink = NetlinkSink()
    await sink.apply(ENTRIES, ())
    first = standing(node)
    await sink.apply(ENTRIES, ())
    assert standing(node) == first == WANTED
    link = json.loads(node.sh("ip -j link show gw0"))[0]
    assert (link["mtu"], link["address"], "UP" in link["flags"]) == (1400, "0a:00:00:00:00:01", True)
    assert node.sh("cat /proc/sys/net/ipv4/conf/gw0/arp_announce") == "1\n"


async def test_a_sweep_takes_routes_to_networks_of_pods_that_another_agent_left(node: Namespaces) -> None:
    """And no others of a stranger, nor those of ours that stand for it."""
    node.sh("ip link set gw0 up")
    left = ("99.99.99.0/24 via 99.99.99.1", "fa80::/112 via fa80::1", "10.244.2.0/24 via 10.244.2.1")
    kept = ("192.0.2.0/24 via 10.244.1.9", "10.77.0.0/24 via 10.244.1.8")
    for route in (*left, *kept):
        node.sh(f"ip route add {route} dev gw0 onlink")
    sink = NetlinkSink("gw0")
    await sink.resync(ENTRIES)
    for route in left[:2]:
        assert route in node.sh("ip route show dev gw0; ip -6 route show dev gw0")
    await sink.sweep(0)
    shown = node.sh("ip route show dev gw0; ip -6 route show dev gw0")
    assert [route for route in (*left, *kept) if f"{route} " in shown] == [left[2], *kept]
    assert "10.244.2.0/24 via 10.244.2.1 proto 64" in shown


async def test_packets_take_the_onlink_route_through_the_gateway(node: Namespaces) -> None:
    await NetlinkSink().apply(ENTRIES, ())
    node.sh("ping -c1 -W10 10.244.2.1")
    node.sh("ping -c1 -W10 -I 10.9.9.9 10.244.2.1")


async def test_a_put_changes_what_stands_under_its_key(node: Namespaces) -> None:
    sink = NetlinkSink()
    await sink.apply(ENTRIES, ())
    await sink.apply(
        (
            Route(dst="10.244.2.0/24", dev="gw0", via="10.244.1.9"),
            RoutingRule(family=4, mark=3, mask=0xFF, table=102, priority=300, category=EGRESS),
            Neighbour(dev="gw0", ip="fd00:2::1", mac="aa:bb:cc:dd:ee:00"),
        ),
        (),
    )
    now = standing(node)
    assert now["routes"] == ["0: 10.244.2.0/24 via 10.244.1.9 dev gw0", *WANTED["routes"][1:]]
    assert now["rules"] == [WANTED["rules"][0].replace("101", "102"), WANTED["rules"][1]]
    assert now["neighbours"] == [WANTED["neighbours"][0], WANTED["neighbours"][1].replace("ee:ff", "ee:00")]


async def test_a_drop_takes_only_ours_and_dropping_again_is_fine(node: Namespaces) -> None:
    sink = NetlinkSink()
    await sink.apply(ENTRIES, ())
    node.sh("ip route add 10.77.0.0/24 dev gw0; ip neigh add 10.244.1.77 lladdr 02:00:00:00:00:01 dev gw0")
    stranger = Route(dst="10.77.0.0/24", dev="gw0")
    kept = Address(
        "gw0", "10.244.1.1/24"
    )  # with the last address of a family the kernel forgets its neighbours
    for _ in range(2):
        await sink.apply((), (*(entry for entry in ENTRIES if entry != kept), stranger))
    assert standing(node) == {
        "routes": [],
        "rules": [],
        "neighbours": ["10.244.1.77 dev gw0 lladdr 02:00:00:00:00:01 PERMANENT"],
        "addresses": ["10.244.1.1/24"],
    }
    assert "10.77.0.0/24 dev gw0" in node.sh("ip route")
    node.sh("ip link del gw0")
    await sink.apply((), ENTRIES)


async def test_a_link_that_is_to_send_whole_checksums_leaves_none_to_a_card(node: Namespaces) -> None:
    assert "tx-checksumming: on" in node.sh("ethtool -k gw0")
    await NetlinkSink().apply((Link("gw0", 1400, whole_checksums=True),), ())
    assert "tx-checksumming: off" in node.sh("ethtool -k gw0")


async def test_the_kernels_no_names_the_entries_and_spares_the_others(node: Namespaces) -> None:
    bad = (
        Route(dst="10.244.3.0/24", dev="gw0", via="192.168.7.7"),
        Link("nowhere", 1400),
        Sysctl("net/ipv4/no_such_thing", "1"),
        Address("nowhere", "10.1.1.1/32"),
        Neighbour(dev="nowhere", ip="10.1.1.1", mac=PEER_MAC),
    )
    with pytest.raises(Refused) as refusal:
        await NetlinkSink().apply((*bad, *ENTRIES), ())
    assert set(refusal.value.entries) == set(bad)
    assert str(refusal.value) == "Link nowhere: No such device"
    assert standing(node) == WANTED
    with pytest.raises(Refused, match=r"^Route \('10\.244\.3\.0/24', 254, 0\): Network is unreachable$"):
        await NetlinkSink().apply(bad[:1], ())


async def test_a_restart_adopts_what_stands_and_sweeps_only_its_category_of_ours(node: Namespaces) -> None:
    await NetlinkSink().apply(ENTRIES, ())
    node.sh("ip route add 10.77.0.0/24 dev gw0")
    kept = ENTRIES[
        -5:
    ]  # Link, Sysctl and the addresses, one of them written another way than the kernel does
    sink = NetlinkSink()
    await sink.resync(kept)
    assert standing(node) == WANTED
    late = ENTRIES[3]
    await sink.apply((late,), ())
    await sink.sweep(EGRESS)
    assert standing(node) == WANTED | {
        "routes": [*WANTED["routes"][:3], "4: default via 10.244.1.9 dev gw0 table 101"],
        "rules": [],
    }
    await sink.sweep(0)
    await sink.sweep(3)
    assert standing(node) == {
        "routes": ["4: default via 10.244.1.9 dev gw0 table 101"],
        "rules": [],
        "neighbours": [],
        "addresses": WANTED["addresses"],
    }
    assert "10.77.0.0/24 dev gw0" in node.sh("ip route")


async def test_neighbours_that_the_node_answers_for_are_adopted_by_the_next_start_and_swept(
    node: Namespaces,
) -> None:
    kept = ProxyNeighbour(dev="gw0", ip="fd00:1::50", category=EGRESS)
    left = ProxyNeighbour(dev="gw0", ip="FD00:1::51", category=EGRESS)

    def shown() -> list[str]:
        return sorted(line.strip() for line in node.sh("ip -6 neigh show proxy").splitlines())

    await NetlinkSink().apply((kept, left), ())
    sink = NetlinkSink()
    await sink.resync([kept])
    assert [line.split()[0] for line in shown()] == ["fd00:1::50", "fd00:1::51"]
    await sink.sweep(EGRESS)
    assert [line.split()[0] for line in shown()] == ["fd00:1::50"]
    await sink.apply((), (kept, left))
    assert shown() == []


async def test_a_card_gives_up_addresses_that_the_kernel_drops_together(netns: Namespaces) -> None:
    """The first address of a subnet takes those after it along."""
    netns.sh("ip link add eth0 type veth peer name far0; ip link set eth0 up")
    netns.sh("sysctl -qw net.ipv4.conf.eth0.promote_secondaries=0 net.ipv4.conf.all.promote_secondaries=0")
    for address in ("192.0.2.1/24", "192.0.2.77/24", "198.51.100.7/24", "fd00:2::1/64"):
        netns.sh(f"ip addr add {address} dev eth0")
    await transport_interface.flush_addresses("eth0")
    assert netns.sh("ip -o addr show dev eth0 scope global") == ""
