"""Relay of answers that come to the wrong one of two living Nodes while an Egress IP moves between them.

Both translate then, and each tracks only the connections that began there, while answers come to whichever of them the
neighbors found last. Answers to a connection that a Node does not track go to the other by the tunnel, or to none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from antrea.config.agent import AgentConfig
from antrea.facts.egress import AnnouncedAddress, Egress
from antrea.facts.family import is_ipv6
from antrea.facts.member import GossipMember
from antrea.facts.node import LocalLink, PeerNode, ThisNode
from antrea.facts.ovs import OvsPort
from antrea.features.egress.agent.handover import (
    PASSED_ON,
    assigned_here,
    previous_holder,
    state_of,
)
from antrea.features.node_route.agent import relay_way
from antrea.features.node_route.way import tunnel_end
from antrea.features.pod_connectivity.tunnel import TUNNEL_PORT
from antrea.host.carrier import RELAYED_MACS
from antrea.host.nft import NftElement, NftRelay, NftRule, NftSet, NftSilence
from antrea.host.pod_cidr import gateway_ip
from antrea.host.sysctl import Sysctl
from antrea.openflow.action import goto, set_eth_dst
from antrea.openflow.cookie import Category
from antrea.openflow.fields import (
    HOST_LOCAL_SOURCE_PKT_MARK,
    OUTPUT_TO_OF_PORT_REG_MARK,
    TARGET_OF_PORT,
)
from antrea.openflow.flow import Flow, flows_of
from antrea.openflow.match import dl_src, dst, in_port
from antrea.openflow.priority import Priority
from antrea.openflow.tables import CLASSIFIER, OUTPUT
from antrea.rank import Rank

if TYPE_CHECKING:
    from collections.abc import Iterator

    from antrea.engine import Facts
    from antrea.facts.egress import EgressMark

flow = flows_of(Category.EGRESS)
ACCEPTED: Final = {False: "egress-accepted", True: "egress-accepted6"}
"""Addresses whose answers are accepted from the tunnel."""
BEFORE_FORWARD: Final = 50


def partner(facts: Facts, egress: Egress, node: ThisNode) -> str:
    """Return the Node that has the address, too, and tracks the other connections; empty if none."""
    if assigned_here(facts, egress, node):
        return previous_holder(facts, egress, node) or _giver_before(facts, egress, node)
    return egress.node if state_of(facts, egress, node) in PASSED_ON else ""


def _giver_before(facts: Facts, egress: Egress, node: ThisNode) -> str:
    row = facts.get(AnnouncedAddress, egress.key)
    if row is None or row.ip != egress.ip or egress.node != node.name:
        return ""
    member = facts.get(GossipMember, row.before)
    return row.before if member and member.may_hold else ""


def relayed_answers(facts: Facts, egress: Egress) -> Iterator[NftRelay | Flow]:
    """Yield the relay from the host to the bridge, and from there through the tunnel."""
    config, node = facts.get(AgentConfig), facts.get(ThisNode)
    peer = facts.get(PeerNode, partner(facts, egress, node)) if node and egress.pool and egress.ip else None
    gateway = facts.get(OvsPort, config.host_gateway) if config else None
    tunnel = facts.get(OvsPort, TUNNEL_PORT)
    end = tunnel_end(node, peer) if node and peer else None
    if node is None or peer is None or gateway is None or tunnel is None or not end:
        return
    link = facts.get(LocalLink, gateway.name)
    for cidr in (cidr for cidr in peer.pod_cidrs if is_ipv6(cidr) == is_ipv6(egress.ip)):
        yield NftRelay(
            ip=egress.ip,
            via=gateway_ip(cidr),
            dev=gateway.name,
            instance=link.index if link else 0,
            mark=HOST_LOCAL_SOURCE_PKT_MARK.field.mask,
            # who gives up does not keep its Pods waiting for it
            rank=Rank.DIVERTS if assigned_here(facts, egress, node) else Rank.SENDS,
        )
        yield flow(
            CLASSIFIER,
            Priority.HIGH,
            in_port(gateway.ofport),
            dst(egress.ip),
            then=relay_way(tunnel, end),
        )


def unknown_answers(facts: Facts, node: ThisNode) -> Iterator[NftSet | NftRule]:
    """Yield rules that drop answers from the tunnel that this Node does not track, either: the Node that has the address would
    return them.

    Where the address is on this Node, the kernel refuses them as it does for any port without a process.
    """
    config = facts.get(AgentConfig)
    if config is None:
        return
    for version6 in sorted(node.families):
        name, ip = ACCEPTED[version6], "ip6" if version6 else "ip"
        yield NftSet(name=name, type=f"ipv{6 if version6 else 4}_addr")
        match = f'iifname "{config.host_gateway}" ether saddr {RELAYED_MACS[0]} {ip} daddr @{name} ct state {{ invalid, new }}'
        rest = "icmpv6 port-unreachable" if version6 else "icmp port-unreachable"
        yield NftRule(
            chain="forward",
            name=f"no answers that no Node tracks back to the network, TCP, {ip}",
            text=f"{match} meta l4proto tcp reject with tcp reset",
            order=BEFORE_FORWARD,
        )
        yield NftRule(
            chain="forward",
            name=f"no answers that no Node tracks back to the network, {ip}",
            text=f"{match} reject with {rest}",
            order=BEFORE_FORWARD + 1,
        )


def accepted_answers(facts: Facts, mark: EgressMark) -> Iterator[Flow | Sysctl | NftElement]:
    """Yield the path of answers from the tunnel to the host, which tracks their connections; for any address of a pool on this
    Node.
    """
    config, tunnel = facts.get(AgentConfig), facts.get(OvsPort, TUNNEL_PORT)
    gateway = facts.get(OvsPort, config.host_gateway) if config else None
    if gateway is None or tunnel is None or not any(row.pool for row in facts.by(Egress, "ip", mark.ip)):
        return
    if not is_ipv6(mark.ip):
        # the way back to who answers is another
        yield Sysctl(f"net/ipv4/conf/{gateway.name}/rp_filter", "2")
    yield NftElement(set=ACCEPTED[is_ipv6(mark.ip)], value=mark.ip)
    yield flow(
        CLASSIFIER,
        Priority.HIGH,
        in_port(tunnel.ofport),
        dl_src(RELAYED_MACS[0]),
        dst(mark.ip),
        then=[
            set_eth_dst(gateway.mac),
            TARGET_OF_PORT(gateway.ofport).load,
            OUTPUT_TO_OF_PORT_REG_MARK.load,
            goto(OUTPUT),
        ],
    )


def silent_address(facts: Facts, egress: Egress) -> Iterator[NftSilence]:
    """Yield silence for an address that another Node has taken, which alone answers neighbors."""
    node = facts.get(ThisNode)
    if node and state_of(facts, egress, node) in PASSED_ON:
        yield NftSilence(egress.ip)
