"""Flows by which Nodes pass packets of established connections on to the Node that tracks them, with proxyAll.

Each Node tracks the connections that began there, and answers clients itself. Packets that are not the first ones of a connection,
and of none that a switch tracks, go through the tunnel to another Node, whose switch takes them in as if they had come from outside.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from antrea.facts.ovs import OvsPort
from antrea.features.pod_connectivity.tunnel import TUNNEL_PORT
from antrea.features.proxy.host import proxies_all
from antrea.host.carrier import RELAYED_MACS, RELAYED_MASK
from antrea.openflow.action import goto, set_in_port
from antrea.openflow.cookie import Category
from antrea.openflow.fields import FROM_GATEWAY_REG_MARK
from antrea.openflow.flow import Flow, flows_of
from antrea.openflow.match import dl_src, dst, in_port
from antrea.openflow.priority import Priority
from antrea.openflow.table import Stage
from antrea.openflow.tables import CLASSIFIER

if TYPE_CHECKING:
    from collections.abc import Iterator

    from antrea.engine import Facts

LATER: Final = (("+new+trk", "-syn"), ("+inv+trk", "+fin"), ("+inv+trk", "+rst"))
"""State and flags of later packets of a TCP connection that connection tracking does not track.

Source: net/netfilter/nf_conntrack_proto_tcp.c of Linux, tcp_new; lib/conntrack-tcp.c of OVS, tcp_valid_new
"""
flow = flows_of(Category.EGRESS)


def accepted_packets(facts: Facts, ip: str) -> Iterator[Flow]:
    """Yield the flow that treats packets to an address of a Service that another Node relayed as those that come by the gateway.

    An Endpoint may be behind the tunnel that they came by, to which a switch does not send them back. What no Node tracks is
    reset by an Endpoint at the last.
    """
    config, tunnel = proxies_all(facts), facts.get(OvsPort, TUNNEL_PORT)
    gateway = facts.get(OvsPort, config.host_gateway) if config else None
    if gateway is None or tunnel is None:
        return
    yield flow(
        CLASSIFIER,
        Priority.HIGH,
        in_port(tunnel.ofport),
        dl_src(RELAYED_MACS[0], RELAYED_MASK),
        dst(ip),
        then=[set_in_port(gateway.ofport), FROM_GATEWAY_REG_MARK.load, goto(Stage.CONNTRACK_STATE)],
    )
