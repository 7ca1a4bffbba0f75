"""Which port a request gets, where nothing is really held: order, memory, ranges, and what others have."""

from __future__ import annotations

import errno

from antrea.engine import Facts
from antrea.features.node_port_local.agent_part.allocator import Place, PortAllocator, remembered
from antrea.features.node_port_local.row import HeldPort, PortRequest, PortsDecided


class Ports:
    """Of a Node: `others` have some, `held` are ours."""

    def __init__(self) -> None:
        self.others: set[int] = set()
        self.held: set[Place] = set()

    def hold(self, place: Place) -> _Holder:
        if place.port in self.others:
            raise OSError(errno.EADDRINUSE, "Address already in use")
        assert place not in self.held
        self.held.add(place)
        return _Holder(self, place)


class _Holder:
    def __init__(self, ports: Ports, place: Place) -> None:
        self._ports, self._place = ports, place

    def close(self) -> None:
        self._ports.held.remove(self._place)


def request(pod: str, port: int = 80, protocol: str = "tcp", *, ipv6: bool = False) -> PortRequest:
    return PortRequest(
        f"shop/{pod}", f"u-{pod}", f"fd00::{pod}" if ipv6 else f"10.0.0.{pod}", port, protocol, ipv6
    )


def given(facts: Facts) -> dict[str, int]:
    return {row.request.removeprefix("shop/"): row.node_port for row in facts.all(HeldPort)}


def test_ports_are_given_in_order_and_after_the_last_one() -> None:
    facts, ports = Facts(), Ports()
    allocator = PortAllocator(facts, range(61000, 61003), ports.hold)
    first, second = request("1"), request("2")
    for row in (first, second, request("1", 53, "udp"), request("1", ipv6=True)):
        facts.put(row)
    allocator.settle()
    assert given(facts) == {
        "1:53/udp/IPv4": 61000, "1:80/tcp/IPv4": 61001, "1:80/tcp/IPv6": 61000, "2:80/tcp/IPv4": 61002,
    }  # fmt: skip
    assert facts.get(PortsDecided) is not None
    facts.drop(PortRequest, second.key)
    facts.drop(PortRequest, first.key)
    allocator.settle()
    assert ports.held == {Place(61000, "udp", False), Place(61000, "tcp", True)}
    facts.put(request("3"))
    allocator.settle()
    assert given(facts)["3:80/tcp/IPv4"] == 61000  # a protocol has its own ports
    assert allocator.counts == {("tcp", "IPv4"): 1, ("udp", "IPv4"): 1, ("tcp", "IPv6"): 1}
    allocator.close()
    assert ports.held == set()


def test_ports_of_other_programs_are_left_and_tried_again_when_none_is_free() -> None:
    facts, ports = Facts(), Ports()
    ports.others = {61000, 61001, 61002}
    allocator = PortAllocator(facts, range(61000, 61003), ports.hold)
    for row in (request("1"), request("2")):
        facts.put(row)
    allocator.settle()
    assert given(facts) == {"1:80/tcp/IPv4": 0, "2:80/tcp/IPv4": 0}
    assert allocator.lacking == ["shop/1:80/tcp/IPv4", "shop/2:80/tcp/IPv4"]
    ports.others.remove(61001)
    allocator.settle()
    assert given(facts) == {"1:80/tcp/IPv4": 61001, "2:80/tcp/IPv4": 0}
    held = facts.get(HeldPort, "shop/2:80/tcp/IPv4")
    assert held is not None
    assert held.message.endswith("the last one is taken: Address already in use")
    facts.drop(PortRequest, "shop/1:80/tcp/IPv4")
    allocator.settle()
    assert given(facts) == {"2:80/tcp/IPv4": 61001}


def test_what_nftables_lead_to_is_kept_and_a_change_of_address_changes_no_port() -> None:
    facts, ports = Facts(), Ports()
    allocator = PortAllocator(facts, range(61000, 61010), ports.hold)
    known = remembered([("tcp . 61007", "10.0.0.1 . 80"), ("udp . 61003", "fd00::1 . 80")])
    assert known == {
        ("tcp", "10.0.0.1", 80): Place(61007, "tcp", False), ("udp", "fd00::1", 80): Place(61003, "udp", True),
    }  # fmt: skip
    allocator.remember(known)
    for row in (request("1"), request("1", 80, "udp", ipv6=True)):
        facts.put(row)
    allocator.settle()
    assert given(facts) == {"1:80/tcp/IPv4": 61007, "1:80/udp/IPv6": 61003}
    facts.put(PortRequest("shop/1", "u-1", "10.0.0.99", 80, "tcp", ipv6=False))
    allocator.settle()
    assert given(facts)["1:80/tcp/IPv4"] == 61007
