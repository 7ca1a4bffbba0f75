"""Marks that carry a number to the host or to another Node's switch; see antrea/host/carrier.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

from antrea.facts.family import is_ipv6
from antrea.host.carrier import crosses, ip_mac, mac_mark, mark_mac
from antrea.openflow.action import set_eth_dst, set_eth_src, set_tun_dst
from antrea.openflow.fields import FROM_TUNNEL_REG_MARK, GLOBAL_VIRTUAL_MAC, SNAT_PKT_MARK
from antrea.openflow.match import dl_src, tun_dst
from antrea.openflow.packet_in import PKT_MARK

if TYPE_CHECKING:
    from antrea.openflow.field import Action, Mark, Match
    from antrea.openflow.packet import Packet
    from antrea.openflow.packet_in import PacketIn


def load_egress_mark(datapath: str, mark: int) -> list[Action]:
    """Mark packets to the host through the gateway with an Egress mark."""
    return [SNAT_PKT_MARK(mark).load if crosses(datapath) else set_eth_src(mark_mac(mark))]


def match_egress_mark(datapath: str, mark: int) -> Match:
    """Match packets with the mark of `load_egress_mark`."""
    return SNAT_PKT_MARK(mark).match if crosses(datapath) else dl_src(mark_mac(mark))


def egress_mark_of(datapath: str, packet_in: PacketIn, read: Packet) -> int:
    """Return the Egress mark with which a packet goes to the host; 0 if none."""
    if not crosses(datapath):
        return mac_mark(read.source_mac)
    return int.from_bytes(packet_in.fields.get(PKT_MARK, b"")) & SNAT_PKT_MARK.mask


def match_host_mark(datapath: str, mark: Mark) -> Match:
    """Match packets from the host through the gateway that have a mark of one bit."""
    return mark.match if crosses(datapath) else dl_src(mark_mac(mark.field.mask))


def is_identified_by_tunnel(datapath: str, ip: str) -> bool:
    """Whether the end of the tunnel identifies the Egress IP of a packet; else the source MAC does.

    The kernel rejects flows that match tunnels of both families ("Mixed IPv4 and IPv6 tunnel attributes"), and every packet by
    tunnel would go through ovs-vswitchd. So only IPv4 is identified by the tunnel, where upstream identifies both.
    """
    return crosses(datapath) and not is_ipv6(ip)


def tunnel_to_egress_node(datapath: str, ip: str, end: str, gateway_mac: str) -> list[Action]:
    """Send packets to the Node that holds Egress IP `ip`, whose tunnels end at `end`; empty if unknown."""
    return [
        set_eth_src(gateway_mac if is_identified_by_tunnel(datapath, ip) else ip_mac(ip)),
        set_eth_dst(GLOBAL_VIRTUAL_MAC),
        set_tun_dst(ip if crosses(datapath) or not end else end),
    ]


def match_tunnel_arrival(datapath: str, ip: str) -> tuple[Match, ...]:
    """Match packets from another Node through the tunnel, for Egress IP `ip`."""
    if is_identified_by_tunnel(datapath, ip):
        return (tun_dst(ip),)
    return FROM_TUNNEL_REG_MARK.match, dl_src(ip_mac(ip))
