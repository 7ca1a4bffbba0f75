"""Which Nodes watch each other by BFD, and by which ports."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st
from wide_pool import wide_pool

from antrea.config.agent import AgentConfig
from antrea.engine import Engine, Facts
from antrea.facts.member import AgentNode, BfdPartner, PoolSelector
from antrea.facts.node import ThisNode
from antrea.features.egress.agent.bfd import NEAR, UNITS, neighbours, vni
from antrea.host.ovs_port import Port
from antrea.openflow.cookie import Category

if TYPE_CHECKING:
    from collections.abc import Mapping

GATEWAYS = wide_pool("gateways", (("gateway", "=", ("yes",)),))


def node(name: str, *addresses: str, gateway: bool = True) -> AgentNode:
    return AgentNode(name, addresses, addresses, (("gateway", "yes"),) if gateway else ())


class World:
    """The units of one Node, node-0, of a cluster."""

    def __init__(self, **config: object) -> None:
        self.facts = Facts()
        self.engine = Engine(self.facts, UNITS)
        self.facts.put(AgentConfig(**config))  # type: ignore[arg-type]
        self.facts.put(ThisNode("node-0", transport_ips=("192.0.2.1", "2001:db8::1")))
        self.facts.put(GATEWAYS)
        self.facts.put(node("node-0", "192.0.2.1", "2001:db8::1"))

    def ports(self) -> dict[str, Port]:
        """By the Node at the other end."""
        self.engine.plan()
        found = [entry for entry in self.engine.standing().values() if isinstance(entry, Port)]
        return {dict(port.external_ids)["bfd-node"]: port for port in found}

    def multipliers(self) -> Mapping[str, int]:
        self.engine.plan()
        return {row.node: row.multiplier for row in self.facts.all(BfdPartner)}


def test_a_pair_of_candidates_has_a_tunnel_with_a_vni_of_its_own_that_nothing_is_flooded_to() -> None:
    world = World(tunnel_port=6999)
    world.facts.put(node("node-1", "192.0.2.2", "2001:db8::2"))
    port = world.ports()["node-1"]
    assert port == Port(
        name=port.name,
        type="geneve",
        options=(("remote_ip", "192.0.2.2"), ("key", str(vni("node-1", "node-0"))), ("dst_port", "6999")),
        external_ids=(("antrea-type", "bfd"), ("bfd-node", "node-1")),
        no_flood=True,
        category=int(Category.EGRESS),
        bfd=(("enable", "true"), ("min_rx", "60"), ("min_tx", "60"), ("mult", "5")),
    )
    assert len(port.name) <= 15


def test_without_tunnels_nobody_watches() -> None:
    world = World(traffic_encap_mode="noEncap")
    world.facts.put(node("node-1", "192.0.2.2"))
    assert world.ports() == {}


def test_only_nodes_of_a_pool_watch_and_are_watched() -> None:
    world = World()
    world.facts.put(node("node-1", "192.0.2.2"))
    world.facts.put(node("node-2", "192.0.2.3", gateway=False))
    world.facts.put(node("node-3", "2001:db8::4"))  # no address of the family that tunnels have
    assert world.ports().keys() == {"node-1"}
    world.facts.put(node("node-0", "192.0.2.1", gateway=False))
    assert not world.ports()
    world.facts.put(node("node-0", "192.0.2.1"))
    assert world.ports().keys() == {"node-1"}
    world.facts.drop(PoolSelector, GATEWAYS.key)
    assert not world.ports()


def test_where_there_is_no_majority_to_ask_a_session_is_slower_to_go_down() -> None:
    world = World()
    world.facts.put(node("node-1", "192.0.2.2"))
    assert world.multipliers() == {"node-1": 5}
    world.facts.put(node("node-2", "192.0.2.3"))
    assert world.multipliers() == {"node-1": 3, "node-2": 3}


def test_a_large_pool_makes_no_mesh() -> None:
    world = World()
    for number in range(1, 101):
        world.facts.put(node(f"node-{number}", f"192.0.2.{number + 1}"))
    assert len(world.ports()) == 2 * NEAR


@given(st.lists(st.text("abc", min_size=1), min_size=1, max_size=30, unique=True))
def test_who_is_watched_watches_back_and_everybody_has_as_many_as_there_can_be(ring: list[str]) -> None:
    seen = {own: {ring[index] for index in neighbours(ring, own)} for own in ring}
    for own, others in seen.items():
        assert own not in others
        assert all(own in seen[other] for other in others)
        assert len(others) == min(2 * NEAR, len(ring) - 1)


def test_both_ends_of_a_pair_know_the_same_vni_and_it_is_never_that_of_pods() -> None:
    names = [f"node-{number}" for number in range(60)]
    found = {vni(one, other) for one in names for other in names if one < other}
    assert {vni(other, one) for one in names for other in names if one < other} == found
    assert 0 not in found
    assert max(found) < 1 << 24
