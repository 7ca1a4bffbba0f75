"""Peers and ports of policies as sent to agents: names of groups, networks in 16 bytes.

parity: pkg/controller/networkpolicy/networkpolicy_controller.go toAntreaPeer, toAntreaServices
"""

from __future__ import annotations

import contextlib
import hashlib
import uuid
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_network
from typing import TYPE_CHECKING

from antrea.apis.controlplane import IPBlock, IPNet, NetworkPolicyPeer, Service
from antrea.facts.group import PublishedGroup
from antrea.features.grouping.member import packed
from antrea.features.network_policy.hole import IPV4, IPV6
from antrea.features.network_policy.internal_policy import PORTION, completed

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator, Sequence, Set

    from antrea.apis import networking
    from antrea.apis.controlplane import NetworkPolicyRule
    from antrea.apis.crd import network_policy as crd
    from antrea.apis.crd.part import IPBlock as CrdBlock
    from antrea.facts.group import GroupSelector

UUIDS = uuid.UUID("e4f24a48-ca1f-4d5b-819c-ea7632b22115").bytes
"""Upstream's name space of what is named after its content."""
VARIANTS = {digit: "89ab"[int(digit, 16) & 3] for digit in "0123456789abcdef"}
"""The 17th digit of a UUID, whose two highest bits are 10 (RFC 9562), from that of a digest."""
RECENT = 1024
MAX_SHOWN = 60
"""Characters of a text that stands in place of a CIDR."""
MAPPED = packed("::ffff:0:0")[:12]
"""What IPv4 addresses begin with in 16 bytes, and in IPv6."""
BEFORE_IPV4 = 8 * len(MAPPED)
MAX_DIGITS = 3
"""Of the length of a prefix."""
ALL = NetworkPolicyPeer(
    ip_blocks=(IPBlock(cidr=IPNet(ip=packed("::ffff:0:0"))), IPBlock(cidr=IPNet(ip=packed("::"))))
)
"""Every address of both families."""


def group(resource: str, selector: GroupSelector) -> PublishedGroup:
    """The group of a selector, which all policies that have the same one share."""
    name = uuid_of(selector.name)
    return PublishedGroup(resource, name, name)


@lru_cache(maxsize=RECENT)
def uuid_of(content: str) -> str:
    """As upstream names what has this content (a UUID of version 5); policies in a row often need the same."""
    text = hashlib.sha1(UUIDS + content.encode(), usedforsecurity=False).hexdigest()
    return f"{text[:8]}-{text[8:12]}-5{text[13:16]}-{VARIANTS[text[16]]}{text[17:20]}-{text[20:32]}"


def network(cidr: str) -> IPNet:
    """A CIDR, its host bits as they were written. Raises ValueError for what Go's net.ParseCIDR refuses.

    IPv4 that is written as IPv6 (`::ffff:10.0.0.0/104`) is IPv4, as Go's net.IPNet takes it; what is wider has other
    addresses, too, and is IPv6.
    """
    text, _, length = cidr.partition("/")
    if not (length.isascii() and length.isdigit() and len(length) <= MAX_DIGITS) or "%" in text:
        raise ValueError(cidr)
    bits = int(length)
    if ":" not in text:
        found, most = MAPPED + IPv4Address(text).packed, IPV4
    else:
        found, most = IPv6Address(text).packed, IPV6
        if found.startswith(MAPPED) and bits >= BEFORE_IPV4:
            bits, most = bits - BEFORE_IPV4, IPV4
        elif found.startswith(MAPPED):
            found = ip_network((found, bits), strict=False).network_address.packed
    if bits > most:
        raise ValueError(cidr)
    return IPNet(ip=found, prefix_length=bits)


def read_block(found: networking.IPBlock | CrdBlock) -> Generator[None, None, IPBlock]:
    """A CIDR with holes, with pauses. Raises ValueError."""
    cidr, holes = network(found.cidr), []
    for count, hole in enumerate(found.except_, 1):
        holes.append(network(hole))
        if count % PORTION == 0:
            yield
    return IPBlock(cidr=cidr, except_=tuple(holes))


def block(found: networking.IPBlock | CrdBlock) -> IPBlock:
    """A CIDR with holes. Raises ValueError."""
    return completed(read_block(found))


def blocks(found: Iterable[networking.IPBlock | CrdBlock]) -> tuple[IPBlock, ...]:
    """Those that can be read: as upstream's, one that cannot, or a hole of it, matches nothing, and other peers are not concerned."""
    told = []
    for one in found:
        with contextlib.suppress(ValueError):
            told.append(block(one))
    return tuple(told)


def unreadable(found: networking.IPBlock | CrdBlock) -> str:
    """Field and value that keep a block from being read; empty if it can be.

    kube-apiserver stores blocks with leading zeros in NetworkPolicies, which Go, as of 1.17, and we do not read.
    """
    for path, cidr in (("cidr", found.cidr), *((f"except[{i}]", one) for i, one in enumerate(found.except_))):
        try:
            network(cidr)
        except ValueError:
            return f"{path}: {cidr[:MAX_SHOWN]!r} is no CIDR such as 10.0.0.0/8 or fd00::/64"
    return ""


def services(ports: Iterable[networking.NetworkPolicyPort]) -> tuple[Service, ...]:
    """Ports of a rule; none of them stands for all."""
    return tuple(Service(protocol=one.protocol, port=one.port, end_port=one.end_port) for one in ports)


def has_named_port(ports: Iterable[networking.NetworkPolicyPort | crd.RulePort]) -> bool:
    """Whether a port is meant that each Pod may give another number."""
    return any(isinstance(one.port, str) for one in ports)


def peer(groups: Sequence[PublishedGroup], found: Sequence[networking.IPBlock]) -> NetworkPolicyPeer:
    """The union of groups and blocks."""
    return NetworkPolicyPeer(
        address_groups=tuple(dict.fromkeys(one.name for one in groups)),
        ip_blocks=blocks(found),
    )


def numbers_with(rules: Iterable[NetworkPolicyRule], direction: str, groups: Set[str]) -> Iterator[int]:
    """Numbers, among the rules of this direction, of those that have one of the groups on the other side."""
    same = [rule for rule in rules if rule.direction == direction]
    for number, rule in enumerate(same):
        other = rule.from_ if direction == "In" else rule.to
        if not groups.isdisjoint(other.address_groups):
            yield number
