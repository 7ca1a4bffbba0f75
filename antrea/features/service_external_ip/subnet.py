"""External IPs of Services in the subnet of their pool: neighbours are answered there, and replies leave by it.

The device in the VLAN and the routing table are those of Egress IPs. Replies have the address of an Endpoint while the host routes them,
so they are known by a mark of their connection; what the switch translates (proxyAll) has the external IP, and no connection here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from antrea.facts.family import is_ipv6
from antrea.facts.member import PoolSelector
from antrea.features.egress.agent.subnet import (
    FIRST_TABLE,
    RULE_PRIORITY,
    Subnet,
    are_apart,
    device_of,
    placeholder_address,
    pool_subnet,
    route_entries,
    table_of,
    vlan_device,
)
from antrea.features.framework.gate import EnabledGates
from antrea.host import carrier
from antrea.host.address import Address
from antrea.host.nft import NftArpSource, NftChain, NftElement, NftRule, NftSet
from antrea.host.route import RoutingRule
from antrea.rank import Rank

if TYPE_CHECKING:
    from collections.abc import Iterator

    from antrea.engine import Entry, Facts
    from antrea.facts.external_ip import ExternalIPOwner
    from antrea.facts.node import ThisNode, Transport

MASK: Final = 0x001F0000
"""Mask of marks of packets and connections for the subnet. Neither Egress (0xff), kube-proxy (0xc000) nor OVS (bit 31) uses it.
"""
SHIFT: Final = 16
MAPS: Final = {False: "service-subnet", True: "service-subnet6"}
OUTPUT: Final = NftChain(name="output-mangle", hook="type route hook output priority mangle; policy accept;")
"""Chain for Endpoints that are processes of this Node."""
BY_CONNECTION: Final = (
    f"ct direction reply ct mark & {MASK:#010x} != 0x00000000 meta mark set ct mark & {MASK:#010x}"
)


def has_subnets(facts: Facts) -> bool:
    """Whether pools may have a subnet of their own, by the gates of Egress."""
    gates = facts.get(EnabledGates)
    return gates is not None and "Egress" in gates and are_apart(facts)


def owner_subnet(facts: Facts, owner: ExternalIPOwner) -> Subnet | None:
    """Return the subnet; None if it is the Nodes'."""
    return pool_subnet(facts, owner.pool, owner.ip) if has_subnets(facts) else None


def subnet_rules(facts: Facts, node: ThisNode) -> Iterator[NftChain | NftSet | NftRule]:
    """Yield rules as soon as a pool has a subnet, whatever Services there are."""
    if not has_subnets(facts) or not any(pool.gateway for pool in facts.all(PoolSelector)):
        return
    yield carrier.CHAIN
    yield OUTPUT
    for chain in (carrier.CHAIN.name, OUTPUT.name):
        yield NftRule(
            chain=chain, name="replies of Services by their subnet", text=BY_CONNECTION, order=110
        )  # fmt: skip
    for ipv6 in sorted(node.families):
        ip, name = "ip6" if ipv6 else "ip", MAPS[ipv6]
        yield NftSet(name=name, type="ipv6_addr" if ipv6 else "ipv4_addr", data="mark")
        for what, text in (
            ("connections to Services by their subnet", f"ct direction original ct mark set {ip} daddr map @{name}"),
            ("replies of the switch by their subnet", f"meta mark set {ip} saddr map @{name}"),
        ):  # fmt: skip
            yield NftRule(chain=carrier.CHAIN.name, name=f"{what}, {ip}", text=text, order=110)


def subnet_entries(facts: Facts, owner: ExternalIPOwner, subnet: Subnet, link: Transport) -> Iterator[Entry]:
    """Yield entries of the Node that answers. No device has the address, so the kernel would ask neighbors there with the
    Node's.
    """
    ipv6, device, table = is_ipv6(owner.ip), subnet.device, table_of(facts, subnet)
    number = (table - FIRST_TABLE + 1) << SHIFT
    if device:
        yield from vlan_device(facts, subnet)
        if not ipv6:
            yield Address(device, f"{placeholder_address(subnet.vlan)}/32")
            yield NftArpSource(owner.ip, device)
    yield from route_entries(facts, subnet, device_of(facts, subnet, link))
    yield RoutingRule(
        family=6 if ipv6 else 4, mark=number, mask=MASK, table=table, priority=RULE_PRIORITY,
        rank=Rank.RECEIVES
    )  # fmt: skip
    yield NftElement(set=MAPS[ipv6], value=owner.ip, data=f"{number:#010x}")
