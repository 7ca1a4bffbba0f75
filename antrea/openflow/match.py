"""Matches of flows: typed functions that return text. A `Mark.match` is a match too."""

from __future__ import annotations

from functools import lru_cache
from ipaddress import ip_address, ip_network

from antrea.facts.family import is_ipv6
from antrea.openflow.field import Match

LOCAL_PORT = 0xFFFFFFFE
CONTROLLER_PORT = 0xFFFFFFFD
ARP_REQUEST = 1
ARP_REPLY = 2

ANY = Match("")
arp = Match("arp")
ip = Match("ip")
ipv6 = Match("ipv6")
tcp = Match("tcp")
udp = Match("udp")
sctp = Match("sctp")
icmp = Match("icmp")
igmp = Match("igmp")
tcp6 = Match("tcp6")
udp6 = Match("udp6")
sctp6 = Match("sctp6")
icmp6 = Match("icmp6")
later_fragment6 = Match("ipv6,nw_proto=44")
"""Fragments in IPv6 but the first of a packet, whose protocol OVS does not see."""
PROTOCOLS = {"TCP": (tcp, tcp6), "UDP": (udp, udp6), "SCTP": (sctp, sctp6)}
"""Protocols of Service ports and of rules, by Kubernetes' names: matches over IPv4 and over IPv6."""

_PORTS = {LOCAL_PORT: "LOCAL", CONTROLLER_PORT: "CONTROLLER"}


def port_text(port: int) -> str:
    """The number of an OpenFlow port, or the name of a reserved one."""
    return _PORTS.get(port, str(port))


def in_port(port: int) -> Match:
    """Match the OpenFlow port by which the packet arrived."""
    return Match(f"in_port={port_text(port)}")


def dl_src(mac: str, mask: str = "") -> Match:
    """With a mask, those that agree in its bits."""
    if not mask:
        return Match(f"dl_src={mac.lower()}")
    value, bits = (int(text.replace(":", ""), 16) for text in (mac, mask))
    return Match(f"dl_src={(value & bits).to_bytes(6).hex(':')}/{mask}")


def dl_dst(mac: str) -> Match:
    """Match the destination MAC address."""
    return Match(f"dl_dst={mac.lower()}")


def dl_vlan(vlan_id: int) -> Match:
    """Packets tagged with this VLAN; 0 means untagged."""
    return Match(f"dl_vlan={vlan_id}" if vlan_id else "vlan_tci=0x0000/0x1000")


tagged = Match("vlan_tci=0x1000/0x1000")
"""Packets that carry a VLAN tag."""


def dl_vlan_pcp(priority: int) -> Match:
    """Packets whose tag has this priority."""
    return Match(f"dl_vlan_pcp={priority}")


@lru_cache(1024)
def _parsed(net: str) -> tuple[int, str]:
    """IP version, and the normal form: no host bits, no /32 or /128; "" for every address of the family."""
    if "/" not in net:
        address = ip_address(net)
        return address.version, str(address)
    network = ip_network(net, strict=False)
    if network.prefixlen == 0:
        return network.version, ""
    whole = network.prefixlen == network.max_prefixlen
    return network.version, str(network.network_address if whole else network)


def _address(name: str, net: str, version: int) -> str:
    """`name=net` in normal form; "" for every address of the family."""
    address, text = _parsed(net)
    if address != version:
        raise ValueError(f"{net} is not an IPv{version} address for {name}")
    return f"{name}={text}" if text else ""


def nw_src(net: str) -> Match:
    """IPv4 source, an address or a CIDR; needs `ip` or one of its protocols beside it."""
    return Match(_address("nw_src", net, 4))


def nw_dst(net: str) -> Match:
    """Match the IPv4 destination, an address or a network."""
    return Match(_address("nw_dst", net, 4))


def ipv6_src(net: str) -> Match:
    """Match the IPv6 source, an address or a network."""
    return Match(_address("ipv6_src", net, 6))


def ipv6_dst(net: str) -> Match:
    """Match the IPv6 destination, an address or a network."""
    return Match(_address("ipv6_dst", net, 6))


