"""What a router is sent and what is taken from it: filters of a peer, routes that are read, and those that are not installed."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from antrea.apis.crd.bgp import BgpPeer
from antrea.apis.crd.pool import ExternalIPPool
from antrea.engine import Engine, Facts
from antrea.facts.member import AgentNode
from antrea.facts.node import LocalAddress
from antrea.features.bgp_policy.agent import IMPORTS
from antrea.features.bgp_policy.imported import ImportedRoute, imported_routes, why_not_installed
from antrea.features.bgp_policy.network import (
    PoolNetworks,
    imports_of,
    missing_pools,
    parsed_networks,
    pool_networks,
    sent_networks,
)
from antrea.features.bgp_policy.report import settings_without_effect
from antrea.features.bgp_policy.session import IgnoredSetting
from antrea.host.bgp import BgpImports
from antrea.host.route import Route

ROUTER, ROUTER6 = "192.0.2.9", "2001:db8::9"


def peer(**fields: Any) -> BgpPeer:
    return msgspec.convert({"address": ROUTER, "asn": 65001, **fields}, BgpPeer)


def test_networks_are_parsed_and_what_is_none_is_named_in_quotes() -> None:
    assert parsed_networks(["203.0.113.7/24", "2001:db8::/32", "203.0.113.0/24"]) == (
        "2001:db8::/32",
        "203.0.113.0/24",
    )
    for text in ("203.0.113.7", "203.0.113.0/33", "x\nexit", "1.2.3.4/255.0.0.0", "fe80::1%eth0/64"):
        with pytest.raises(ValueError, match="is not a network such as") as error:
            parsed_networks([text])
        assert "\n" not in str(error.value)
    with pytest.raises(ValueError, match="is all addresses"):
        parsed_networks(["0.0.0.0/0"])


def test_a_peer_is_sent_networks_of_its_family_and_of_its_pools() -> None:
    facts = Facts()
    assert sent_networks(facts, peer(), ROUTER) is None
    both = peer(advertisedNetworks=["203.0.113.0/25", "2001:db8:1::/64"], externalIPPools=["a", "b"])
    assert sent_networks(facts, both, ROUTER) == ("203.0.113.0/25",)
    assert missing_pools(facts, both) == ["a", "b"]
    ranges = [
        {"start": "198.51.100.1", "end": "198.51.100.2"},
        {"cidr": "2001:db8:2::/64"},
        {"cidr": "not one"},
    ]
    stored = {"metadata": {"name": "a"}, "spec": {"ipRanges": ranges, "nodeSelector": {}}}
    row = pool_networks(msgspec.convert(stored, ExternalIPPool))
    assert row == PoolNetworks("a", ("198.51.100.1/32", "198.51.100.2/32", "2001:db8:2::/64"))
    facts.put(row)
    assert missing_pools(facts, both) == ["b"]
    assert sent_networks(facts, both, ROUTER) == ("198.51.100.1/32", "198.51.100.2/32", "203.0.113.0/25")
    assert sent_networks(facts, both, ROUTER6) == ("2001:db8:1::/64", "2001:db8:2::/64")
    # of a pool that does not exist nothing is sent, and not all
    assert sent_networks(facts, peer(externalIPPools=["b"]), ROUTER) == ()


def test_routes_are_taken_of_the_family_of_the_router_alone() -> None:
    assert imports_of(None, ROUTER) is None
    wanted = peer(importedRoutes={"networks": ["198.51.100.0/24"], "maximumRoutes": 7}).imported_routes
    assert imports_of(wanted, ROUTER) == BgpImports(("198.51.100.0/24",), default_route=False, maximum=7)
    assert imports_of(wanted, ROUTER6) is None
    default = peer(importedRoutes={"defaultRoute": True}).imported_routes
    assert imports_of(default, ROUTER6) == BgpImports((), default_route=True)


def path(*hops: Any, best: bool = True) -> dict[str, Any]:
    return {"valid": True, "bestpath": best, "nexthops": [*hops]}


@pytest.mark.parametrize(
    ("answer", "routes"),
    [
        (None, {}),
        ({"routes": []}, {}),
        ({"routes": {"198.51.100.0/24": [path({"ip": ROUTER})]}}, {"198.51.100.0/24": ROUTER}),
        ({"routes": {"198.51.100.0/24": [path({"ip": ROUTER}, best=False)]}}, {}),
        ({"routes": {"x": [path({"ip": ROUTER})], "::/0": [path({"ip": "fe80::1"}, {"ip": ROUTER6})]}}, {"::/0": ROUTER6}),
        ({"routes": {"::/0": [path({"ip": "0.0.0.0"}, {"ip": "x"}, 7)], "10.0.0.0/8": 5}}, {}),
    ],
)  # fmt: skip
def test_routes_of_a_router_are_read_and_what_is_of_another_form_is_left_out(
    answer: Any, routes: dict[str, str]
) -> None:
    assert imported_routes(answer) == routes


def test_a_route_towards_nodes_and_pods_is_not_installed_and_named() -> None:
    facts = Facts()
    engine = Engine(facts, IMPORTS.units)
    facts.put(LocalAddress("192.0.2.1", "eth0", 24))
    facts.put(AgentNode("n2", ("192.0.2.2",), ("192.0.2.2",), pod_cidrs=("10.10.1.0/24",)))
    for network in ("198.51.100.0/24", "192.0.2.128/25", "10.10.1.64/26", "10.10.0.0/16", "0.0.0.0/0"):
        facts.put(ImportedRoute(network, ROUTER))
    installed = {entry.dst for entry in engine.plan().put if isinstance(entry, Route)}
    assert installed == {"198.51.100.0/24", "10.10.0.0/16", "0.0.0.0/0"}
    assert why_not_installed(facts, ImportedRoute("10.10.1.64/26", ROUTER)) == (
        "10.10.1.64/26 is within 10.10.1.0/24, the Pods of Node n2"
    )
    facts.put(IgnoredSetting("192.0.2.9-65001", "ExternalIPPool 'b' does not exist"))
    assert settings_without_effect(facts) == (
        "peer 192.0.2.9-65001: ExternalIPPool 'b' does not exist;"
        " route 10.10.1.64/26 is within 10.10.1.0/24, the Pods of Node n2;"
        " route 192.0.2.128/25 is within 192.0.2.0/24, a network of this Node"
    )
    for number in range(9):
        facts.put(IgnoredSetting("x", str(number)))
    assert settings_without_effect(facts).endswith("; 7 more")
