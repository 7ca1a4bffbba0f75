"""Peers and ports of policies as agents are told them: names of groups, networks in 16 bytes.

parity: pkg/controller/networkpolicy/networkpolicy_controller.go toAntreaPeer, toAntreaServices
"""

from __future__ import annotations

import hashlib
import uuid
from functools import lru_cache
from ipaddress import ip_network
from typing import TYPE_CHECKING

from antrea.apis.controlplane import IPBlock, IPNet, NetworkPolicyPeer, Service
from antrea.facts.group import Group
from antrea.features.grouping.member import packed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence, Set

    from antrea.apis import networking
    from antrea.apis.controlplane import NetworkPolicyRule
    from antrea.apis.crd import network_policy as crd
    from antrea.apis.crd.part import IPBlock as CrdBlock
    from antrea.facts.group import GroupSelector

UUIDS = uuid.UUID("e4f24a48-ca1f-4d5b-819c-ea7632b22115").bytes
"""Upstream's name space of what is named after its content."""
RECENT = 1024
MAPPED = packed("::ffff:0:0")[:12]
"""What IPv4 addresses begin with in 16 bytes, and in IPv6."""
BEFORE_IPV4 = 8 * len(MAPPED)
ALL = NetworkPolicyPeer(
    ip_blocks=(IPBlock(cidr=IPNet(ip=packed("::ffff:0:0"))), IPBlock(cidr=IPNet(ip=packed("::"))))
)
"""Every address of both families."""


def group(resource: str, selector: GroupSelector) -> Group:
    """The group of a selector, which all policies that have the same one share."""
    name = uuid_of(selector.name)
    return Group(resource, name, (selector.key,), name)


@lru_cache(maxsize=RECENT)
def uuid_of(content: str) -> str:
    """As upstream names what has this content (a UUID of version 5); policies in a row often need the same."""
    digest = bytearray(hashlib.sha1(UUIDS + content.encode(), usedforsecurity=False).digest()[:16])
    digest[6], digest[8] = digest[6] & 0x0F | 0x50, digest[8] & 0x3F | 0x80
    text = digest.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def network(cidr: str) -> IPNet:
    """A CIDR, its host bits as they were written. Raises ValueError.

    IPv4 that is written as IPv6 (`::ffff:10.0.0.0/104`) is IPv4, as Go's net.IPNet takes it; what is wider has other
    addresses, too, and is IPv6.
    """
    ip, _, length = cidr.partition("/")
    found, bits = packed(ip), int(length)
    if ":" not in ip or not found.startswith(MAPPED):
        return IPNet(ip=found, prefix_length=bits)
    if bits < BEFORE_IPV4:
        return IPNet(ip=ip_network(cidr, strict=False).network_address.packed, prefix_length=bits)
    return IPNet(ip=found, prefix_length=bits - BEFORE_IPV4)


def block(found: networking.IPBlock | CrdBlock) -> IPBlock:
    """A CIDR with holes. Raises ValueError."""
    return IPBlock(cidr=network(found.cidr), except_=tuple(network(hole) for hole in found.except_))


def services(ports: Iterable[networking.NetworkPolicyPort]) -> tuple[Service, ...]:
    """Ports of a rule; none of them stands for all."""
    return tuple(Service(protocol=one.protocol, port=one.port, end_port=one.end_port) for one in ports)


def has_named_port(ports: Iterable[networking.NetworkPolicyPort | crd.RulePort]) -> bool:
    """Whether a port is meant that each Pod may give another number."""
    return any(isinstance(one.port, str) for one in ports)


def peer(groups: Sequence[Group], blocks: Sequence[networking.IPBlock]) -> NetworkPolicyPeer:
    """The union of groups and blocks. Raises ValueError for a block that is none."""
    return NetworkPolicyPeer(
        address_groups=tuple(dict.fromkeys(one.name for one in groups)),
        ip_blocks=tuple(block(one) for one in blocks),
    )


def numbers_with(rules: Iterable[NetworkPolicyRule], direction: str, groups: Set[str]) -> Iterator[int]:
    """Numbers, among the rules of this direction, of those that have one of the groups on the other side."""
    same = [rule for rule in rules if rule.direction == direction]
    for number, rule in enumerate(same):
        other = rule.from_ if direction == "In" else rule.to
        if not groups.isdisjoint(other.address_groups):
            yield number
