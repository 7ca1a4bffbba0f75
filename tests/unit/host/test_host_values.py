"""Host entries: what makes two the same thing, and which of them wait for flows."""

from __future__ import annotations

import pytest

from antrea.host.address import Address
from antrea.host.link import Dummy, Link
from antrea.host.nft import NftChain, NftElement, NftRelay, NftRule, NftSet, NftShield, NftSilence, NftTag
from antrea.host.route import CATEGORIES, PROTOCOL, Neighbour, ProxyNeighbour, Route, RoutingRule
from antrea.host.sysctl import Sysctl
from antrea.rank import Rank

ENTRIES = [
    (Link("antrea-gw0", 1450), "antrea-gw0"),
    (Address("antrea-gw0", "10.244.1.1/24"), ("antrea-gw0", "10.244.1.1/24")),
    (Route(dst="10.244.2.0/24", dev="antrea-gw0", via="10.244.2.1", onlink=True), ("10.244.2.0/24", 254, 0)),
    (RoutingRule(family=4, mark=3, mask=0xFF, table=101, priority=300), (4, 300, 3, 0xFF)),
    (Neighbour(dev="antrea-gw0", ip="fd00::1", mac="aa:bb:cc:dd:ee:ff"), ("antrea-gw0", "fd00::1")),
    (Sysctl("net/ipv4/ip_forward", "1"), "net/ipv4/ip_forward"),
    (NftSet(name="pod-ip", type="ipv4_addr", flags=("interval",)), "pod-ip"),
    (NftElement(set="egress-snat", value="0x00000001", data="10.1.1.1"), ("egress-snat", "0x00000001")),
    (NftChain(name="postrouting", hook="type nat hook postrouting priority srcnat;"), "postrouting"),
    (NftRule(chain="postrouting", name="masquerade", text="masquerade"), ("postrouting", "masquerade")),
    (NftShield("web-0-2f2276"), "web-0-2f2276"),
    (NftTag(dev="antrea-gw0", bit=0x80000000, mac="02:e9:80:00:00:00"), "antrea-gw0"),
    (NftRelay(ip="192.0.2.9", via="10.244.1.1", dev="antrea-gw0"), "192.0.2.9"),
    (NftSilence("192.0.2.9"), "192.0.2.9"),
    (Dummy("antrea-egress0", 4), "antrea-egress0"),
    (ProxyNeighbour(dev="eth0", ip="fd00::1"), ("eth0", "fd00::1")),
]


@pytest.mark.parametrize(("entry", "key"), ENTRIES, ids=lambda value: type(value).__name__)
def test_an_entry_has_a_key_a_rank_and_a_category_and_can_be_kept_in_a_set(entry: Link, key: object) -> None:
    assert entry.key == key
    assert entry.rank in {Rank.DIVERTS, Rank.RECEIVES, Rank.SENDS}
    assert 0 <= entry.category < CATEGORIES
    assert {entry, entry} == {entry}


def test_another_next_hop_is_the_same_route_changed_and_another_metric_is_another_route() -> None:
    route = Route(dst="10.244.2.0/24", dev="eth0", via="192.168.0.2")
    assert Route(dst="10.244.2.0/24", dev="eth0", via="192.168.0.3").key == route.key
    assert Route(dst="10.244.2.0/24", dev="eth0", via="192.168.0.2", metric=10).key != route.key


def test_routes_to_flows_come_after_flows_unless_their_purpose_says_otherwise() -> None:
    assert Route(dst="10.96.0.0/12", dev="antrea-gw0").rank == Rank.SENDS
    assert Route(dst="0.0.0.0/0", dev="antrea-ext.5", table=101, rank=Rank.RECEIVES).rank == Rank.RECEIVES


def test_our_protocol_numbers_are_a_block_that_nothing_else_has() -> None:
    # /etc/iproute2/rt_protos of iproute2 6.1
    taken = {*range(17), 18, 42, 84, 99, 186, 187, 188, 189, 192}
    assert not taken & set(range(PROTOCOL, PROTOCOL + CATEGORIES))


def test_a_shield_is_a_chain_named_after_its_interface() -> None:
    assert NftShield("web-0-2f2276").chain == "shield-web-0-2f2276"
