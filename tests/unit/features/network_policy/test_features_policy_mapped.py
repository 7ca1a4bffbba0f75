"""Networks of IPv4 that are written as IPv6: told, matched and explained as those of IPv4."""

from __future__ import annotations

from ipaddress import ip_address, ip_network

import pytest
from policy_world import NODE, applied, engine_of, interface, member, named, peer, policy, rule

from antrea.apis import controlplane as cp
from antrea.apis.networking import IPBlock
from antrea.explain.address import in_block
from antrea.features.grouping.member import packed
from antrea.features.network_policy.agent.match import network, networks
from antrea.features.network_policy.controller.peer import block


@pytest.mark.parametrize(
    ("cidr", "holes", "left"),
    [
        ("::ffff:10.0.0.0/104", (), ["10.0.0.0/8"]),
        ("::ffff:a00:0/104", (), ["10.0.0.0/8"]),
        ("::ffff:10.1.2.3/128", (), ["10.1.2.3/32"]),
        ("::ffff:0:0/96", (), ["0.0.0.0/0"]),
        ("::ffff:0:0/95", (), ["::fffe:0:0/95"]),
        ("::ffff:10.0.0.0/8", (), ["::/8"]),
        ("10.0.0.0/30", ("::ffff:10.0.0.0/127",), ["10.0.0.2/31"]),
        ("::ffff:10.0.0.0/126", ("10.0.0.2/31",), ["10.0.0.0/31"]),
        ("10.0.0.0/8", (), ["10.0.0.0/8"]),
        ("::/0", (), ["::/0"]),
    ],
)
def test_a_network_of_ipv4_in_ipv6_is_one_of_ipv4(cidr: str, holes: tuple[str, ...], left: list[str]) -> None:
    found = IPBlock(cidr=cidr, except_=holes)
    assert [str(one) for one in networks(block(found))] == left
    for address in ("10.0.0.1", "10.0.0.3", "10.1.2.3", "192.0.2.1", "fd00::1", "::1"):
        within = any(ip_address(address) in ip_network(text) for text in left)
        assert in_block(address, found) == within, address


@pytest.mark.parametrize(
    ("length", "text"), [(104, "10.0.0.0/8"), (128, "10.0.0.0/32"), (90, "::ffc0:0:0/90")]
)
def test_what_a_controller_of_upstream_tells_of_such_a_network_is_understood(length: int, text: str) -> None:
    assert str(network(cp.IPNet(ip=packed("10.0.0.0"), prefix_length=length))) == text


def test_a_policy_with_such_a_block_stands() -> None:
    wanted = cp.IPBlock(cidr=cp.IPNet(ip=packed("10.0.0.0"), prefix_length=104))
    stated = policy("p", "g", rule("In", peer(blocks=[wanted])))
    _, engine = engine_of(NODE, interface("web", 7), *applied("g", member("web")), stated)
    engine.plan()
    assert not engine.errors.counts
    found = named(engine.standing().values())
    assert "table=IngressRule,priority=200,ip,nw_src=10.0.0.0/8 actions=conjunction(2,1/2)" in found
