"""Relay of packets of established connections between Nodes that advertise the same address, with proxyAll.

A router that gains or loses one of several equal ways may send packets of a connection to another Node than before. That Node
passes them on around a ring of at most four Nodes, until one tracks the connection: Nodes that are drained come first, as routers
send them nothing any more.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from antrea.facts.family import is_ipv6
from antrea.facts.node import PeerNode, ThisNode
from antrea.facts.ovs import OvsPort
from antrea.facts.service import ServicePort
from antrea.features.bgp_policy.advertisement import policy_ips
from antrea.features.bgp_policy.policy import EffectivePolicy
from antrea.features.node_route.agent import relay_way
from antrea.features.node_route.way import tunnel_end
from antrea.features.pod_connectivity.tunnel import TUNNEL_PORT
from antrea.features.proxy.host import proxies_all
from antrea.features.proxy.relay import LATER, accepted_packets
from antrea.host.carrier import RELAYED_MACS
from antrea.openflow.cookie import Category
from antrea.openflow.fields import FROM_EXTERNAL_REG_MARK
from antrea.openflow.flow import Flow, flows_of
from antrea.openflow.match import PROTOCOLS, ct_state, dl_src, dst, tcp_flags
from antrea.openflow.priority import Priority
from antrea.openflow.tables import CONNTRACK_STATE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from antrea.engine import Facts
    from antrea.facts.service import Service

flow = flows_of(Category.ROUTES)
BELOW = Priority.HIGH - 1
"""Below the flows for external IPs of Services whose former Nodes are known."""


def ring(effective: EffectivePolicy) -> list[str]:
    """Return the Nodes that packets are passed on around: as many as hops are counted, and the first one."""
    nodes = sorted(effective.nodes, key=lambda node: (not node.is_leaving, node.name))
    return [node.name for node in nodes[: len(RELAYED_MACS) + 1]]


def next_node(effective: EffectivePolicy, name: str) -> str:
    """Return the Node that this one passes packets on to; empty if there is none."""
    names = ring(effective)
    if name not in names:
        return names[0] if names else ""
    other = names[(names.index(name) + 1) % len(names)]
    return other if other != name else ""


def _next_end(facts: Facts, effective: EffectivePolicy) -> str:
    """Return the end of the tunnel to the next Node; empty if there is none."""
    node = facts.get(ThisNode)
    peer = facts.get(PeerNode, next_node(effective, node.name)) if node else None
    return (tunnel_end(node, peer) or "") if node and peer else ""


def relayed_service(facts: Facts, service: Service) -> Iterator[Flow]:
    """Yield, for each address of a Service that routers may send to several Nodes, flows for packets that come from outside."""
    effective, tunnel = facts.get(EffectivePolicy), facts.get(OvsPort, TUNNEL_PORT)
    if effective is None or tunnel is None or not effective.policy.peers or not proxies_all(facts):
        return
    ports = [port for port in facts.by(ServicePort, "service", service.key) if port.protocol == "TCP"]
    end = _next_end(facts, effective)
    if not end or not ports or any(port.direct for port in ports):
        return
    for ip in policy_ips(effective.policy, service):
        yield from accepted_packets(facts, ip)
        match = (PROTOCOLS["TCP"][is_ipv6(ip)], dst(ip), FROM_EXTERNAL_REG_MARK.match)
        for state, flags in LATER:
            way = relay_way(tunnel, end)
            yield flow(CONNTRACK_STATE, BELOW, *match, ct_state(state), tcp_flags(flags), then=way)


def passed_on(facts: Facts, effective: EffectivePolicy) -> Iterator[Flow]:
    """Yield flows for packets that another Node relayed and that this one does not track either, but for those of the last hop."""
    tunnel, end = facts.get(OvsPort, TUNNEL_PORT), _next_end(facts, effective)
    if tunnel is None or not end or not effective.policy.peers or not proxies_all(facts):
        return
    for came, mac in pairwise(RELAYED_MACS):
        for protocol in PROTOCOLS["TCP"]:
            for state, flags in LATER:
                match = (protocol, dl_src(came), ct_state(state), tcp_flags(flags))
                yield flow(CONNTRACK_STATE, BELOW, *match, then=relay_way(tunnel, end, mac))
