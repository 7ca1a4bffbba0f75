"""Peers and ports of a rule as matches of nftables."""

from __future__ import annotations

import re
from hashlib import blake2b
from ipaddress import IPv4Network, IPv6Network, collapse_addresses
from typing import TYPE_CHECKING, NamedTuple

from antrea.facts.family import is_ipv6
from antrea.facts.service import Service
from antrea.features.network_policy.agent.match import networks

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from antrea.apis import controlplane as cp
    from antrea.engine import Facts
    from antrea.features.node_policy.rule import NodeRule

    Network = IPv4Network | IPv6Network

FAMILIES = {False: "ip", True: "ip6"}
"""By whether it is IPv6."""
ADDRESS_TYPES = {False: "ipv4_addr", True: "ipv6_addr"}
_NAME = re.compile(r"[A-Za-z0-9][-A-Za-z0-9_./]{0,99}")
ICMP_PROTOCOLS = {False: "icmp", True: "icmpv6"}
_NUMBERED = ("TCP", "UDP", "SCTP")
LAST_PORT = 65535


class Source(NamedTuple):
    """Peers of a rule in one match."""

    text: str
    """Empty: every address."""
    ipv6: bool | None
    """Family; None: both."""


class PortMatch(NamedTuple):
    """Ports of a rule in one match."""

    text: str
    """Empty: every protocol."""
    protocol: str = ""
    ipv6: bool | None = None


def group_set(group: str, *, ipv6: bool) -> str:
    """The name of the set with the addresses of a group."""
    name = group if _NAME.fullmatch(group) else blake2b(group.encode(), digest_size=16).hexdigest()
    return f"np-{name}-{6 if ipv6 else 4}"


def port_set(group: str, name: str, protocol: str, *, ipv6: bool) -> str:
    """The name of the set with the addresses of a group, each with the number that it gives to a port by name."""
    found = blake2b(f"{group} {name} {protocol}".encode(), digest_size=16).hexdigest()
    return f"np-port-{found}-{6 if ipv6 else 4}"


def name_set(pattern: str, *, ipv6: bool) -> str:
    """The name of the set with the addresses of a domain name or wildcard."""
    return f"np-fqdn-{blake2b(pattern.encode(), digest_size=16).hexdigest()}-{6 if ipv6 else 4}"


def block_set(rule: NodeRule, *, ipv6: bool) -> str:
    """The name of the set with the networks of a rule."""
    return f"np-{rule.policy}-{rule.number}-net{6 if ipv6 else 4}"


def blocks(peer: cp.NetworkPolicyPeer) -> tuple[list[IPv4Network], list[IPv6Network]]:
    """What all blocks of a peer leave, by family, without overlaps. Raises ValueError."""
    found: list[Network] = [one for block in peer.ip_blocks for one in networks(block)]
    version4 = [one for one in found if isinstance(one, IPv4Network)]
    version6 = [one for one in found if isinstance(one, IPv6Network)]
    return list(collapse_addresses(version4)), list(collapse_addresses(version6))


def sources(rule: NodeRule) -> Iterator[Source]:
    """The peers of a rule, one match each; none at all: it matches nothing."""
    field = "daddr" if rule.egress else "saddr"
    by_family: tuple[Sequence[Network], Sequence[Network]] = blocks(rule.peer)
    every = [any(one.prefixlen == 0 for one in found) for found in by_family]
    if all(every):
        yield Source("", None)
        return
    for ipv6, found in zip((False, True), by_family, strict=True):
        family = FAMILIES[ipv6]
        if every[ipv6]:
            yield Source(f"meta nfproto {'ipv6' if ipv6 else 'ipv4'}", ipv6)
            continue
        for group in rule.peer.address_groups:
            yield Source(f"{family} {field} @{group_set(group, ipv6=ipv6)}", ipv6)
        for pattern in rule.fqdns:
            yield Source(f"{family} {field} @{name_set(pattern, ipv6=ipv6)}", ipv6)
        if len(found) == 1:
            yield Source(f"{family} {field} {_network_text(found[0])}", ipv6)
        elif found:
            yield Source(f"{family} {field} @{block_set(rule, ipv6=ipv6)}", ipv6)


