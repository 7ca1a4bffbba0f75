"""What flows do so that a number crosses to the host or to another Node's switch; see antrea/host/carrier.py."""

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


def marked(datapath: str, mark: int) -> list[Action]:
    """To the host by the gateway, with an Egress mark."""
    return [SNAT_PKT_MARK(mark).load if crosses(datapath) else set_eth_src(mark_mac(mark))]


def has_mark(datapath: str, mark: int) -> Match:
    """What `marked` did to a packet."""
    return SNAT_PKT_MARK(mark).match if crosses(datapath) else dl_src(mark_mac(mark))


def mark_of(datapath: str, found: PacketIn, read: Packet) -> int:
    """The Egress mark with which a packet goes to the host; 0: none."""
    if not crosses(datapath):
        return mac_mark(read.source_mac)
    return int.from_bytes(found.fields.get(PKT_MARK, b"")) & SNAT_PKT_MARK.mask


def told(datapath: str, mark: Mark) -> Match:
    """From the host by the gateway, with a mark of one bit."""
    return mark.match if crosses(datapath) else dl_src(mark_mac(mark.field.mask))


def ends_at(datapath: str, ip: str) -> bool:
    """Whether the end of the tunnel identifies the Egress IP of a packet; else the source MAC does.

    The kernel takes no flow that looks at tunnels of both families ("Mixed IPv4 and IPv6 tunnel attributes"), and every
    packet by tunnel would go through ovs-vswitchd. So only IPv4 is identified by the tunnel, where upstream identifies both.
    """
    return crosses(datapath) and not is_ipv6(ip)


def tunnelled(datapath: str, ip: str, end: str, gateway_mac: str) -> list[Action]:
    """To the Node that holds Egress IP `ip`, whose tunnels end at `end`; empty: unknown."""
    return [
        set_eth_src(gateway_mac if ends_at(datapath, ip) else ip_mac(ip)),
        set_eth_dst(GLOBAL_VIRTUAL_MAC),
        set_tun_dst(ip if crosses(datapath) or not end else end),
    ]


def arrived(datapath: str, ip: str) -> tuple[Match, ...]:
    """From another Node by the tunnel, for Egress IP `ip`."""
    if ends_at(datapath, ip):
        return (tun_dst(ip),)
    return FROM_TUNNEL_REG_MARK.match, dl_src(ip_mac(ip))
