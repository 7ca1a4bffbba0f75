"""A move between Nodes that live: in whatever order news arrive, Pods' packets and the answers to them find the address."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from wide_pool import wide_pool

from antrea.apis.status import Status
from antrea.config.agent import AgentConfig
from antrea.engine import Act, Engine, Facts
from antrea.facts.egress import (
    AnnouncedAddress,
    Egress,
    EgressOwner,
    EgressPod,
    ProbedAddress,
    ReleasedAddress,
    UnusedAddress,
)
from antrea.facts.member import AgentLeaving, AgentNode, GossipMember, Quorum
from antrea.facts.node import LocalAddress, PeerNode, ThisNode, Transport
from antrea.facts.ovs import OvsPort, PodInterface
from antrea.features.egress.agent import feature as agent
from antrea.features.egress.agent import owner
from antrea.features.egress.agent.address import AnnounceAddress
from antrea.features.egress.agent.handover import ConfirmAnnounced, ReleaseAddress
from antrea.features.egress.agent.hash_ring import Ring
from antrea.features.egress.agent.owner import waiting_of
from antrea.features.egress.agent.takeover_event import RecordTakeover
from antrea.features.external_ip_pool.agent import FEATURE as POOL_MEMBERS
from antrea.features.external_ip_pool.duplicate import ProbeAddress
from antrea.features.external_ip_pool.link import DEVICE
from antrea.host.address import Address
from antrea.host.carrier import RELAYED_MACS
from antrea.host.nft import NftElement, NftRelay, NftSilence
from antrea.openflow.flow import Flow

if TYPE_CHECKING:
    from collections.abc import Callable

    from antrea.facts.fact import Fact

NAMES = ("n1", "n2", "n3")
IP = "203.0.113.9"
YES = (("egress", "yes"),)
POOL = wide_pool("pool", (("egress", "=", ("yes",)),))
FIRST = Ring(NAMES).pick(IP)
SECOND = Ring([name for name in NAMES if name != FIRST]).pick(IP)
(THIRD,) = {*NAMES} - {FIRST, SECOND}


def at(name: str) -> str:
    return f"198.51.100.{name[1:]}"


class Node:
    """The units of one Node with a Pod of the Egress, and its kernel; news for it wait until they are given."""

    def __init__(self, name: str, world: World) -> None:
        self.name, self.world = name, world
        self.facts = Facts()
        self.engine = Engine(self.facts, [*agent.FEATURE.units, *owner.FEATURE.units, *POOL_MEMBERS.units])
        others = [other for other in NAMES if other != name]
        n = name[1:]
        pod = PodInterface("web", "c1", "shop", "web", "0a:00:00:00:00:07", (f"10.10.{n}.7",), 7, "u1")
        for row in (
            ThisNode(name, (f"10.10.{n}.0/24",), (at(name),), (at(name),)),
            Transport("eth1", "br-phy", "0a:00:00:00:00:02", 1500, (f"{at(name)}/24",)),
            AgentConfig(ovs_datapath_type="netdev"),
            OvsPort("antrea-gw0", "gateway", 2, "0a:00:00:00:00:01"),
            OvsPort("antrea-tun0", "tunnel", 1, "0a:00:00:00:00:03"),
            pod,
            EgressPod("web", "shop/web"),
            POOL,
            Quorum(has=True, alive=3, of=3),
            *(AgentNode(one, (at(one),), (at(one),), YES) for one in NAMES),
            *(GossipMember(other, alive=True) for other in others),
            *(PeerNode(o, (f"10.10.{o[1:]}.0/24",), (at(o),), (at(o),)) for o in others),
            world.egress,
        ):
            self.facts.put(row)
        self.has: set[str] = set()
        self.news: list[Fact] = []
        self.parts: list[ReleaseAddress] = []
        self.told = ""
        """Who holds the address by the news that it worked with."""

    def work(self) -> None:
        """One pass, and what the kernel and the API server make of it."""
        plan = self.engine.plan()
        row = self.facts.get(Egress, "web")
        self.told = row.node if row else ""
        for gone in plan.drop:
            if isinstance(gone, Address):
                self.has.discard(gone.cidr.partition("/")[0])
                self.facts.drop(LocalAddress, IP)
        for entry in plan.put:
            if isinstance(entry, Address):
                self.has.add(entry.cidr.partition("/")[0])
                self.facts.put(LocalAddress(IP, DEVICE, 32))
            if isinstance(entry, Status):
                self.world.write(str(dict(entry.fields)["egressNode"]), waiting_of(entry.conditions))
        for act in plan.acts:
            self.do(act)

    def do(self, act: Act) -> None:
        if isinstance(act, ProbeAddress):
            self.facts.put(ProbedAddress(act.holder, act.ip))
        if isinstance(act, AnnounceAddress):
            self.world.router = self.name
        if isinstance(act, RecordTakeover):
            self.world.took.append((act.before, act.node, act.why.why))
        if isinstance(act, ConfirmAnnounced):
            self.facts.put(AnnouncedAddress(act.egress, act.ip, act.before))
        if isinstance(act, ReleaseAddress):
            self.facts.put(ReleasedAddress(act.egress, act.ip, act.to))
            self.parts.append(act)

    @property
    def translates(self) -> bool:
        """Whether its host gives packets with the mark of the address that address."""
        standing = self.engine.standing().values()
        return any(isinstance(one, NftElement) and one.data == IP for one in standing)

    @property
    def relay(self) -> str:
        """The Node to which answers go on that come here and are not known; empty: none."""
        standing = self.engine.standing().values()
        (via,) = [entry.via for entry in standing if isinstance(entry, NftRelay)] or [""]
        flows = [one for one in standing if isinstance(one, Flow) and f"nw_dst={IP}" in one.match]
        sent = [" ".join(one.actions) for one in flows if "in_port=2" in one.match]
        peer = f"n{via.split('.')[2]}" if via else ""
        assert [f"set_field:{at(peer)}->tun_dst" in one for one in sent] == ([True] if peer else [])
        return peer

    @property
    def takes(self) -> bool:
        """Whether what another Node hands it reaches its host."""
        flows = (one for one in self.engine.standing().values() if isinstance(one, Flow))
        return any(
            {"in_port=1", f"nw_dst={IP}", f"dl_src={RELAYED_MACS[0]}"} <= {*one.match} for one in flows
        )

    @property
    def silent(self) -> bool:
        return any(isinstance(entry, NftSilence) for entry in self.engine.standing().values())

    @property
    def end(self) -> str:
        """The Node at which packets of its Pod get their address."""
        flows = [entry for entry in self.engine.standing().values() if isinstance(entry, Flow)]
        (mine,) = (flow for flow in flows if "in_port=7" in flow.match)
        found = re.search(r"set_field:198\.51\.100\.(\d)->tun_dst", " ".join(mine.actions))
        return f"n{found[1]}" if found else self.name


class World:
    """Three Nodes, the API server, and a router outside that answers to whoever announced itself last."""

    def __init__(self) -> None:
        self.egress = Egress("web", "u", IP, "pool", "1")
        self.router = ""
        self.took: list[tuple[str, str, str]] = []
        """Who took the address from whom, and why."""
        self.nodes = {name: Node(name, self) for name in NAMES}
        self.settle()

    def write(self, holder: str, waiting: str) -> None:
        held = IP if holder else ""
        self.egress = msgspec.structs.replace(self.egress, node=holder, held=held, waiting=waiting)
        self.tell(self.egress)

    def tell(self, *rows: Fact, but: str = "") -> None:
        for node in self.nodes.values():
            if node.name != but:
                node.news += rows

    def step(self, name: str) -> None:
        """A Node hears the next of its news, or works; a moment after all have heard everything, late packets have arrived."""
        node = self.nodes[name]
        if node.news:
            node.facts.put(node.news.pop(0))
            node.work()
        node.work()
        if not any(one.news for one in self.nodes.values()):
            for one in self.nodes.values():
                if one.relay and self.egress.node == one.name:
                    one.facts.drop(AnnouncedAddress, self.egress.name)
            for one in self.nodes.values():
                while one.parts and not any(other.relay == one.name for other in self.nodes.values()):
                    one.facts.drop(ReleasedAddress, one.parts.pop().egress)

    def settle(self) -> None:
        for _ in range(7):
            for name in NAMES:
                self.step(name)

    def holds(self) -> set[str]:
        return {name for name, node in self.nodes.items() if node.has}

    def check(self) -> None:
        ends = {name: node.end for name, node in self.nodes.items()}
        translating = {name for name, node in self.nodes.items() if node.translates}
        assert {*ends.values()} <= translating, (ends, translating)
        assert self.router in self.holds()
        assert self.holds() <= translating
        assert ends == {name: node.told for name, node in self.nodes.items()}
        for end in {*ends.values()} - {self.router}:
            assert (self.nodes[self.router].relay, self.nodes[end].takes) == (end, True)
        assert not any(self.nodes[node].silent for node in (self.router, self.egress.node))


def cordon(world: World) -> None:
    world.tell(AgentNode(FIRST, (at(FIRST),), (at(FIRST),), YES, cordoned=True))


def unlabel(world: World) -> None:
    world.tell(AgentNode(FIRST, (at(FIRST),), (at(FIRST),)))


def goodbye(world: World) -> None:
    world.nodes[FIRST].news.append(AgentLeaving())
    world.tell(GossipMember(FIRST, alive=False, left=True), but=FIRST)


CAUSES = pytest.mark.parametrize("cause", [cordon, unlabel, goodbye])


def prefer(world: World) -> None:
    world.egress = msgspec.structs.replace(world.egress, preferred=(SECOND,))
    world.tell(world.egress)


@pytest.mark.parametrize(
    ("move", "why"),
    [
        (cordon, "drained: it is cordoned"),
        (unlabel, "label: it no longer has those that the pool asks for"),
        (goodbye, "drained: its agent ends"),
        (prefer, "preferred: the new Node is named before it"),
    ],
)
def test_who_takes_an_address_over_says_from_whom_and_why_once(
    move: Callable[[World], None], why: str
) -> None:
    world = World()
    assert world.took == []
    move(world)
    world.settle()
    assert world.took == [(FIRST, SECOND, why)]


def test_who_goes_home_and_who_follows_the_dead_or_the_deleted_says_so() -> None:
    world = World()
    cordon(world)
    world.settle()
    world.took.clear()
    world.tell(AgentNode(FIRST, (at(FIRST),), (at(FIRST),), YES))
    world.settle()
    home = "placement: of the Nodes that can hold it now, the new one is to"
    assert world.took == [(SECOND, FIRST, home)]
    for news, why in (
        (GossipMember(FIRST, alive=False, why="no sign of life"), "dead: no sign of life"),
        (None, "deleted: it is not a Node any more"),
    ):
        world = World()
        node = world.nodes[SECOND]
        if news:
            node.facts.put(news)
        else:
            node.facts.drop(AgentNode, FIRST)
        node.work()
        node.work()
        assert world.took == [(FIRST, SECOND, why)]


@CAUSES
def test_a_node_that_is_drained_hands_its_address_to_the_next_and_keeps_nothing(
    cause: Callable[[World], None],
) -> None:
    world = World()
    assert (world.holds(), world.egress.node, world.router) == ({FIRST}, FIRST, FIRST)
    cause(world)
    world.settle()
    assert (world.holds(), world.egress.node, world.router) == ({SECOND}, SECOND, SECOND)
    assert {node.end for node in world.nodes.values()} == {SECOND}


@CAUSES
@settings(max_examples=25, deadline=None)
@given(order=st.lists(st.sampled_from(NAMES), max_size=40))
def test_at_every_moment_of_a_drain_packets_and_answers_find_a_node_with_the_address(
    cause: Callable[[World], None], order: list[str]
) -> None:
    world = World()
    cause(world)
    for name in order:
        world.step(name)
        world.check()
    world.settle()
    world.check()
    assert world.holds() == {SECOND}
    assert not any(node.relay or node.silent for node in world.nodes.values())


@settings(max_examples=25, deadline=None)
@given(order=st.lists(st.sampled_from(NAMES), max_size=40))
def test_an_address_goes_home_as_gently_as_it_went(order: list[str]) -> None:
    world = World()
    cordon(world)
    world.settle()
    world.tell(AgentNode(FIRST, (at(FIRST),), (at(FIRST),), YES))
    for name in order:
        world.step(name)
        world.check()
    world.settle()
    assert (world.holds(), world.router) == ({FIRST}, FIRST)


def away(world: World) -> None:
    """The address waits with the second Node until no connection uses it."""
    world.egress = msgspec.structs.replace(world.egress, waits=True)
    world.tell(world.egress)
    cordon(world)
    world.settle()
    world.tell(AgentNode(FIRST, (at(FIRST),), (at(FIRST),), YES))
    world.settle()


def test_an_address_that_waits_goes_home_when_who_has_it_sees_no_connection_and_not_before() -> None:
    world = World()
    away(world)
    assert (world.holds(), world.egress.waiting) == ({SECOND}, "True")
    owners = {name: node.facts.get(EgressOwner, "web") for name, node in world.nodes.items()}
    assert owners == dict.fromkeys(NAMES, EgressOwner("web", SECOND, home=FIRST))
    # another Node's word does not count
    world.nodes[THIRD].facts.put(UnusedAddress(IP))
    world.settle()
    assert world.holds() == {SECOND}
    world.nodes[SECOND].news.append(UnusedAddress(IP))
    world.settle()
    assert (world.holds(), world.egress.node, world.router) == ({FIRST}, FIRST, FIRST)
    assert world.egress.waiting == ""
    assert world.nodes[FIRST].facts.get(EgressOwner, "web") == EgressOwner("web", FIRST)


@settings(max_examples=25, deadline=None)
@given(order=st.lists(st.sampled_from(NAMES), max_size=40))
def test_on_its_late_way_home_packets_find_a_node_with_the_address_at_every_moment(order: list[str]) -> None:
    world = World()
    away(world)
    world.nodes[SECOND].news.append(UnusedAddress(IP))
    for name in order:
        world.step(name)
        world.check()
    world.settle()
    assert (world.holds(), world.router) == ({FIRST}, FIRST)


def test_an_address_that_waits_still_leaves_a_node_that_is_drained_or_dies() -> None:
    world = World()
    away(world)
    world.tell(AgentNode(SECOND, (at(SECOND),), (at(SECOND),), YES, cordoned=True))
    world.settle()
    assert (world.holds(), world.egress.waiting) == ({FIRST}, "")
    world = World()
    away(world)
    for name in (FIRST, THIRD):
        world.nodes[name].facts.put(GossipMember(SECOND, alive=False))
        world.nodes[name].work()
    assert world.nodes[FIRST].has == {IP}


def test_if_the_better_node_is_gone_before_an_idle_address_is_there_it_stays() -> None:
    world = World()
    away(world)
    world.nodes[SECOND].news.append(UnusedAddress(IP))
    world.tell(AgentNode(FIRST, (at(FIRST),), (at(FIRST),)))
    world.settle()
    assert (world.holds(), world.egress.waiting) == ({SECOND}, "")


def test_of_a_node_that_died_nothing_is_awaited() -> None:
    world = World()
    dead = world.nodes.pop(FIRST)
    for node in world.nodes.values():
        node.facts.put(GossipMember(FIRST, alive=False))
        node.work()
    assert (world.holds(), world.nodes[THIRD].end) == ({SECOND}, SECOND)
    world.nodes[SECOND].work()
    assert world.router == SECOND
    assert dead.has == {IP}


def test_a_node_that_hands_over_and_loses_the_majority_gives_up_at_once() -> None:
    world = World()
    node = world.nodes[FIRST]
    node.facts.put(AgentNode(FIRST, (at(FIRST),), (at(FIRST),), YES, cordoned=True))
    node.work()
    assert node.has == {IP}
    node.facts.put(Quorum(has=False, alive=3, of=3))
    node.work()
    assert node.has == set()


def test_while_the_api_server_is_away_a_drained_node_goes_on_until_it_is_dead() -> None:
    world = World()
    cordon(world)
    for name in NAMES:
        node = world.nodes[name]
        node.facts.put(node.news.pop(0))
        node.work()
        node.work()
    assert world.holds() == {FIRST, SECOND}
    assert {node.end for node in world.nodes.values()} == {FIRST}
    world.check()
    world.nodes[SECOND].facts.put(GossipMember(FIRST, alive=False))
    world.nodes[SECOND].work()
    assert world.router == SECOND


@pytest.mark.parametrize("cause", [cordon, goodbye])
def test_the_last_node_of_a_pool_keeps_its_addresses_when_it_is_drained(
    cause: Callable[[World], None],
) -> None:
    world = World()
    for name in (SECOND, THIRD):
        world.tell(AgentNode(name, (at(name),), (at(name),)))
    world.settle()
    cause(world)
    world.settle()
    world.check()
    assert world.holds() == {FIRST}
    assert world.nodes[THIRD].facts.get(EgressOwner, "web") == EgressOwner("web", FIRST)
