"""What an agent reports of Egresses is what their Pods sent, each packet once and for one Egress."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from counted_world import Switch, World, counted

from antrea.agent.feature_set import active, pipeline_of
from antrea.config.agent import AgentConfig
from antrea.engine import Engine, Facts
from antrea.facts.egress import Egress, EgressPod
from antrea.facts.node import LocalAddress, PeerNode, ThisNode
from antrea.facts.ovs import OvsPort, PodInterface
from antrea.features.egress.agent.feature import FEATURE
from antrea.features.egress.agent.flow import COUNTED
from antrea.features.egress.agent.snat_mark import MAX_AS, POOL

if TYPE_CHECKING:
    from pathlib import Path

    from antrea.facts.fact import Fact

CONFIG = AgentConfig()
NODE = ThisNode("n1", ("10.10.0.0/24", "fd00:10::/80"), ("192.0.2.1", "fd00:2::1"), ("192.0.2.1",))
PEER = PeerNode("n2", ("10.10.1.0/24", "fd00:10:1::/80"), ("192.0.2.2", "fd00:2::2"), ("192.0.2.2",))
GATEWAY = OvsPort("antrea-gw0", "gateway", 2, "0a:00:00:00:00:01")
HERE, THERE, HERE6 = "203.0.113.1", "203.0.113.2", "fd00:9::1"
PIPELINE = pipeline_of(active({"Egress"}), CONFIG, NODE)


def pod(name: str, number: int, container: str = "") -> PodInterface:
    ips = (f"10.10.0.{number}", f"fd00:10::{number:x}")
    interface = f"{name}-{container or name}"
    return PodInterface(interface, container, "shop", name, f"0a:00:00:00:01:{number:02x}", ips, number, name)


def egress(name: str, ip: str = HERE, uid: str = "", **more: Any) -> Egress:
    return Egress(name, uid or f"uid-{name}", ip, **more)


WEB, CART = pod("web", 7), pod("cart", 8)
V4, V6, CART4 = "ip,in_port=7$", "ipv6,in_port=7$", "ip,in_port=8$"
SELECTED = EgressPod("out", "shop/web")


def world_of(keep: Path, *rows: Fact, marks: int = MAX_AS) -> World:
    facts = Facts()
    facts.ids.limit(POOL, marks)
    here = (LocalAddress(ip, "eth0") for ip in (HERE, HERE6))
    for row in (CONFIG, NODE, PEER, GATEWAY, *here, *rows):
        facts.put(row)
    found = World(keep, Switch(facts, Engine(facts, FEATURE.units), PIPELINE, COUNTED, "in_port|tun_dst"))
    found.turn()
    return found


def test_what_all_pods_send_by_an_egress_is_its_sum_wherever_its_address_is(tmp_path: Path) -> None:
    one, other = egress("out"), egress("far", THERE, node="n2")
    pods = (WEB, CART, pod("till", 9))
    selects = (SELECTED, EgressPod("out", "shop/cart"), EgressPod("far", "shop/till"))
    world = world_of(tmp_path / "kept", one, other, *pods, *selects)
    world.switch.count(V4, 3)
    world.switch.count(CART4, 4)
    world.switch.count("in_port=9$", 5)
    # of Pods of other Nodes, which count themselves
    world.switch.count("tun_dst", 100)
    wanted = {("out", "uid-out"): counted(7, 700), ("far", "uid-far"): counted(5, 500)}
    assert world.turn() == wanted
    assert world.turn() == wanted
    assert len(world.controller.told) == 1


def test_each_family_counts_for_its_own_egress_or_for_one_of_both(tmp_path: Path) -> None:
    rows = (egress("out"), egress("six", HERE6), SELECTED, EgressPod("six", "shop/web"))
    world = world_of(tmp_path / "apart", WEB, *rows)
    world.switch.count(V4, 3)
    world.switch.count(V6, 4)
    assert world.turn() == {("out", "uid-out"): counted(3, 300), ("six", "uid-six"): counted(4, 400)}
    both = (egress("out", of=2), egress("out", HERE6, slot=1, of=2))
    world = world_of(tmp_path / "both", WEB, *both, SELECTED)
    world.switch.count(V4, 3)
    world.switch.count(V6, 4)
    assert world.turn() == {("out", "uid-out"): counted(7, 700)}


def test_of_an_egress_for_some_destinations_what_goes_elsewhere_is_not_counted(tmp_path: Path) -> None:
    one = egress("out", cidrs=("198.51.100.0/24", "203.0.113.0/24"), excepts=("198.51.100.128/25",))
    world = world_of(tmp_path / "kept", one, WEB, SELECTED)
    world.switch.count("nw_dst=198.51.100.0/24", 3)
    world.switch.count("nw_dst=203.0.113.0/24", 4)
    world.switch.count("nw_dst=198.51.100.128/25", 100)
    assert world.turn() == {("out", "uid-out"): counted(7, 700)}


def test_an_address_that_moves_or_an_agent_that_restarts_counts_nothing_twice(tmp_path: Path) -> None:
    world = world_of(tmp_path / "kept", egress("out"), WEB, SELECTED)
    world.switch.count(V4, 3)
    world.turn()
    world.switch.facts.put(egress("out", THERE, node="n2"))
    world.switch.follow()
    world.switch.count("in_port=7$", 4)
    world.new_agent()
    assert world.turn() == {("out", "uid-out"): counted(7, 700)}


def test_an_egress_that_is_made_anew_starts_at_zero(tmp_path: Path) -> None:
    """Its Pods' flows may stay, and keep their counters."""
    world = world_of(tmp_path / "kept", egress("out"), WEB, SELECTED)
    world.switch.count(V4, 30)
    world.turn()
    world.switch.facts.put(egress("out", uid="later"))
    world.switch.follow()
    world.switch.count(V4, 1)
    assert world.turn() == {("out", "uid-out"): counted(30, 3000), ("out", "later"): counted(1, 100)}


