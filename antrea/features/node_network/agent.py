"""Host configuration with which Pods reach the host and, through it, other networks.

parity: pkg/agent/agent.go setupGatewayInterface, pkg/agent/route/route_linux.go
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from antrea.config.agent import AgentConfig
from antrea.config.tunnel import TUNNELS
from antrea.engine import Facts, Unit
from antrea.facts.family import is_ipv6
from antrea.facts.node import PeerNode, ThisNode, Transport
from antrea.facts.ovs import OvsPort, PodInterface
from antrea.features.framework.agent_feature import AgentFeature
from antrea.host.address import Address
from antrea.host.carrier import telling_entry
from antrea.host.link import Link
from antrea.host.nft import NftChain, NftElement, NftRule, NftSet, NftShield, NftTag
from antrea.host.pod_cidr import gateway_address
from antrea.host.route import Route
from antrea.host.sysctl import Sysctl
from antrea.openflow.fields import HOST_LOCAL_SOURCE
from antrea.rank import Rank

if TYPE_CHECKING:
    from collections.abc import Iterator


POD_IP_SETS = {False: "antrea-pod-ip", True: "antrea-pod-ip6"}
CHAINS = {
    "prerouting-raw": "type filter hook prerouting priority raw; policy accept;",
    "output-raw": "type filter hook output priority raw; policy accept;",
    "forward": "type filter hook forward priority filter; policy accept;",
    "output-mangle": "type route hook output priority mangle; policy accept;",
    "output": "type filter hook output priority filter; policy accept;",
    "postrouting": "type nat hook postrouting priority srcnat; policy accept;",
}


def gateway_entries(facts: Facts, node: ThisNode) -> Iterator[Link | Address | Sysctl]:
    """Yield the gateway's state: up, with the first address of each Pod CIDR, and forwarding on the host."""
    config = facts.need(AgentConfig)
    facts.need(OvsPort, config.host_gateway)
    # OVS 3.1's userspace datapath translates UDP of IPv6 whose checksum is left to a card to one with a wrong checksum
    whole = config.ovs_datapath_type == "netdev" or config.disable_tx_checksum_offload
    yield Link(config.host_gateway, node.mtu, whole_checksums=whole)
    for cidr in node.pod_cidrs:
        yield Address(config.host_gateway, gateway_address(cidr))
        if is_ipv6(cidr):
            yield Sysctl("net/ipv6/conf/all/forwarding", "1")
        else:
            yield Sysctl("net/ipv4/ip_forward", "1")
            # The gateway's address alone is announced on its link, whatever other addresses the Node has.
            yield Sysctl(f"net/ipv4/conf/{config.host_gateway}/arp_announce", "1")


def transport_entries(_facts: Facts, link: Transport) -> Iterator[Link | Address | Route | NftShield]:
    """Yield addresses and routes of br-phy while OVS owns the card; the kernel then ignores the card's frames."""
    if link.device == link.interface:
        return
    yield Link(link.device, link.mtu)
    yield Link(link.interface, 0)
    yield NftShield(link.interface)
    for address in link.addresses:
        yield Address(link.device, address)
    for destination, via in link.routes:
        default = "::/0" if is_ipv6(via) else "0.0.0.0/0"
        yield Route(dst=destination or default, dev=link.device, via=via, rank=Rank.RECEIVES)


def pod_shield(facts: Facts, pod: PodInterface) -> Iterator[NftShield]:
    """Yield the shield that keeps the kernel from answering what userspace OVS reads a copy of."""
    config = facts.get(AgentConfig)
    if config is not None and config.ovs_datapath_type == "netdev":
        yield NftShield(pod.name, pod.port_uuid)


def mark_rules(facts: Facts, _node: ThisNode) -> Iterator[NftTag]:
    """Yield marks by which OVS recognizes packets of the Node's processes."""
    config = facts.get(AgentConfig)
    if config is not None and facts.get(OvsPort, config.host_gateway) is not None:
        yield from telling_entry(config.ovs_datapath_type, config.host_gateway, HOST_LOCAL_SOURCE.mask)


def firewall_entries(facts: Facts, node: ThisNode) -> Iterator[NftChain | NftSet | NftRule]:
    """Yield chains, sets and rules that every Node has."""
    config = facts.need(AgentConfig)
    for name, hook in CHAINS.items():
        yield NftChain(name=name, hook=hook)
    gateway = f'"{config.host_gateway}"'
    yield NftRule(chain="forward", name="from Pods", text=f"iifname {gateway} accept")
    yield NftRule(chain="forward", name="to Pods", text=f"oifname {gateway} accept")
    # A packet that comes from the gateway and leaves by it again was translated on the way: the Pod must not learn a
    # short cut, which would lead around the translation.
    yield NftRule(
        chain="output", name="no redirects to Pods", text=f"oifname {gateway} icmp type redirect drop"
    )
    # By this mark OVS knows what a process of the Node sends to its Pods: kubelet's probes need no policy.
    yield NftRule(
        chain="output-mangle",
        name="Node to Pods",
        text=f"oifname {gateway} meta mark set meta mark | {HOST_LOCAL_SOURCE.mask:#x}",
    )
    yield NftRule(
        chain="output",
        name="no IPv6 redirects to Pods",
        text=f"oifname {gateway} icmpv6 type nd-redirect drop",
    )
    yield NftRule(
        chain="postrouting",
        name="Node to Pods from another address",
        text=f"oifname {gateway} fib saddr . oif type != local fib saddr type local masquerade fully-random",
    )
    if config.has_tunnel:
        port = config.tunnel_port_number
        packets = f"udp dport {port}" if port else f"meta l4proto {TUNNELS[config.tunnel_type].transport}"
        yield NftRule(
            chain="prerouting-raw", name="tunnel in", text=f"{packets} fib daddr type local notrack"
        )
        yield NftRule(chain="output-raw", name="tunnel out", text=f"{packets} fib saddr type local notrack")
    for cidr in node.pod_cidrs:
        yield from masquerade(config, cidr)


def masquerade(config: AgentConfig, cidr: str) -> Iterator[NftSet | NftRule]:
    """Yield source translation of Pods that leave the cluster, unless their addresses are routed outside (noSNAT)."""
    version6 = is_ipv6(cidr)
    name, family = POD_IP_SETS[version6], "ip6" if version6 else "ip"
    yield NftSet(name=name, type="ipv6_addr" if version6 else "ipv4_addr", flags=("interval",))
    if config.no_snat:
        return
    random = " fully-random" if config.snat_fully_random_ports else ""
    yield NftRule(
        chain="postrouting",
        name=f"Pods to outside, {family}",
        text=f'{family} saddr {cidr} {family} daddr != @{name} oifname != "{config.host_gateway}" masquerade{random}',
    )


def pod_addresses(facts: Facts, node: ThisNode | PeerNode) -> Iterator[NftElement]:
    """Yield addresses of the cluster's Pods, to which packets keep their source."""
    families = facts.need(ThisNode).families
    for cidr in node.pod_cidrs:
        if is_ipv6(cidr) in families:
            yield NftElement(set=POD_IP_SETS[is_ipv6(cidr)], value=cidr)


FEATURE = AgentFeature(
    name="NodeNetwork",
    units=(
        Unit(ThisNode, gateway_entries),
        Unit(ThisNode, firewall_entries),
        Unit(ThisNode, mark_rules),
        Unit(ThisNode, pod_addresses),
        Unit(PeerNode, pod_addresses),
        Unit(Transport, transport_entries),
        Unit(PodInterface, pod_shield),
    ),
)
FEATURES = (FEATURE,)
