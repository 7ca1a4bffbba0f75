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
"""Upstream's UUID name space for names by content."""
VARIANTS = {digit: "89ab"[int(digit, 16) & 3] for digit in "0123456789abcdef"}
"""The 17th digit of a UUID, whose two highest bits are 10 (RFC 9562), from that of a digest."""
RECENT = 1024
MAX_SHOWN = 60
"""Maximum number of characters shown of an invalid CIDR."""
MAPPED = packed("::ffff:0:0")[:12]
"""Prefix of IPv4 addresses in 16 bytes, and in IPv6."""
BEFORE_IPV4 = 8 * len(MAPPED)
MAX_DIGITS = 3
"""Maximum number of digits of a prefix length."""
ALL = NetworkPolicyPeer(
    ip_blocks=(IPBlock(cidr=IPNet(ip=packed("::ffff:0:0"))), IPBlock(cidr=IPNet(ip=packed("::"))))
)
"""Peer with every address of both families."""


def group(resource: str, selector: GroupSelector) -> PublishedGroup:
    """Return the group of a selector, which all policies that have the same one share."""
    name = uuid_of(selector.name)
    return PublishedGroup(resource, name, name)


@lru_cache(maxsize=RECENT)
def uuid_of(content: str) -> str:
    """Return upstream's name for this content (a UUID of version 5); consecutive policies often need the same."""
    text = hashlib.sha1(UUIDS + content.encode(), usedforsecurity=False).hexdigest()
    return f"{text[:8]}-{text[8:12]}-5{text[13:16]}-{VARIANTS[text[16]]}{text[17:20]}-{text[20:32]}"


def network(cidr: str) -> IPNet:
    """Parse a CIDR, with its host bits as written. Raises ValueError for what Go's net.ParseCIDR refuses.

    IPv4 that is written as IPv6 (`::ffff:10.0.0.0/104`) is IPv4, as in Go's net.IPNet; a wider one has other addresses, too,
    and is IPv6.
    """
    text, _, length = cidr.partition("/")
    if not (length.isascii() and length.isdigit() and len(length) <= MAX_DIGITS) or "%" in text:
        raise ValueError(cidr)
    bits = int(length)
    if ":" not in text:
        address, most = MAPPED + IPv4Address(text).packed, IPV4
    else:
        address, most = IPv6Address(text).packed, IPV6
        if address.startswith(MAPPED) and bits >= BEFORE_IPV4:
            bits, most = bits - BEFORE_IPV4, IPV4
        elif address.startswith(MAPPED):
            address = ip_network((address, bits), strict=False).network_address.packed
    if bits > most:
        raise ValueError(cidr)
    return IPNet(ip=address, prefix_length=bits)


def read_block(block: networking.IPBlock | CrdBlock) -> Generator[None, None, IPBlock]:
    """Parse a CIDR with exceptions, with pauses. Raises ValueError."""
    cidr, holes = network(block.cidr), []
    for count, hole in enumerate(block.except_, 1):
        holes.append(network(hole))
        if count % PORTION == 0:
            yield
    return IPBlock(cidr=cidr, except_=tuple(holes))


def block(block: networking.IPBlock | CrdBlock) -> IPBlock:
    """Parse a CIDR with exceptions. Raises ValueError."""
    return completed(read_block(block))


def blocks(crd_blocks: Iterable[networking.IPBlock | CrdBlock]) -> tuple[IPBlock, ...]:
    """Parse the valid blocks: as upstream's, an invalid one, or its exception, matches nothing, and other peers are not
    concerned.
    """
    parsed = []
    for crd_block in crd_blocks:
        with contextlib.suppress(ValueError):
            parsed.append(block(crd_block))
    return tuple(parsed)


def unreadable(block: networking.IPBlock | CrdBlock) -> str:
    """Return field and value that make a block invalid; empty if it is valid.

    kube-apiserver stores blocks with leading zeros in NetworkPolicies, which Go rejects as of 1.17, and so does Antrea.
    """
    for path, cidr in (
        ("cidr", block.cidr),
        *((f"except[{i}]", exception) for i, exception in enumerate(block.except_)),
    ):
        try:
            network(cidr)
        except ValueError:
            return f"{path}: {cidr[:MAX_SHOWN]!r} is not a CIDR such as 10.0.0.0/8 or fd00::/64"
    return ""


def services(ports: Iterable[networking.NetworkPolicyPort]) -> tuple[Service, ...]:
    """Convert the ports of a rule; none of them stands for all."""
    return tuple(Service(protocol=port.protocol, port=port.port, end_port=port.end_port) for port in ports)


def has_named_port(ports: Iterable[networking.NetworkPolicyPort | crd.RulePort]) -> bool:
    """Whether a port has a name, for which each Pod may have another number."""
    return any(isinstance(port.port, str) for port in ports)


def peer(groups: Sequence[PublishedGroup], ip_blocks: Sequence[networking.IPBlock]) -> NetworkPolicyPeer:
    """Make a peer of groups and blocks."""
    return NetworkPolicyPeer(
        address_groups=tuple(dict.fromkeys(group.name for group in groups)),
        ip_blocks=blocks(ip_blocks),
    )


def numbers_with(rules: Iterable[NetworkPolicyRule], direction: str, groups: Set[str]) -> Iterator[int]:
    """Yield numbers, among the rules of this direction, of those that have one of the groups on the other side."""
    same = [rule for rule in rules if rule.direction == direction]
    for number, rule in enumerate(same):
        other = rule.from_ if direction == "In" else rule.to
        if not groups.isdisjoint(other.address_groups):
            yield number
