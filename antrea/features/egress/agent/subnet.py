"""Egress IPs of another subnet than the Nodes': their device in a VLAN, and a routing table for their packets.

parity: pkg/agent/ipassigner/ip_assigner_linux.go, pkg/agent/controller/egress/egress_controller.go installPolicyRoute
"""

from __future__ import annotations

from ipaddress import ip_interface
from typing import TYPE_CHECKING, Final

import msgspec

from antrea.config.agent import AgentConfig
from antrea.facts.egress import Egress
from antrea.facts.family import is_ipv6
from antrea.facts.member import PoolSelector
from antrea.facts.node import ThisNode, Transport
from antrea.features.egress.agent.allocated import unallocated_reason
from antrea.features.egress.agent.snat_mark import POOL
from antrea.features.external_ip_pool.link import PREFIX, neighbours_of
from antrea.features.framework.gate import EnabledGates
from antrea.host import carrier
from antrea.host.link import Link, Vlan
from antrea.host.route import Route, RoutingRule
from antrea.host.sysctl import Sysctl
from antrea.openflow.cookie import Category
from antrea.openflow.fields import EGRESS_RETURN, SNAT_PKT_MARK
from antrea.rank import Rank

if TYPE_CHECKING:
    from collections.abc import Iterator

    from antrea.engine import Facts
    from antrea.facts.egress import EgressMark
    from antrea.host.ovs_port import Port

TABLE_POOL: Final = "egress-table"
FIRST_TABLE: Final = 101
"""# parity: pkg/agent/types/net.go MinEgressRouteTable"""
RULE_PRIORITY: Final = 300
"""Priority of rules that precede the main table."""
GATE: Final = "EgressSeparateSubnet"
PLACEHOLDER_NETWORK: Final = 224
"""Third byte of `placeholder_address` in the first 256 VLANs."""


class Subnet(msgspec.Struct, frozen=True):
    """Subnet of an Egress IP."""

    network: str
    prefix: int
    gateway: str
    vlan: int

    @property
    def device(self) -> str:
        """Device; empty if there is none and the addresses are on antrea-egress0."""
        return f"{PREFIX}{self.vlan}" if self.vlan else ""


def rule_numbers(rule: RoutingRule) -> tuple[tuple[str, int], ...]:
    """Return mark and table of an existing rule, by their pools; Services have marks of another mask, and the same tables. That
    of replies (tunnel_return.py) has neither.
    """
    if rule.mask == EGRESS_RETURN.mask:
        return ()
    table = (TABLE_POOL, rule.table - FIRST_TABLE + 1)
    return ((POOL, rule.mark & rule.mask), table) if rule.mask == SNAT_PKT_MARK.mask else (table,)


def are_apart(facts: Facts) -> bool:
    """Whether pools may have a subnet of their own."""
    gates = facts.get(EnabledGates)
    return gates is not None and GATE in gates


def name_of(gateway: str, prefix: int, vlan: int) -> str:
    """Two pools with one subnet share its table, unless they leave it by different gateways."""
    return f"{gateway}/{prefix} {vlan}"


def subnet_of(facts: Facts, egress: Egress) -> Subnet | None:
    """None: the address is one of the Nodes' subnet."""
    return pool_subnet(facts, egress.pool, egress.ip)


def pool_subnet(facts: Facts, name: str, ip: str) -> Subnet | None:
    """Return the subnet of an address of a pool; None if it is the Nodes'."""
    pool = facts.get(PoolSelector, name) if name and ip else None
    if pool is None or not pool.gateway or not are_apart(facts):
        return None
    network = ip_interface(f"{ip}/{pool.prefix}").network
    return Subnet(str(network), pool.prefix, pool.gateway, pool.vlan)


def mac_of(facts: Facts, node: ThisNode, link: Transport, device: str) -> str:
    """The MAC address of a device in a VLAN: its own, or by `egress.uniqueMACForSubInterfaces` the card's."""
    config = facts.get(AgentConfig)
    unique = config is None or config.egress.unique_mac_for_sub_interfaces
    return carrier.own_mac(node.name, device) if unique else link.mac


def vlan_device(facts: Facts, subnet: Subnet) -> Iterator[Port | Vlan | Link | Sysctl]:
    """Yield the device of the addresses, with the subnet's prefix, so that the kernel answers for them there."""
    config, node, link = facts.get(AgentConfig), facts.get(ThisNode), facts.get(Transport)
    if config is None or node is None or link is None:
        return
    device, mac = subnet.device, mac_of(facts, node, link, subnet.device)
    yield carrier.vlan_device(config.ovs_datapath_type, device, link, subnet.vlan, mac, Category.EGRESS)
    yield Link(device, 0, mac=mac)
    # replies come in here, though the way back to their sender may be another
    yield Sysctl(f"net/ipv4/conf/{device}/rp_filter", "2")


def placeholder_address(vlan: int) -> str:
    """A link-local IPv4 address of the device in a VLAN. Without any address rp_filter drops packets whose source has a route by another device.

    With its last address the device loses its routes and neighbors, too.

    Source: net/ipv4/fib_frontend.c of Linux, __fib_validate_source
    """
    return f"169.254.{PLACEHOLDER_NETWORK + (vlan >> 8)}.{vlan & 0xFF}"


def device_of(facts: Facts, subnet: Subnet, link: Transport) -> str:
    """Where its gateway is: a device in its VLAN, or the interface which has a network with the gateway."""
    return subnet.device or neighbours_of(facts, subnet.gateway, link)


def route_entries(facts: Facts, subnet: Subnet, device: str) -> Iterator[Route]:
    """The table of the subnet: itself on the link, all else by its gateway."""
    table = table_of(facts, subnet)
    default = "::/0" if is_ipv6(subnet.network) else "0.0.0.0/0"
    yield Route(dst=subnet.network, dev=device, scope="link", table=table, rank=Rank.RECEIVES)
    yield Route(dst=default, dev=device, via=subnet.gateway, table=table, rank=Rank.RECEIVES)


def table_of(facts: Facts, subnet: Subnet) -> int:
    """One for each subnet of this Node."""
    return FIRST_TABLE - 1 + facts.id(TABLE_POOL, name_of(subnet.gateway, subnet.prefix, subnet.vlan))


def mark_rule(facts: Facts, mark: EgressMark) -> Iterator[RoutingRule]:
    """Packets with the mark of an address of a subnet leave by the table of the subnet."""
    rows = (egress for egress in facts.by(Egress, "ip", mark.ip) if not unallocated_reason(facts, egress))
    subnets = (subnet_of(facts, egress) for egress in rows)
    subnet = next((subnet for subnet in subnets if subnet), None)
    if subnet is None:
        return
    yield RoutingRule(
        family=6 if is_ipv6(mark.ip) else 4,
        mark=facts.id(POOL, mark.ip),
        mask=SNAT_PKT_MARK.mask,
        table=table_of(facts, subnet),
        priority=RULE_PRIORITY,
        rank=Rank.RECEIVES,
    )
