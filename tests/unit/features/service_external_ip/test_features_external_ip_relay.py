"""Packets of connections that began at another Node go there, once each, and only where that Node can know them."""

from __future__ import annotations

import msgspec
import pytest
from external_ip_node import IP, Node, service

from antrea.config.agent import AgentConfig
from antrea.config.agent_sections import AntreaProxy
from antrea.facts.member import GossipMember
from antrea.facts.node import PeerNode
from antrea.facts.ovs import OvsPort
from antrea.facts.service import ServicePort
from antrea.openflow.flow import Flow
from antrea.openflow.priority import Priority

PORT = ServicePort("shop/web", "", "TCP", 80, ("10.96.0.7",), external_ips=(IP,))
ACCEPTED = ("ip", "in_port=2", "dl_src=02:ea:00:00:00:00/ff:ff:ff:ff:ff:fc", f"nw_dst={IP}")
PROXY_ALL = AgentConfig(antrea_proxy=AntreaProxy(proxy_all=True))


def world() -> Node:
    """n1, of three Nodes that all may answer."""
    node = Node()
    node.put(
        PROXY_ALL, OvsPort("antrea-tun0", "tunnel", 2, ""), OvsPort("antrea-gw0", "gateway", 1, "0a:00:00:00:00:02"), PORT, service(preferred="n2,n1"),
        *(PeerNode(f"n{n}", (f"10.10.{n}.0/24",), (f"192.0.2.{n}",), (f"192.0.2.{n}",)) for n in (2, 3)),
    )  # fmt: skip
    return node


def standing(node: Node) -> list[Flow]:
    node.plan()
    return [one for one in node.engine.standing().values() if isinstance(one, Flow)]


def flows(node: Node) -> list[tuple[str, ...]]:
    """Their matches."""
    return sorted(one.match for one in standing(node))


def ends(node: Node, came: str = "") -> set[str]:
    """Ends of the tunnel that packets are relayed to, which came from outside (reg4) or from other Nodes (dl_src)."""
    found = [one.actions for one in standing(node) if any(each.startswith(came) for each in one.match)]
    return {each for actions in found for each in actions if "tun_dst" in each}


def moved_here(node: Node) -> None:
    assert node.owner() == "n2"
    node.put(service(preferred="n1"))
    assert node.owner() == "n1"


def test_a_node_that_takes_over_relays_later_packets_of_tcp_and_accepts_those_of_others() -> None:
    node = world()
    assert node.owner() == "n2"
    assert ACCEPTED in flows(node)
    assert ends(node, "reg4") == set()
    moved_here(node)
    assert ends(node) == {"set_field:192.0.2.2->tun_dst"}
    to, came = (f"nw_dst={IP}", "tp_dst=80"), [f"dl_src=02:ea:00:00:00:0{hop}" for hop in (1, 2)]
    ways = [
        ("reg4=0x8000000/0x8000000",),
        *((mac,) for mac in came),
        *((mac, "tun_src=192.0.2.2") for mac in came),
    ]
    later = (("+inv+trk", "+fin"), ("+inv+trk", "+rst"), ("+new+trk", "-syn"))
    wanted = [
        {f"ct_state={state}", "tcp", *way, *to, f"tcp_flags={flags}"}
        for way in ways
        for state, flags in later
    ]
    found = [set(match) for match in flows(node)]
    assert all(one in found for one in [set(ACCEPTED), *wanted])
    assert len(found) == 1 + len(wanted)


def test_a_node_that_gave_up_relays_to_who_answers_and_what_that_one_sends_to_who_answered_before() -> None:
    node = world()
    moved_here(node)
    node.put(service(preferred="n3"))
    assert node.owner() == "n3"
    assert ends(node, "reg4") == {"set_field:192.0.2.3->tun_dst"}
    assert ends(node, "tun_src=192.0.2.3") == {"set_field:192.0.2.2->tun_dst"}


def test_a_packet_does_not_go_back_to_the_node_that_sent_it_and_is_reset_here_if_there_is_no_other() -> None:
    node = world()
    moved_here(node)
    back = [one for one in standing(node) if "tun_src=192.0.2.2" in one.match]
    assert {one.actions for one in back} == {("goto_table:{stage:PRE_ROUTING}",)}
    assert all(one.priority > Priority.HIGH for one in back)


def test_nothing_is_relayed_to_a_node_that_is_dead() -> None:
    node = world()
    moved_here(node)
    node.put(GossipMember("n2", alive=False))
    assert ends(node) == set()
    node.put(GossipMember("n2", alive=False, left=True))
    assert ends(node) == {"set_field:192.0.2.2->tun_dst"}


@pytest.mark.parametrize("other", [{"protocol": "UDP"}, {"direct": True}, {"external_ips": ()}])
def test_other_ports_are_not_relayed(other: dict[str, object]) -> None:
    node = world()
    node.facts.drop(ServicePort, PORT.key)
    node.put(msgspec.structs.replace(PORT, **other))
    moved_here(node)
    assert ends(node) == set()


def test_without_proxy_all_the_host_tracks_connections_and_nothing_is_relayed() -> None:
    node = world()
    node.put(AgentConfig())
    moved_here(node)
    assert flows(node) == []
