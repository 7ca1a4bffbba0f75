"""Pods of other Nodes and Services that packets do not get to: conditions while it is so, an Event when it begins and ends."""

from __future__ import annotations

import asyncio

from antrea.config.agent import AgentConfig
from antrea.engine import Facts
from antrea.facts.node import PeerNode, ThisNode, Transport
from antrea.features.node_route.agent_part.reachability import MAX_BATCH, SERVED_ROUNDS, Reachability

NODE = ThisNode("n1", ("10.10.0.0/24", "fd00:10::/64"), ("192.0.2.1",), ("198.51.100.1",))
CARD = Transport("eth1", "br-phy", "0a:00:00:00:00:02", 1500, ("198.51.100.1/24",))
KUBERNETES = {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "KUBERNETES_SERVICE_PORT": "443"}
SILENT = "no answer within 2 s, as if a firewall dropped it"


def peer(number: int) -> PeerNode:
    cidrs = (f"10.10.{number}.0/24", f"fd00:10:{number}::/64")
    return PeerNode(f"n{number}", cidrs, (f"192.0.2.{number}",), (f"198.51.100.{number}",))


class World:
    """A Node whose packets get nowhere that is in `silent`; by `device` they leave for other Nodes."""

    def __init__(self, *peers: PeerNode, device: str = "br-phy") -> None:
        self.facts = Facts()
        for row in (NODE, CARD, *peers):
            self.facts.put(row)
        self.silent: set[str] = set()
        self.asked: list[str] = []
        self.events: list[tuple[str, str, bool]] = []
        self.reach = Reachability(
            self.facts, 10351, lambda *event: self.events.append(event), KUBERNETES,
            ask=self._ask, device=lambda _: device,
        )  # fmt: skip

    async def _ask(self, address: str, port: int) -> str:
        assert port == (443 if address == "10.96.0.1" else 10351)
        self.asked.append(address)
        return SILENT if address in self.silent else ""

    def look(self, rounds: int = 1) -> dict[str, str]:
        """What the conditions say then."""
        for _ in range(rounds):
            asyncio.run(self.reach.probe_round())
        return {name: why for name, test in self.reach.conditions.items() if (why := test())}


def test_a_tunnel_that_carries_nothing_is_told_of_until_it_does() -> None:
    world = World(peer(2), peer(3))
    assert (world.look(3), world.events) == ({}, [])
    for gateway in ("10.10.2.1", "fd00:10:2::1"):  # of either family
        world.silent = {gateway}
        why = (
            "Pods of Node n2 cannot be reached:"
            f" gateway {gateway} of Node n2 does not answer through the tunnel to 198.51.100.2: {SILENT}"
        )
        assert (world.look(), world.events) == ({}, [])  # once may be chance
        assert world.look(3) == {"PodsUnreachable": why}
        assert world.events == [("PodsUnreachable", why, True)]
        world.silent.clear()
        assert world.look() == {}
        assert world.events.pop() == (
            "PodsReachable",
            "Pods of all other Nodes that answer are reached",
            False,
        )
        world.events.clear()


def test_a_transport_interface_without_the_route_is_named() -> None:
    for device, way in (("eth0", "leave by eth0"), ("", "have no route")):
        world = World(peer(2), device=device)
        world.silent = {"10.10.2.1", "fd00:10:2::1"}
        assert world.look(2)["PodsUnreachable"].endswith(
            f"{SILENT}; packets to 198.51.100.2 {way}, and not by br-phy with the transport interface eth1:"
            " transportInterface in antrea-agent.conf has to name the one that reaches other Nodes"
        )


def test_without_tunnels_the_network_between_the_nodes_is_named() -> None:
    for card, hop, need in (
        ("198.51.100.1/24", "198.51.100.2", "network between the Nodes has"),
        ("198.51.100.1/32", "10.10.2.1", "routers between the Nodes have"),
    ):
        world = World(peer(2), device="eth0")
        world.facts.put(AgentConfig(traffic_encap_mode="noEncap"))
        world.facts.put(Transport("eth1", "eth1", "0a:00:00:00:00:02", 1500, (card,)))
        world.silent = {"10.10.2.1", "fd00:10:2::1"}
        assert world.look(2)["PodsUnreachable"] == (
            "Pods of Node n2 cannot be reached: gateway 10.10.2.1 of Node n2 does not answer without a tunnel"
            f" (trafficEncapMode noEncap): {SILENT}; packets to {hop} leave by eth0, and not by eth1 with the"
            " transport interface eth1: transportInterface in antrea-agent.conf has to name the one that reaches"
            f" other Nodes; the {need} to carry packets with addresses of Pods, else trafficEncapMode has to be encap"
        )


def test_a_node_that_is_dead_or_gone_is_no_fault_of_its_tunnel() -> None:
    world = World(peer(2))
    world.silent = {"10.10.2.1", "fd00:10:2::1", "192.0.2.2"}
    assert world.look(3) == {}
    world.silent.discard("192.0.2.2")
    assert "PodsUnreachable" in world.look(2)
    world.facts.drop(PeerNode, "n2")
    assert world.look() == {}
    world.facts.put(PeerNode("n3", ("10.10.3.0/32",), ("192.0.2.3",), ("198.51.100.3",)))
    assert world.look(3) == {}


def test_of_many_nodes_all_have_their_turn_and_the_silent_ones_each_time() -> None:
    peers = [peer(number) for number in range(2, 52)]
    world = World(*peers)
    world.silent = {f"10.10.{number}.1" for number in range(2, 9)}
    world.look(-(-len(peers) // MAX_BATCH) + 1)
    assert {f"10.10.{number}.1" for number in range(2, 52)} <= {*world.asked}
    world.asked.clear()
    (why,) = world.look().values()
    assert world.silent <= {*world.asked}
    assert why.startswith("Pods of Node n2, n3, n4, n5, n6 and 2 more cannot be reached: gateway 10.10.2.1")
    gateways = [ip for ip in world.asked if ip.startswith("10.10.")]
    assert len(gateways) == 7 + MAX_BATCH


def test_services_that_nobody_serves_are_told_of_and_asked_for_seldom_once_they_are() -> None:
    world = World()
    world.silent = {"10.96.0.1"}
    why = (
        f"Services are not served on this Node: 10.96.0.1:443 (Service default/kubernetes): {SILENT};"
        " is kube-proxy running?"
    )
    assert world.look(3) == {"ServicesUnserved": why}
    assert world.events == [("ServicesUnserved", why, True)]
    world.silent.clear()
    assert world.look() == {}
    assert world.events[1:] == [("ServicesServed", "Services are served", False)]
    world.asked.clear()
    world.look(SERVED_ROUNDS)
    assert world.asked == ["10.96.0.1"]
