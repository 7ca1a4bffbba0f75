"""Relay of packets of established connections to the previous Node after the external IP of a Service has moved.

Each Node tracks the connections that began there, and answers clients itself. With proxyAll the switch of the Node that answers
now finds packets of other connections to be of none that it tracks, and no first ones; it sends them through the tunnel to the
Node that answered before, as it does with those that come late to a Node that no longer answers. Upstream ends them: another
Endpoint is chosen, and resets them.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from antrea.facts.external_ip import AnsweredAddress, ExternalIPOwner
from antrea.facts.family import is_ipv6
from antrea.facts.member import GossipMember
from antrea.facts.node import PeerNode, ThisNode
from antrea.facts.ovs import OvsPort
from antrea.facts.service import ServicePort
from antrea.features.node_route.agent import relay_way
from antrea.features.node_route.way import tunnel_end
from antrea.features.pod_connectivity.tunnel import TUNNEL_PORT
from antrea.features.proxy.host import proxies_all
from antrea.features.proxy.relay import LATER, accepted_packets
from antrea.host.carrier import RELAYED_MACS
from antrea.openflow.action import goto
from antrea.openflow.cookie import Category
from antrea.openflow.fields import FROM_EXTERNAL_REG_MARK
from antrea.openflow.flow import Flow, flows_of
from antrea.openflow.match import PROTOCOLS, ct_state, dl_src, dst, tcp_flags, tp_dst, tun_src
from antrea.openflow.priority import Priority
from antrea.openflow.table import Stage
from antrea.openflow.tables import CONNTRACK_STATE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from antrea.engine import Facts
    from antrea.openflow.field import Action, Match

flow = flows_of(Category.EGRESS)


def ends_of_others(facts: Facts, row: AnsweredAddress, node: ThisNode) -> list[str]:
    """Return the ends of the tunnel to other Nodes that answered, and live, the latest first."""
    ends = []
    for name in row.others:
        member, peer = facts.get(GossipMember, name), facts.get(PeerNode, name)
        if member and member.may_hold and peer and (end := tunnel_end(node, peer)):
            ends.append(end)
    return ends


def relayed_connections(facts: Facts, owner: ExternalIPOwner) -> Iterator[Flow]:
    """Yield, for each port whose answers come by the Node that a connection began at, flows to the Node that answered last, but
    never back.
    """
    node, tunnel = facts.get(ThisNode), facts.get(OvsPort, TUNNEL_PORT)
    row = facts.get(AnsweredAddress, owner.key)
    if node is None or tunnel is None or row is None or row.ip != owner.ip or not proxies_all(facts):
        return
    ends = ends_of_others(facts, row, node)
    if not ends:
        return
    if owner.node == node.name or row.here:
        yield from later_packets(facts, owner, (FROM_EXTERNAL_REG_MARK.match,), relay_way(tunnel, ends[0]))
    for came, mac in pairwise(RELAYED_MACS):
        yield from later_packets(facts, owner, (dl_src(came),), relay_way(tunnel, ends[0], mac))
        back = (dl_src(came), tun_src(ends[0]))
        then = relay_way(tunnel, ends[1], mac) if len(ends) > 1 else [goto(Stage.PRE_ROUTING)]
        yield from later_packets(facts, owner, back, then, Priority.HIGH + 1)


def later_packets(
    facts: Facts,
    owner: ExternalIPOwner,
    came: tuple[Match, ...],
    then: list[Action],
    priority: int = Priority.HIGH,
) -> Iterator[Flow]:
    """Yield flows for packets that are not the first of a connection, and of none that this Node tracks."""
    tcp = PROTOCOLS["TCP"][is_ipv6(owner.ip)]
    for port in facts.by(ServicePort, "service", owner.service):
        if port.protocol == "TCP" and not port.direct and owner.ip in port.external_ips:
            match = (tcp, dst(owner.ip), tp_dst(port.port), *came)
            for state, flags in LATER:
                yield flow(CONNTRACK_STATE, priority, *match, ct_state(state), tcp_flags(flags), then=then)


def accepted_connections(facts: Facts, owner: ExternalIPOwner) -> Iterator[Flow]:
    """Yield the flow for packets that another Node relayed, whichever Node answers by then."""
    yield from accepted_packets(facts, owner.ip)
