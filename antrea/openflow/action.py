"""Actions of flows: typed functions that return text. A `Mark.load` is an action too."""

from __future__ import annotations

from functools import lru_cache

from antrea.facts.family import is_ipv6
from antrea.openflow.field import Action, Field
from antrea.openflow.match import port_text
from antrea.openflow.table import Table, Target, after, symbol

DROP: tuple[Action, ...] = ()
"""No action at all: the packet is dropped."""

NORMAL = Action("NORMAL")
"""Switch as a learning switch would."""
IN_PORT = Action("IN_PORT")
"""Send the packet out of the port it came in by, which `output` refuses to do."""
DEC_TTL = Action("dec_ttl")
POP_VLAN = Action("pop_vlan")
PUSH_VLAN = Action("push_vlan:0x8100")

ETH_SRC = "NXM_OF_ETH_SRC[]"
ETH_SRC_END = "NXM_OF_ETH_SRC[0..11]"
"""Last bits of the source MAC, as many as a VLAN id has."""
ETH_DST = "NXM_OF_ETH_DST[]"
ARP_SHA = "NXM_NX_ARP_SHA[]"
ARP_THA = "NXM_NX_ARP_THA[]"
ARP_SPA = "NXM_OF_ARP_SPA[]"
ARP_TPA = "NXM_OF_ARP_TPA[]"
VLAN_VID = "OXM_OF_VLAN_VID[0..11]"
IP_DST = "NXM_OF_IP_DST[]"
IPV6_DST = "NXM_NX_IPV6_DST[]"
TCP_DST = "NXM_OF_TCP_DST[]"
UDP_DST = "NXM_OF_UDP_DST[]"
CT_NW_DST = "NXM_NX_CT_NW_DST[]"
"""Where a connection's first packet was sent to, before any translation; the next two likewise."""
CT_IPV6_DST = "NXM_NX_CT_IPV6_DST[]"
CT_TP_DST = "NXM_NX_CT_TP_DST[]"

CONTROLLER_ID = 32776
"""Connection that receives packet-ins: the agent's own (pkg/ovs/openflow/ofctrl_action.go)."""


def goto(target: Target) -> Action:
    """Continue in a later table, by name, by stage, or in the next one; ends the list of actions."""
    return Action(f"goto_table:{symbol(target)}")


def resubmit(target: Target) -> Action:
    """Run a table, earlier ones too, then come back to the rest of this list."""
    return Action(f"resubmit(,{symbol(target)})")


def resubmit_after(table: Table) -> Action:
    """Run the table that follows `table`; for group buckets, which are in no table."""
    return Action(f"resubmit(,{after(table)})")


def output(port: int | Field) -> Action:
    """Send to a port, or to the port whose number a register holds."""
    if isinstance(port, Field):
        return Action(f"output:{port.nxm}")
    return Action(f"output:{port_text(port)}")


def group(group_id: int) -> Action:
    """Process the packet by a group."""
    return Action(f"group:{group_id}")


def meter(meter_id: int) -> Action:
    """Drop what is above the rate of the meter; stands before the action it limits."""
    return Action(f"meter:{meter_id}")


def clone(*actions: Action) -> Action:
    """Do this to a copy: what follows in the list is as without it."""
    return Action(f"clone({','.join(actions)})")


CONJUNCTIONS = 4000
"""Maximum number of conjunctions of a flow: each takes 16 bytes of an OpenFlow message, which has 64 KiB; in a longer one OVS may read another flow."""


@lru_cache(8192)  # each member of a group has the same one, and 10,000 of them need no copies
def conjunction(conjunction_id: int, clause: int, clauses: int) -> Action:
    """This match satisfies clause `clause` (from 1) of `clauses`; two clauses at least (ovs-actions(7))."""
    if not 1 <= clause <= clauses or not 2 <= clauses <= 64:
        raise ValueError(f"clause {clause} of {clauses} is not a conjunction")
    return Action(f"conjunction({conjunction_id},{clause}/{clauses})")


def controller(*userdata: int, pause: bool = False) -> Action:
    """Send the packet to the agent; the first byte names the category, see `PacketIn`.

    `pause` holds the packet until the agent resumes it.
    """
    data = ".".join(f"{byte:02x}" for byte in userdata)
    held = ",pause" if pause else ""
    return Action(f"controller(id={CONTROLLER_ID},reason=no_match,userdata={data},max_len=65535{held})")


def move(source: str | Field, target: str | Field) -> Action:
    """Copy bits between fields of the same width; text names a packet field such as `ETH_SRC`."""
    return Action(f"move:{_nxm(source)}->{_nxm(target)}")


def _nxm(field: str | Field) -> str:
    return field.nxm if isinstance(field, Field) else field


def set_in_port(port: int) -> Action:
    """Set the port that the switch takes for the packet's input port; it does not output the packet there."""
    return Action(f"set_field:{port}->in_port")


def set_eth_src(mac: str) -> Action:
    """Set the source MAC address."""
    return Action(f"set_field:{mac.lower()}->eth_src")


def set_eth_dst(mac: str) -> Action:
    """Set the destination MAC address."""
    return Action(f"set_field:{mac.lower()}->eth_dst")


def set_arp_op(operation: int) -> Action:
    """Set the ARP operation: 1 request, 2 reply."""
    return Action(f"set_field:{operation}->arp_op")


def set_arp_sha(mac: str) -> Action:
    """Set the sender's MAC address of an ARP packet."""
    return Action(f"set_field:{mac.lower()}->arp_sha")


def set_arp_spa(address: str) -> Action:
    """Set the sender's IPv4 address of an ARP packet."""
    return Action(f"set_field:{address}->arp_spa")


def set_dst(address: str) -> Action:
    """Set the destination address of IP; the flow has to match the family."""
    return Action(f"set_field:{address}->{'ipv6_dst' if ':' in address else 'ip_dst'}")


def set_tun_dst(address: str) -> Action:
    """The outer destination of a packet that leaves by the tunnel port."""
    return Action(f"set_field:{address}->{'tun_ipv6_dst' if is_ipv6(address) else 'tun_dst'}")


def set_tun_id(vni: int) -> Action:
    """Set the VNI of the tunnel."""
    return Action(f"set_field:{vni:#x}->tun_id")


def set_vlan(vlan_id: int) -> Action:
    """The id of the tag that `PUSH_VLAN` made; bit 12 is set if there is a tag."""
    return Action(f"set_field:{0x1000 | vlan_id}->vlan_vid")


def set_vlan_priority(priority: int) -> Action:
    """Set the priority of the tag that `PUSH_VLAN` made."""
    return Action(f"set_field:{priority}->vlan_pcp")


def set_dscp(value: int) -> Action:
    """Set the DSCP, the upper six bits of the IP header's traffic class."""
    return Action(f"set_field:{value}->ip_dscp")
