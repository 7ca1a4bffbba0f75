"""Policies on Nodes: Services, and ports by name of receivers, as matches of nftables."""

from __future__ import annotations

import msgspec
from policy_world import addresses, block, member, peer, port, rule
from test_features_node_policy import NODES, engine_of, entries, matches, only

from antrea.apis import controlplane as cp
from antrea.facts.service import Service
from antrea.features.node_policy.match import port_set
from antrea.host.nft import NftElement, NftRule, NftSet

SHOP = Service(
    "a", "shop", ("10.96.0.10", "fd00:96::10", "203.0.113.5"), (("TCP", 443), ("TCP", 80), ("UDP", 80)),
    external_ips=("203.0.113.5",),
)  # fmt: skip
TO_SHOP = cp.NetworkPolicyPeer(to_services=(cp.ServiceReference(namespace="a", name="shop"),))


def test_services_are_matched_by_where_a_connection_was_opened_to() -> None:
    """Before any translation; a Service that is not there is nobody."""
    drop = rule("Out", TO_SHOP, action="Drop")
    assert matches(drop) == []
    assert matches(drop, SHOP) == [
        f"ct original {there} meta l4proto {ports} drop"
        for there in ("ip daddr { 10.96.0.10, 203.0.113.5 }", "ip6 daddr fd00:96::10")
        for ports in ("tcp ct original proto-dst { 80, 443 }", "udp ct original proto-dst 80")
    ]


def test_a_service_that_changes_changes_the_lines_of_its_rules() -> None:
    facts, engine = engine_of(*NODES, only(rule("Out", TO_SHOP, action="Drop")), SHOP)
    facts.put(msgspec.structs.replace(SHOP, ips=("10.96.0.11",), external_ips=(), ports=(("TCP", 80),)))
    plan = engine.plan()
    texts = [one.text for one in plan.put if isinstance(one, NftRule)]
    assert texts == [
        'ct original ip daddr 10.96.0.11 meta l4proto tcp ct original proto-dst 80 counter name "np-p-0" drop'
    ]
    facts.drop(Service, SHOP.key)
    assert [one for one in engine.plan().put if isinstance(one, NftRule)] == []
    assert not [
        one for one in engine.standing().values() if isinstance(one, NftRule) and "np-p-0" in one.text
    ]


def test_ports_by_name_have_the_numbers_that_receivers_give_them() -> None:
    """Beside others by number; a Pod without such a port is not met, nor are networks."""
    http = port("http")
    everybody = peer("web", blocks=(block("10.0.0.0/8"),))
    udp = cp.NamedPort(name="http", port=53, protocol="UDP")
    both = member("a", "10.10.0.7", http=8080)
    both = msgspec.structs.replace(both, ports=(udp, *both.ports))
    rows = addresses("web", both, member("b", "10.10.0.8"))
    four, six = (port_set("web", "http", "TCP", ipv6=ipv6) for ipv6 in (False, True))
    assert matches(rule("Out", everybody, http, port(22), action="Drop"), *rows) == [
        f"ip daddr . tcp dport @{four} drop",
        f"ip6 daddr . tcp dport @{six} drop",
        *(
            f"{there} tcp dport 22 drop"
            for there in ("ip daddr @np-web-4", "ip daddr 10.0.0.0/8", "ip6 daddr @np-web-6")
        ),
    ]
    found = entries(*NODES, only(rule("Out", everybody, http, action="Drop")), *rows)
    own = {one for one in found if isinstance(one, NftSet | NftElement) and "np-port" in str(one)}
    assert own == {
        NftSet(name=four, type="ipv4_addr . inet_service", category=2),
        NftSet(name=six, type="ipv6_addr . inet_service", category=2),
        NftElement(set=four, value="10.10.0.7 . 8080", category=2),
    }
    assert matches(rule("In", everybody, http, action="Drop"), *rows) == []