def service_sources(facts: Facts, rule: NodeRule) -> Iterator[Source]:
    """The Services that a rule names, by the address and port that the connection was opened to.

    Connection tracking keeps these, also where kube-proxy has translated the packet by then.
    """
    rows = (facts.get(Service, f"{one.namespace}/{one.name}") for one in rule.peer.to_services)
    for service in filter(None, rows):
        for ipv6, family in FAMILIES.items():
            ips = [ip for ip in service.ips if is_ipv6(ip) == ipv6]
            for protocol in _NUMBERED if ips else ():
                ports = merged((port, port) for name, port in service.ports if name == protocol)
                if ports:
                    to = f"ct original {family} daddr {_one_of(sorted(ips))}"
                    port = f"ct original proto-dst {_one_of([_range(*one) for one in ports])}"
                    yield Source(f"{to} meta l4proto {protocol.lower()} {port}", ipv6)


def named_port_sources(rule: NodeRule) -> Iterator[tuple[Source, str]]:
    """Peers with the numbers that they give to ports by name, and the protocol of these."""
    for group, service in named_ports(rule):
        protocol = service.protocol or "TCP"
        name, source = protocol.lower(), _ports(service.src_port, service.src_end_port)
        more = f" {name} sport {_range(*source)}" if source else ""
        for ipv6, family in FAMILIES.items():
            there = port_set(group, str(service.port), protocol, ipv6=ipv6)
            yield Source(f"{family} daddr . {name} dport @{there}{more}", ipv6), protocol


def named_ports(rule: NodeRule) -> Iterator[tuple[str, cp.Service]]:
    """Groups of receivers, and ports of the rule by name: Pods give these numbers, the Node itself gives none."""
    for service in rule.rule.services if rule.egress else ():
        if isinstance(service.port, str) and (service.protocol or "TCP") in _NUMBERED:
            for group in rule.peer.address_groups:
                yield group, service


def _one_of(texts: Sequence[str]) -> str:
    return texts[0] if len(texts) == 1 else f"{{ {', '.join(texts)} }}"


def _network_text(found: Network) -> str:
    """As nft prints it: an address alone without a length."""
    return str(found.network_address) if found.prefixlen == found.max_prefixlen else str(found)


def block_elements(found: Sequence[Network]) -> Iterator[str]:
    """Elements of a set of networks; one network needs no set."""
    if len(found) > 1 and all(one.prefixlen for one in found):
        yield from map(_network_text, found)


def port_matches(services: Sequence[cp.Service]) -> Iterator[PortMatch]:
    """One match for all destination ports of a protocol, one for each service that asks for more."""
    if not services:
        yield PortMatch("")
        return
    ports: dict[str, list[tuple[int, int]]] = {}
    for service in services:
        protocol = service.protocol or "TCP"
        if protocol == "ICMP":
            yield from _icmp(service)
        elif protocol in _NUMBERED and not isinstance(service.port, str):
            name, port = protocol.lower(), _ports(service.port, service.end_port)
            if source := _ports(service.src_port, service.src_end_port):
                to = f"{name} dport {_range(*port)} " if port else ""
                yield PortMatch(f"{to}{name} sport {_range(*source)}", protocol)
            else:
                ports.setdefault(protocol, []).append(port or (0, LAST_PORT))
    for protocol, found in ports.items():
        yield _destination(protocol, merged(found))


def _destination(protocol: str, found: list[tuple[int, int]]) -> PortMatch:
    name = protocol.lower()
    if found == [(0, LAST_PORT)]:
        return PortMatch(f"meta l4proto {name}", protocol)
    return PortMatch(f"{name} dport {_one_of([_range(*one) for one in found])}", protocol)


def _icmp(service: cp.Service) -> Iterator[PortMatch]:
    for ipv6, name in ICMP_PROTOCOLS.items():
        terms = [f"meta l4proto {'ipv6-icmp' if ipv6 else 'icmp'}"]
        if service.icmp_type is not None:
            terms.append(f"{name} type {service.icmp_type}")
        if service.icmp_code is not None:
            terms.append(f"{name} code {service.icmp_code}")
        yield PortMatch(" ".join(terms[1:] or terms), "ICMP", ipv6)


def _ports(first: int | None, last: int | None) -> tuple[int, int] | None:
    """No number, and 0, is every port."""
    return (first, max(first, last or 0)) if first else None


def _range(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}-{last}"


def merged(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """The same numbers in as few ranges as that takes, sorted: nft takes no overlaps.

    >>> merged([(80, 80), (443, 443), (81, 90), (85, 100)])
    [(80, 100), (443, 443)]
    """
    found: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if found and first <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(found[-1][1], last))
        else:
            found.append((first, last))
    return found
