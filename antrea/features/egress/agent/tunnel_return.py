"""Replies of Egress connections in mode hybrid: back through the tunnel by which the Pod's packets came.

The Pod's packets reach the Node with the Egress IP by the tunnel in every mode. In mode hybrid the route of this Node's host to a
Pod of a neighbor leads there without a tunnel, which replies must not take: a Node on the way, or rp_filter, would see one half
of a connection only. The host remembers such connections by a mark, and routes what has it to the switch.

parity: pkg/agent/route/route_linux.go shouldEnableEgressPolicyRouting, pkg/agent/openflow/pipeline.go l3FwdFlowEgressReturnViaTun
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from antrea.config.agent import AgentConfig
from antrea.facts.family import is_ipv6
from antrea.facts.node import ThisNode, Transport
from antrea.facts.ovs import OvsPort
from antrea.features.node_route.agent import tunnel_way
from antrea.features.node_route.way import needs_tunnel, shared_cidrs, tunnel_end
from antrea.host.carrier import CHAIN
from antrea.host.nft import NftChain, NftRule
from antrea.host.route import Neighbour, Route, RoutingRule
from antrea.host.sysctl import Sysctl
from antrea.openflow.cookie import Category
from antrea.openflow.fields import (
    EGRESS_RETURN,
    FROM_GATEWAY_REG_MARK,
    FROM_TUNNEL_CT_MARK,
    GLOBAL_VIRTUAL_MAC,
    SNAT_PKT_MARK,
)
from antrea.openflow.flow import Flow, flows_of
from antrea.openflow.match import dst
from antrea.openflow.priority import Priority
from antrea.openflow.tables import L3_FORWARDING
from antrea.rank import Rank

if TYPE_CHECKING:
    from collections.abc import Iterator

    from antrea.engine import Facts
    from antrea.facts.node import PeerNode

flow = flows_of(Category.EGRESS)
TABLE: Final = 141
"""# parity: pkg/agent/types/net.go ReplyEgressRouteTable"""
RULE_PRIORITY: Final = 298
NEXT_HOPS: Final = {False: "169.254.0.251", True: "fc01::aabb:ccdd:eefd"}
"""# parity: pkg/agent/config VirtualReplyEgressRouteNextHopIPv4"""
AFTER_CHAIN: Final = NftChain(
    name="postrouting-mangle", hook="type filter hook postrouting priority mangle; policy accept;"
)
AFTER_EGRESS_MARKS: Final = 102
"""Order after the rules by which the host reads Egress marks (antrea/host/carrier.py)."""


def returns_by_tunnel(facts: Facts) -> AgentConfig | None:
    """Return the configuration, if packets of Pods have another path between Nodes than those of their Egresses."""
    config = facts.get(AgentConfig)
    return config if config is not None and config.traffic_encap_mode == "hybrid" else None


def return_entries(facts: Facts, node: ThisNode) -> Iterator[Sysctl | Route | Neighbour | RoutingRule]:
    """Yield the route of replies to the switch."""
    config = returns_by_tunnel(facts)
    if config is None or facts.get(OvsPort, config.host_gateway) is None:
        return
    dev, mark = config.host_gateway, EGRESS_RETURN.mask
    for version6 in sorted(node.families):
        via = NEXT_HOPS[version6]
        if not version6:
            # the main table has a route to the Pod's Node by another interface
            yield Sysctl(f"net/ipv4/conf/{dev}/rp_filter", "2")
        yield Neighbour(dev=dev, ip=via, mac=GLOBAL_VIRTUAL_MAC, rank=Rank.RECEIVES)
        everywhere = "::/0" if version6 else "0.0.0.0/0"
        yield Route(dst=everywhere, dev=dev, via=via, onlink=True, table=TABLE, rank=Rank.RECEIVES)
        yield RoutingRule(
            family=6 if version6 else 4, mark=mark, mask=mark, table=TABLE, priority=RULE_PRIORITY
        )


def return_marks(facts: Facts, node: ThisNode) -> Iterator[NftChain | NftRule]:
    """Yield rules that remember connections of Pods of other Nodes, and mark their replies until these are routed."""
    config = returns_by_tunnel(facts)
    if config is None:
        return
    mark, gateway = f"{EGRESS_RETURN.mask:#010x}", f'"{config.host_gateway}"'
    reply = f"ct state established ct direction reply ct mark & {mark} == {mark}"
    yield from (CHAIN, AFTER_CHAIN)
    for cidr in node.pod_cidrs:
        ip = "ip6" if is_ipv6(cidr) else "ip"
        yield NftRule(
            chain=CHAIN.name,
            name=f"connections of other Nodes' Pods with an Egress IP, {ip}",
            text=(
                f"iifname {gateway} {ip} saddr != {cidr} ct state new"
                f" meta mark & {SNAT_PKT_MARK.mask:#010x} != 0x00000000 ct mark set ct mark | {mark}"
            ),
            order=AFTER_EGRESS_MARKS,
        )
    for chain in (CHAIN.name, "output-mangle"):
        yield NftRule(
            chain=chain,
            name="replies to other Nodes' Pods with an Egress IP",
            text=f"{reply} meta mark set meta mark | {mark}",
            order=AFTER_EGRESS_MARKS,
        )
    # the kernel would route the tunnel's own packet by the mark
    yield NftRule(
        chain=AFTER_CHAIN.name,
        name="routed replies without the mark",
        text=f"oifname {gateway} {reply} meta mark set meta mark & {~EGRESS_RETURN.mask & 0xFFFFFFFF:#010x}",
    )


def return_flows(facts: Facts, peer: PeerNode) -> Iterator[Flow]:
    """Yield flows by which replies from the host enter the tunnel to a Node that packets of Pods reach without one."""
    config, node = returns_by_tunnel(facts), facts.get(ThisNode)
    gateway = facts.get(OvsPort, config.host_gateway) if config else None
    end = tunnel_end(node, peer) if node else None
    if node is None or gateway is None or end is None or facts.get(Transport) is None:
        return
    for cidr in shared_cidrs(node, peer):
        if not needs_tunnel(facts, peer, ipv6=is_ipv6(cidr)):
            marks = (FROM_TUNNEL_CT_MARK.match, FROM_GATEWAY_REG_MARK.match)
            way = tunnel_way(gateway, end)
            yield flow(L3_FORWARDING, Priority.NORMAL + 1, *marks, dst(cidr), then=way)
