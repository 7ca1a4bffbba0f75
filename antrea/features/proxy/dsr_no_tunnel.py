"""Direct server return without tunnels: Nodes on one network pass packets on to each other as they came, by their MAC addresses.

The host of the Node that a packet enters by sends what the switch gives back, by its source MAC, to the Node of the Endpoint.
There the source MAC shows that a Node passed it on, and the packet gets to the switch by a next hop of its own, so that the switch
chooses among the Endpoints of this Node alone. Clients that are Nodes or Pods of the cluster are translated: a host takes no
packet from outside that has an address of its own as its source. Beyond upstream, which has no such mode without tunnels.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from antrea.config.agent import AgentConfig
from antrea.engine import Act, Unit
from antrea.facts.family import is_ipv6
from antrea.facts.node import PeerNode, ThisNode, Transport
from antrea.facts.ovs import OvsPort
from antrea.features.framework.agent_feature import AgentFeature
from antrea.features.node_route.way import shared_cidrs
from antrea.features.proxy.direct_path import GATE, HOP_UNITS, PASSED_MAC, refused, without_tunnel
from antrea.features.proxy.dsr import DSR
from antrea.features.proxy.dsr_node_port import NODE_PORTS, PEERS
from antrea.features.proxy.host import EXTERNAL_IPS
from antrea.host.carrier import hop_mac
from antrea.host.nft import NftElement, NftRule, NftSet
from antrea.host.route import Neighbour, Route, RoutingRule
from antrea.openflow.action import DROP, IN_PORT, goto
from antrea.openflow.cookie import Category
from antrea.openflow.fields import (
    DSR_SERVICE_REG_MARK,
    FROM_GATEWAY_REG_MARK,
    OUTPUT_TO_OF_PORT_REG_MARK,
    PEER_PASSED,
    TO_GATEWAY_REG_MARK,
)
from antrea.openflow.flow import Flow, flows_of
from antrea.openflow.match import ct_state, family, src
from antrea.openflow.priority import Priority
from antrea.openflow.table import NEXT
from antrea.openflow.tables import DSR_SERVICE_MARK, OUTPUT, SNAT_MARK
from antrea.rank import Rank

if TYPE_CHECKING:
    from collections.abc import Iterator

    from antrea.engine import Facts

PEER_MACS = "peer-node-mac"
PASSED_IPS = ("169.254.0.249", "fc01::aabb:ccdd:eefb")
"""Next hop on antrea-gw0 of packets that another Node passed on, in IPv4 and IPv6."""
TABLE, RULE_PRIORITY = 100, 299
FAMILIES = ("IPv4", "IPv6")
flow = flows_of(Category.SERVICE)


class PathRefused(Act, frozen=True):
    """Event that a Node cannot hand untranslated packets to other Nodes."""

    message: str


def refusal_text(facts: Facts) -> str:
    """Return which rules nft refuses, why, and the effect; empty if it refuses none."""
    reasons = {name: why for ipv6, name in enumerate(FAMILIES) if (why := refused(facts, ipv6=bool(ipv6)))}
    if not reasons:
        return ""
    link = facts.get(Transport)
    modules = " and ".join(f"nft_dup_{name.lower()}" for name in reasons)
    return (
        f"nft refuses the rules of {' and '.join(reasons)} that pass packets on to other Nodes ({next(iter(reasons.values()))}): "
        f"packets to Endpoints there are served in mode nat instead of {DSR}; the rules need kernel module {modules}"
        + (f" and interface {link.device}" if link else "")
    )


# units


def unknown_node(facts: Facts, _node: ThisNode) -> Iterator[NftRule]:
    """Yield the rule that drops what the switch returns for an unknown Node; a separate unit, so that it applies also if nft
    refuses the hops.
    """
    config = without_tunnel(facts)
    if config is None or facts.get(Transport) is None or facts.get(OvsPort, config.host_gateway) is None:
        return
    text = f'iifname "{config.host_gateway}" ether saddr {hop_mac(0)}-{hop_mac(0xFFFFFFFF)} drop'
    yield NftRule(chain="prerouting-raw", name="no Node that is not known", text=text, order=1)


def refused_path(facts: Facts, _node: ThisNode) -> Iterator[PathRefused]:
    """Yield the Event while nft refuses rules of a family."""
    if message := refusal_text(facts):
        families = tuple(ipv6 for ipv6 in (False, True) if refused(facts, ipv6=ipv6))
        yield PathRefused("hops", families, message=message)


def passed_in(facts: Facts, node: ThisNode) -> Iterator[NftSet | NftRule | RoutingRule | Route | Neighbour]:
    """Yield the path from other Nodes to the switch, whatever route there is to the destination."""
    config, link = without_tunnel(facts), facts.get(Transport)
    if config is None or link is None or facts.get(OvsPort, config.host_gateway) is None:
        return
    yield NftSet(name=PEER_MACS, type="ether_addr")
    for ipv6 in sorted(node.families):
        ip, mark = "ip6" if ipv6 else "ip", PEER_PASSED.mask
        passed = f'iifname "{link.device}" ether saddr @{PEER_MACS} {ip} daddr'
        destinations = {
            "external IPs": f"@{EXTERNAL_IPS[ipv6]}",
            "NodePorts": f"@{PEERS[ipv6]} meta l4proto . th dport @{NODE_PORTS[ipv6]}",
        }
        for name, text in destinations.items():
            yield NftRule(
                chain="prerouting-raw",
                name=f"passed on to {name}, {ip}",
                text=f"{passed} {text} meta mark set meta mark | {mark:#x} notrack",
            )
        dev, via = config.host_gateway, PASSED_IPS[ipv6]
        everywhere = "::/0" if ipv6 else "0.0.0.0/0"
        yield Route(dst=everywhere, dev=dev, via=via, onlink=True, table=TABLE, rank=Rank.RECEIVES)
        yield Neighbour(dev=dev, ip=via, mac=PASSED_MAC, rank=Rank.RECEIVES)
        yield RoutingRule(family=6 if ipv6 else 4, mark=mark, mask=mark, table=TABLE, priority=RULE_PRIORITY)


def peer_mac(facts: Facts, peer: PeerNode) -> Iterator[NftElement | Flow]:
    """Yield the MAC of another Node's card, by which packets that it passes on are recognized; its own packets are translated."""
    config, node = without_tunnel(facts), facts.get(ThisNode)
    if config is None or node is None:
        return
    if peer.mac and facts.get(Transport) is not None:
        yield NftElement(set=PEER_MACS, value=peer.mac, rank=Rank.SENDS)
    source_ips = (
        ip for ip in dict.fromkeys((*peer.node_ips, *peer.transport_ips)) if is_ipv6(ip) in node.families
    )
    for source in (*source_ips, *shared_cidrs(node, peer)):
        invalid = ct_state("+inv+trk")
        yield flow(DSR_SERVICE_MARK, Priority.HIGH + 1, src(source), invalid, then=DROP)
        yield flow(DSR_SERVICE_MARK, Priority.HIGH, src(source), then=[goto(NEXT)])


def returned_flows(facts: Facts, node: ThisNode) -> Iterator[Flow]:
    """Yield flows that return packets to the host by the port that they came by, with their source."""
    config = facts.get(AgentConfig)
    if config is None or config.has_tunnel:
        return
    marks = (FROM_GATEWAY_REG_MARK.match, TO_GATEWAY_REG_MARK.match, DSR_SERVICE_REG_MARK.match)
    for cidr in node.pod_cidrs:
        yield flow(SNAT_MARK, Priority.HIGH, family(cidr), *marks, then=[goto(NEXT)])
    yield flow(OUTPUT, Priority.HIGH, OUTPUT_TO_OF_PORT_REG_MARK.match, *marks, then=[IN_PORT])


FEATURE = AgentFeature(
    name="LoadBalancerModeDSR without tunnels",
    gate=GATE,
    within="AntreaProxy",
    units=(
        *HOP_UNITS,
        Unit(ThisNode, unknown_node),
        Unit(ThisNode, refused_path),
        Unit(ThisNode, passed_in),
        Unit(PeerNode, peer_mac),
        Unit(ThisNode, returned_flows),
    ),
    category=Category.SERVICE,
)
