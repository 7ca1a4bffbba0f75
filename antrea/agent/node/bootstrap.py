"""Preparation of the Node before the first unit runs: the transport interface, the bridges, the gateway and the tunnel port.

parity: pkg/agent/agent.go Initializer
"""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING

import msgspec

from antrea.config.tunnel import tunnel_overhead
from antrea.errors import Invalid, Unavailable
from antrea.facts.family import is_ipv6, one_per_family
from antrea.facts.node import ThisNode, Transport
from antrea.features.framework.address import canonical
from antrea.features.framework.config_validation import GRE_OVER_IPV6
from antrea.features.pod_connectivity.tunnel import TUNNEL_PORT, tunnel_port
from antrea.host.ovs_port import TYPE_KEY, Bridge, Port
from antrea.host.physical_bridge import PHYSICAL_BRIDGE, HeldCard
from antrea.outside.netlink import transport_interface
from antrea.outside.netlink.pod_veth import random_mac
from antrea.outside.ovsdb import write as ovsdb_write

if TYPE_CHECKING:
    from antrea.apis.core import Node
    from antrea.config.agent import AgentConfig
    from antrea.outside.ovsdb.client import Ovsdb

GATEWAY_OFPORT = 32769  # parity: pkg/agent/config/node_config.go
MAX_TUNNEL_MTU = 65000
IPV6_MIN_MTU = 1280


class Prepared(msgspec.Struct, frozen=True):
    """Result of the preparation, from which the agent is assembled."""

    node: ThisNode
    transport: Transport | None
    """None on a machine outside the cluster, which has no tunnels."""
    cookie_round: int


def node_addresses(node: Node, kind: str = "InternalIP") -> tuple[str, ...]:
    """Return the Node's addresses of a type, one of each family; kubelet may write any text there."""
    addresses = (canonical(address.address) for address in node.status.addresses if address.type == kind)
    return one_per_family(filter(None, addresses))


def pod_mtu(config: AgentConfig, card_mtu: int, tunnel_ips: tuple[str, ...]) -> int:
    """Return the MTU of Pod interfaces: configured, or the transport interface's less what the tunnel adds.

    Raises Invalid when IPv6 Pods could not work with it (RFC 8200: 1280 at least).
    parity: pkg/agent/config/node_config.go CalculateMTUDeduction
    """
    if config.default_mtu:
        return config.default_mtu
    if not config.has_tunnel:
        return card_mtu
    return min(card_mtu - tunnel_overhead(config.tunnel_type, tunnel_ips), MAX_TUNNEL_MTU)


def tunnel_ends(config: AgentConfig, held: tuple[str, ...], node_ips: tuple[str, ...]) -> tuple[str, ...]:
    """Return the addresses where tunnels to this Node end, one per family; `held` are those of the interface, with prefix
    length.

    If transportInterfaceCIDRs chose the interface, only addresses in them count: naming one family leaves the other out.
    parity: pkg/agent/util/net.go GetIPNetDeviceByCIDRs
    """
    addresses = [ipaddress.ip_interface(address).ip for address in held]
    if not config.transport_interface:
        if not config.transport_interface_cidrs:
            return node_ips
        networks = [ipaddress.ip_network(cidr) for cidr in config.transport_interface_cidrs]
        addresses = [ip for ip in addresses if any(ip in network for network in networks)]
    return one_per_family(tuple(str(ip) for ip in addresses))


async def prepare(config: AgentConfig, node: Node, db: Ovsdb) -> Prepared:
    """Create or correct bridges and ports; idempotent, and existing ones keep forwarding.

    Raises Invalid, Refused, Unavailable.
    """
    cidrs = one_per_family(node.spec.pod_cidrs)
    if not cidrs:
        raise Unavailable(
            f"podCIDR of Node {node.metadata.name} (kube-controller-manager allocates it with --allocate-node-cidrs, or "
            "antrea-controller with nodeIPAM.enableNodeIPAM)"
        )
    node_ips = node_addresses(node)
    link = await find_transport(config, db, node_ips)
    if config.ovs_datapath_type == "netdev":
        await take_over_card(db, link)
    ends = tunnel_ends(config, link.addresses, node_ips)
    if not ends:
        raise Invalid("transportInterface", f"{link.interface} has no address that tunnels could end at")
    if config.has_tunnel and config.tunnel_type == "gre" and all(map(is_ipv6, ends)):
        raise Invalid("tunnelType", GRE_OVER_IPV6)
    mtu = pod_mtu(config, link.mtu, ends)
    if any(is_ipv6(cidr) for cidr in cidrs) and mtu < IPV6_MIN_MTU:
        raise Invalid("defaultMTU", f"{mtu} is too small for IPv6 Pods, which need {IPV6_MIN_MTU}")
    await integration_bridge(config, db, mtu)
    return Prepared(
        node=ThisNode(
            name=node.metadata.name,
            pod_cidrs=cidrs,
            node_ips=node_ips,
            transport_ips=ends,
            uid=node.metadata.uid,
            mtu=mtu,
        ),
        transport=link,
        cookie_round=await ovsdb_write.next_round(db, config.ovs_bridge),
    )


