"""Blocks of source ports on the Nodes: the port range of each Pod, and static translation of both directions by the gateway.

A gateway that takes an address over translates connections from the middle. The port of an answer names its Pod, whether the
answer or the Pod's next packet comes first, and the Pod's own port is kept. TCP segments with SYN from outside are not passed on,
and no datagrams of UDP, and the switch of the Pod drops segments of connections that it does not track: nothing new reaches a Pod. What has no block gets ports that are in none, so that no answer to it can
reach another Pod.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from antrea.config.agent import AgentConfig
from antrea.facts.egress import Egress, EgressMark, EgressPortBlock
from antrea.facts.family import is_ipv6
from antrea.features.egress.agent.allocated import unallocated_reason
from antrea.features.egress.agent.snat_mark import BEFORE_FORWARD, BEFORE_MASQUERADE, MAPS, MARK, POOL
from antrea.features.egress.agent.unknown_segment import may_hold
from antrea.features.egress.port_block import OTHER_PORTS, SIZE, blocks_of
from antrea.host.nft import NftChain, NftElement, NftRule, NftSet
from antrea.host.pod_sysctl import PodSysctl
from antrea.host.sysctl import Sysctl
from antrea.openflow.action import DROP
from antrea.openflow.cookie import Category
from antrea.openflow.fields import FROM_GATEWAY_REG_MARK, FROM_TUNNEL_REG_MARK
from antrea.openflow.flow import Flow, flows_of
from antrea.openflow.match import PROTOCOLS, ct_state, dst, tcp_flags, tp_dst
from antrea.openflow.priority import Priority
from antrea.openflow.tables import CONNTRACK_STATE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from antrea.apis.crd import egress as crd
    from antrea.engine import Facts
    from antrea.facts.node import ThisNode
    from antrea.facts.ovs import PodInterface

flow = flows_of(Category.EGRESS)
OUT: Final = {False: "egress-block", True: "egress-block6"}
"""Maps: an Egress IP's mark, a Pod's address and a port of its block lead to the chain of the block."""
BACK: Final = {False: "egress-block-pod", True: "egress-block-pod6"}
"""Maps: an Egress IP and a port of a block lead to the Pod."""
ENDS: Final = {False: "egress-block-end", True: "egress-block-end6"}
"""Sets of the keys of `OUT`: a chain that translates, which is of type nat, is not for packets of no connection."""
OTHERS: Final = "egress-other-ports"
"""Set of marks of addresses with blocks."""
CHAIN: Final = NftChain(
    name="egress-prerouting", hook="type nat hook prerouting priority dstnat; policy accept;"
)
END_CHAIN: Final = NftChain(
    name="egress-ends", hook="type filter hook prerouting priority mangle + 10; policy accept;"
)
END: Final = "ct state invalid tcp flags & (fin | rst) != 0x0 tcp flags & syn == 0x0"
"""Match of segments with FIN or RST of no connection, which connection tracking does not begin with them."""
PORT_RANGE: Final = "net/ipv4/ip_local_port_range"
"""Setting of both families; by default 32768 to 60999. Source: Documentation/networking/ip-sysctl.rst of Linux"""
REUSE: Final = "net/ipv4/tcp_tw_reuse"
"""With 1 a port is used again for the same destination 1 s after its connection was closed, not 60 s: a block is small."""


def port_block_rows(stored: crd.Egress) -> tuple[EgressPortBlock, ...]:
    """Make a row for each block of a Pod that runs."""
    return tuple(
        EgressPortBlock(stored.metadata.name, block.pod, block.first, block.last, block.ips)
        for block in blocks_of(stored.status)
        if not block.released
    )


def port_block_rules(facts: Facts, node: ThisNode) -> Iterator[NftChain | NftSet | NftRule]:
    """Yield chain, sets and rules, whatever blocks there are."""
    config = facts.get(AgentConfig)
    if config is None:
        return
    yield CHAIN
    yield NftSet(name=OTHERS, type="mark")
    inside = f'"{config.host_gateway}"'
    for version6 in sorted(node.families):
        ip, kind = ("ip6", "ipv6_addr") if version6 else ("ip", "ipv4_addr")
        ports = f"{kind} . inet_service"
        yield NftSet(name=OUT[version6], type=f"mark . {ports}", data="verdict", flags=("interval",))
        yield NftSet(name=BACK[version6], type=ports, data=kind, flags=("interval",))
        yield NftRule(
            chain="postrouting",
            name=f"Pods with a block of ports of an Egress IP, {ip}",
            text=f"oifname != {inside} meta l4proto {{ tcp, udp }} {MARK} . {ip} saddr . th sport vmap @{OUT[version6]}",
            order=BEFORE_MASQUERADE - 2,
        )
        yield NftRule(
            chain="postrouting",
            name=f"others to ports of no block, {ip}",
            text=f"oifname != {inside} {MARK} @{OTHERS} {_translation(OTHER_PORTS, version6=version6)}",
            order=BEFORE_MASQUERADE - 1,
        )
        yield NftRule(
            chain=CHAIN.name,
            name=f"answers of connections of another gateway, {ip}",
            text=(
                f"iifname != {inside} tcp flags & (fin | syn | rst | ack) == ack"
                f" dnat {ip} to {ip} daddr . tcp dport map @{BACK[version6]}"
            ),
        )


def end_rules(facts: Facts, node: ThisNode) -> Iterator[NftChain | NftSet | NftRule]:
    """Yield rules that translate ends of connections of another gateway, packet by packet: nothing is to follow them."""
    config = facts.get(AgentConfig)
    if config is None:
        return
    yield END_CHAIN
    inside = f'"{config.host_gateway}"'
    for version6 in sorted(node.families):
        ip, kind = ("ip6", "ipv6_addr") if version6 else ("ip", "ipv4_addr")
        yield NftSet(name=ENDS[version6], type=f"mark . {kind} . inet_service", flags=("interval",))
        yield NftRule(
            chain=END_CHAIN.name,
            name=f"ends of connections of another gateway to Pods, {ip}",
            text=f"iifname != {inside} {END} {ip} daddr set {ip} daddr . tcp dport map @{BACK[version6]}",
        )
        yield NftRule(
            chain="forward",
            name=f"ends of connections of another gateway from Pods, {ip}",
            text=(
                f"iifname {inside} oifname != {inside} {END} {MARK} . {ip} saddr . tcp sport @{ENDS[version6]}"
                f" {ip} saddr set {MARK} map @{MAPS[version6]} accept"
            ),
            order=BEFORE_FORWARD,
        )


def _translation(ports: tuple[int, int], *, version6: bool) -> str:
    """Return a rule that translates to the address of a mark, and keeps a port that is one of these and free."""
    ip, number = ("ip6", 6) if version6 else ("ip", 4)
    packets = f"meta nfproto ipv{number} meta l4proto {{ tcp, udp }}"
    return f"{packets} snat {ip} to {MARK} map @{MAPS[version6]}:{ports[0]}-{ports[1]}"


def port_block_elements(facts: Facts, block: EgressPortBlock) -> Iterator[NftChain | NftRule | NftElement]:
    """Yield the translation of a Pod's block for each address of its Egress on this Node, with the address's mark.

    nft 1.0.6 does not translate to ranges of ports of a map in IPv6: each block has a chain, which all Egresses share.
    """
    for row in facts.by(Egress, "name", block.egress):
        if not row.survives or unallocated_reason(facts, row) or facts.get(EgressMark, row.ip) is None:
            continue
        version6, ports = is_ipv6(row.ip), f"{block.first}-{block.last}"
        chain = NftChain(name=f"egress-ports-{block.first}")
        yield chain
        text = _translation((block.first, block.last), version6=version6)
        yield NftRule(chain=chain.name, name=f"{'ip6' if version6 else 'ip'} {ports}", text=text)
        mark = f"{facts.id(POOL, row.ip):#010x}"
        for ip in (ip for ip in block.ips if is_ipv6(ip) == version6):
            yield NftElement(set=OUT[version6], value=f"{mark} . {ip} . {ports}", data=f"jump {chain.name}")
            yield NftElement(set=ENDS[version6], value=f"{mark} . {ip} . {ports}")


def answer_elements(facts: Facts, block: EgressPortBlock) -> Iterator[NftElement]:
    """Yield the way of answers to a Pod, on each Node that may take the address over: they may come as soon as it has it."""
    for row in facts.by(Egress, "name", block.egress):
        if not row.survives or unallocated_reason(facts, row) or not may_hold(facts, row):
            continue
        for ip in (ip for ip in block.ips if is_ipv6(ip) == is_ipv6(row.ip)):
            yield NftElement(set=BACK[is_ipv6(ip)], value=f"{row.ip} . {block.first}-{block.last}", data=ip)


def other_ports(facts: Facts, mark: EgressMark) -> Iterator[NftElement]:
    """Yield the mark of an address of which one Egress gives blocks."""
    rows = facts.by(Egress, "ip", mark.ip)
    if any(row.survives and not unallocated_reason(facts, row) for row in rows):
        yield NftElement(set=OTHERS, value=f"{facts.id(POOL, mark.ip):#010x}")


def liberal_tracking(facts: Facts, mark: EgressMark) -> Iterator[Sysctl]:
    """Yield the setting without which an entry that is older than a stay of the address elsewhere calls its packets invalid."""
    if any(row.survives or row.copies for row in facts.by(Egress, "ip", mark.ip)):
        yield Sysctl("net/netfilter/nf_conntrack_tcp_be_liberal", "1")


def unknown_answer_flows(facts: Facts, pod: PodInterface) -> Iterator[Flow]:
    """Yield flows that drop TCP segments to a port of its block whose connection the switch of the Pod does not track.

    At the gateway an answer does not differ from a segment of any host outside. If it were let in, packets of the Pod would be
    replies, which pass policies.
    """
    block = block_of(facts, pod.pod)
    if block is None:
        return
    for ip in pod.ips:
        for source in (FROM_TUNNEL_REG_MARK, FROM_GATEWAY_REG_MARK):
            yield flow(
                CONNTRACK_STATE,
                Priority.NORMAL,
                PROTOCOLS["TCP"][is_ipv6(ip)],
                tcp_flags("-syn"),
                ct_state("+new+trk"),
                source.match,
                dst(ip),
                tp_dst(block.first, 0x10000 - SIZE),
                then=DROP,
            )


def pod_port_range(facts: Facts, pod: PodInterface) -> Iterator[PodSysctl]:
    """Yield the settings of a Pod with a block, before or after it has started."""
    block = block_of(facts, pod.pod)
    if block is None or not pod.netns:
        return
    ports = f"{block.first}\t{block.last}"
    yield PodSysctl(netns=pod.netns, path=PORT_RANGE, value=ports, default="32768\t60999")
    yield PodSysctl(netns=pod.netns, path=REUSE, value="1", default="2")


def block_of(facts: Facts, pod: str) -> EgressPortBlock | None:
    """Return the ports that a Pod, by namespace/name, uses; None if it may use any."""
    rows = (row for row in facts.by(EgressPortBlock, "pod", pod) if _survives(facts, row.egress))
    return min(rows, key=lambda row: row.egress, default=None)


def _survives(facts: Facts, egress: str) -> bool:
    return any(row.survives for row in facts.by(Egress, "name", egress))