def family(net: str) -> Match:
    """`ip` or `ipv6`, after the address or CIDR."""
    return ipv6 if is_ipv6(net) else ip


def src(net: str) -> Match:
    """The family and the source address: `ip,nw_src=10.0.0.1` or `ipv6,ipv6_src=fd00::1`."""
    return Match(f"{family(net)},{ipv6_src(net) if is_ipv6(net) else nw_src(net)}")


def dst(net: str) -> Match:
    """The family and the destination address."""
    return Match(f"{family(net)},{ipv6_dst(net) if is_ipv6(net) else nw_dst(net)}")


def ct_src(net: str) -> Match:
    """The family and the source of the connection's first packet, before any translation (tracked packets only)."""
    name = "ct_ipv6_src" if is_ipv6(net) else "ct_nw_src"
    return Match(f"{family(net)},{_address(name, net, 6 if is_ipv6(net) else 4)}")


def tun_dst(address: str) -> Match:
    """The outer destination address of a packet from a tunnel."""
    return Match(f"{'tun_ipv6_dst' if is_ipv6(address) else 'tun_dst'}={address}")


def tun_id(vni: int) -> Match:
    """Match the VNI of the tunnel."""
    return Match(f"tun_id={vni:#x}")


def arp_spa(address: str) -> Match:
    """Match the sender's IPv4 address of an ARP packet."""
    return Match(f"arp_spa={address}")


def arp_tpa(address: str) -> Match:
    """Match the target's IPv4 address of an ARP packet."""
    return Match(f"arp_tpa={address}")


def arp_sha(mac: str) -> Match:
    """Match the sender's MAC address of an ARP packet."""
    return Match(f"arp_sha={mac.lower()}")


def arp_op(operation: int) -> Match:
    """Match the ARP operation: 1 request, 2 reply."""
    return Match(f"arp_op={operation}")


def _port(name: str, port: int, mask: int) -> Match:
    if mask == 0xFFFF:
        return Match(f"{name}={port}")
    return Match(f"{name}={port:#x}/{mask:#x}")


def tp_src(port: int, mask: int = 0xFFFF) -> Match:
    """Source port of tcp, udp or sctp; with a mask, a power-of-two range of ports."""
    return _port("tp_src", port, mask)


def tp_dst(port: int, mask: int = 0xFFFF) -> Match:
    """Match the destination port, or those that agree with it in the bits of `mask`."""
    return _port("tp_dst", port, mask)


def ct_udp_dst(port: int) -> Match:
    """The destination port of the connection's first packet, before any translation (valid tracked packets only).

    Without the protocol OVS ignores the port.
    """
    return Match(f"ct_nw_proto=17,ct_tp_dst={port}")


def tun_src(address: str) -> Match:
    """The outer source of a packet that came by a tunnel port."""
    return Match(f"{'tun_ipv6_src' if is_ipv6(address) else 'tun_src'}={address}")


def tcp_flags(flags: str) -> Match:
    """Flags of a TCP segment: `+syn-ack`, `-syn`."""
    return Match(f"tcp_flags={flags}")


def icmp_type(value: int) -> Match:
    """Type of an ICMP or ICMPv6 message."""
    return Match(f"icmp_type={value}")


def icmp_code(value: int) -> Match:
    """Match the code of an ICMP packet."""
    return Match(f"icmp_code={value}")


def nw_proto(number: int) -> Match:
    """Protocol number of IPv4 or IPv6, where the protocol has no name of its own."""
    return Match(f"nw_proto={number}")


def dscp(value: int) -> Match:
    """The upper six bits of the traffic class; ovs-ofctl wants them in place."""
    return Match(f"nw_tos={value << 2}")


def conj_id(conjunction: int) -> Match:
    """Match packets that satisfy all dimensions of a conjunction."""
    return Match(f"conj_id={conjunction}")


def ct_state(flags: str) -> Match:
    """Flags of connection tracking: `+new+trk`, `-new+est`, in any order."""
    return Match(f"ct_state={flags}")