async def find_transport(config: AgentConfig, db: Ovsdb, node_ips: tuple[str, ...]) -> Transport:
    """Find the interface that reaches other Nodes, and its addresses, also if an earlier start moved them to br-phy.

    Raises Invalid if the configuration names another interface than the one that br-phy holds: moving to it would cut the Node
    off while Pods run.
    """
    cards = await transport_interface.cards()
    bridge = db.row("Bridge", PHYSICAL_BRIDGE) if config.ovs_datapath_type == "netdev" else None
    held = HeldCard.of(bridge["external_ids"]) if bridge else None
    if held:
        name = held.interface
        if config.transport_interface not in ("", name):
            raise Invalid(
                "transportInterface",
                f"{config.transport_interface} cannot replace {name}, which {PHYSICAL_BRIDGE} holds: "
                f"drain the Node, delete {PHYSICAL_BRIDGE} and restart it",
            )
        card = transport_interface.choose(cards, interface=name, cidrs=(), node_ips=())
        addresses, routes = held.addresses, held.routes
    else:
        card = transport_interface.choose(
            cards,
            interface=config.transport_interface,
            cidrs=config.transport_interface_cidrs,
            node_ips=node_ips,
        )
        addresses, routes = card.addresses, card.routes
    device = PHYSICAL_BRIDGE if config.ovs_datapath_type == "netdev" else card.name
    return Transport(
        interface=card.name,
        device=device,
        mac=card.mac,
        mtu=card.mtu,
        addresses=tuple(sorted(addresses, key=lambda a: ipaddress.ip_interface(a).version)),
        routes=routes,
    )


async def take_over_card(db: Ovsdb, link: Transport) -> None:
    """Move the transport interface and its addresses to br-phy: userspace tunnels leave only through a bridge that holds their
    address.

    The addresses are saved in OVSDB before they are removed from the interface, so that they survive a crash of the agent.
    """
    bridge = Bridge(
        name=PHYSICAL_BRIDGE,
        datapath_type="netdev",
        fail_mode="standalone",
        other_config=(("hwaddr", link.mac),),
        external_ids=HeldCard(link.interface, link.addresses, link.routes).external_ids(),
    )
    await ovsdb_write.ensure_bridge(db, bridge)
    internal = Port(name=PHYSICAL_BRIDGE, type="internal", mtu=link.mtu)
    await ovsdb_write.ensure_port(db, PHYSICAL_BRIDGE, internal)
    await ovsdb_write.ensure_port(db, PHYSICAL_BRIDGE, Port(name=link.interface))
    await ovsdb_write.realized(db)
    await transport_interface.flush_addresses(link.interface)


async def integration_bridge(config: AgentConfig, db: Ovsdb, mtu: int) -> None:
    """Create or correct the integration bridge with the gateway and, where there are tunnels, their port; numbers and MAC
    addresses are kept.
    """
    row = db.row("Bridge", config.ovs_bridge)
    datapath_id = row["other_config"].get("datapath-id") if row else None
    bridge = Bridge(
        name=config.ovs_bridge,
        datapath_type=config.ovs_datapath_type,
        fail_mode="secure",
        other_config=(("datapath-id", datapath_id or "0000" + random_mac().replace(":", "")),),
    )
    await ovsdb_write.ensure_bridge(db, bridge)
    if config.has_tunnel:
        await ovsdb_write.ensure_port(db, config.ovs_bridge, tunnel_port(config))
    else:
        await ovsdb_write.drop_ports(db, config.ovs_bridge, (TUNNEL_PORT,))
    known = db.row("Interface", config.host_gateway)
    gateway = Port(
        name=config.host_gateway,
        type="internal",
        external_ids=((TYPE_KEY, "gateway"),),
        ofport_request=GATEWAY_OFPORT,
        mac=known["mac"] if known and known["mac"] else random_mac(),
        mtu=mtu,
    )
    await ovsdb_write.ensure_port(db, config.ovs_bridge, gateway)
    await ovsdb_write.realized(db)
    for name in (TUNNEL_PORT, config.host_gateway) if config.has_tunnel else (config.host_gateway,):
        await ovsdb_write.ofport(db, name)