def test_a_pod_that_comes_to_follow_another_egress_counts_for_that_from_then_on(tmp_path: Path) -> None:
    older, newer = egress("out", created="1"), egress("new", HERE, created="2")
    world = world_of(tmp_path / "kept", older, newer, WEB, SELECTED, EgressPod("new", "shop/web"))
    world.switch.count(V4, 30)
    world.turn()
    world.switch.facts.drop(Egress, "out")
    world.switch.follow()
    world.switch.count(V4, 4)
    assert world.turn() == {("out", "uid-out"): counted(30, 3000), ("new", "uid-new"): counted(4, 400)}


def test_a_port_that_goes_to_another_pod_takes_no_counts_along(tmp_path: Path) -> None:
    world = world_of(tmp_path / "kept", egress("out"), WEB, SELECTED, EgressPod("out", "shop/cart"))
    world.switch.count(V4, 5)
    world.turn()
    world.switch.facts.drop(PodInterface, WEB.key)
    world.switch.follow()
    world.switch.facts.put(pod("cart", 7))
    world.switch.follow()
    world.switch.count(V4, 8)
    assert world.turn() == {("out", "uid-out"): counted(13, 1300)}


def test_what_a_node_without_a_mark_for_the_address_drops_has_not_left(tmp_path: Path) -> None:
    first = egress("first", "198.18.0.1"), LocalAddress("198.18.0.1", "eth0")
    world = world_of(tmp_path / "kept", *first, WEB, SELECTED, marks=1)
    facts, follow = world.switch.facts, world.switch.follow
    facts.put(egress("out"))
    follow()
    world.switch.count(V4, 9)
    assert world.turn() == {}
    # the other goes, and when the address is looked at again the Pod gets out by the same flow
    facts.drop(Egress, "first")
    follow()
    facts.put(LocalAddress(HERE, "eth1"))
    follow()
    world.switch.count(V4, 2)
    assert world.turn() == {("out", "uid-out"): counted(2, 200)}


def test_what_is_owed_for_egresses_that_are_gone_does_not_pile_up(tmp_path: Path) -> None:
    world = world_of(tmp_path / "kept", egress("out"), WEB, SELECTED)
    world.controller.away = True
    world.switch.count(V4, 1)
    world.turn()
    world.switch.count(V4, 1)
    world.turn()
    assert len(world.agent.account.owed) == 1
    world.switch.facts.put(egress("out", uid="later"))
    world.switch.follow()
    world.turn()
    assert world.agent.account.owed == {}


def test_what_is_counted_before_egresses_are_known_is_told_when_they_are(tmp_path: Path) -> None:
    """As at the start of an agent."""
    world = world_of(tmp_path / "kept", egress("out"), WEB, SELECTED)
    world.switch.count(V4, 1)
    world.turn()
    known, world.switch.facts = world.switch.facts, Facts()
    world.new_agent()
    world.switch.count(V4, 2)
    world.turn()
    world.switch.facts = known
    world.new_agent()
    assert world.turn() == {("out", "uid-out"): counted(3, 300)}
