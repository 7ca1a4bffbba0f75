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
"""Names of families by whether it is IPv6."""
ADDRESS_TYPES = {False: "ipv4_addr", True: "ipv6_addr"}
_NAME = re.compile(r"[A-Za-z0-9][-A-Za-z0-9_./]{0,99}")
ICMP_PROTOCOLS = {False: "icmp", True: "icmpv6"}
_NUMBERED = ("TCP", "UDP", "SCTP")
LAST_PORT = 65535


class Source(NamedTuple):
    """Peers of a rule in one match."""

    text: str
    """Match; empty for every address."""
    ipv6: bool | None
    """Family; None for both."""


class PortMatch(NamedTuple):
    """Ports of a rule in one match."""

    text: str
    """Match; empty for every protocol."""
    protocol: str = ""
    ipv6: bool | None = None


def group_set(group: str, *, ipv6: bool) -> str:
    """The name of the set with the addresses of a group."""
    name = group if _NAME.fullmatch(group) else blake2b(group.encode(), digest_size=16).hexdigest()
    return f"np-{name}-{6 if ipv6 else 4}"


def port_set(group: str, name: str, protocol: str, *, ipv6: bool) -> str:
    """The name of the set with the addresses of a group, each with the number that it gives to a port by name."""
    digest = blake2b(f"{group} {name} {protocol}".encode(), digest_size=16).hexdigest()
    return f"np-port-{digest}-{6 if ipv6 else 4}"


def name_set(pattern: str, *, ipv6: bool) -> str:
    """The name of the set with the addresses of a domain name or wildcard."""
    return f"np-fqdn-{blake2b(pattern.encode(), digest_size=16).hexdigest()}-{6 if ipv6 else 4}"


def block_set(rule: NodeRule, *, ipv6: bool) -> str:
    """The name of the set with the networks of a rule."""
    return f"np-{rule.policy}-{rule.number}-net{6 if ipv6 else 4}"


def blocks(peer: cp.NetworkPolicyPeer) -> tuple[list[IPv4Network], list[IPv6Network]]:
    """Return what all blocks of a peer leave, by family, without overlaps. Raises ValueError."""
    remaining: list[Network] = [network for block in peer.ip_blocks for network in networks(block)]
    version4 = [network for network in remaining if isinstance(network, IPv4Network)]
    version6 = [network for network in remaining if isinstance(network, IPv6Network)]
    return list(collapse_addresses(version4)), list(collapse_addresses(version6))


def sources(rule: NodeRule) -> Iterator[Source]:
    """Yield the peers of a rule, one match each; without any it matches nothing."""
    field = "daddr" if rule.egress else "saddr"
    by_family: tuple[Sequence[Network], Sequence[Network]] = blocks(rule.peer)
    every = [any(network.prefixlen == 0 for network in networks) for networks in by_family]
    if all(every):
        yield Source("", None)
        return
    for ipv6, family_networks in zip((False, True), by_family, strict=True):
        family = FAMILIES[ipv6]
        if every[ipv6]:
            yield Source(f"meta nfproto {'ipv6' if ipv6 else 'ipv4'}", ipv6)
            continue
        for group in rule.peer.address_groups:
            yield Source(f"{family} {field} @{group_set(group, ipv6=ipv6)}", ipv6)
        for pattern in rule.fqdns:
            yield Source(f"{family} {field} @{name_set(pattern, ipv6=ipv6)}", ipv6)
        if len(family_networks) == 1:
            yield Source(f"{family} {field} {_network_text(family_networks[0])}", ipv6)
        elif family_networks:
            yield Source(f"{family} {field} @{block_set(rule, ipv6=ipv6)}", ipv6)


def service_sources(facts: Facts, rule: NodeRule) -> Iterator[Source]:
    """The Services that a rule names, by the address and port that the connection was opened to.

    Connection tracking keeps these, also where kube-proxy has translated the packet by then.
    """
    rows = (
        facts.get(Service, f"{reference.namespace}/{reference.name}") for reference in rule.peer.to_services
    )
    for service in filter(None, rows):
        for ipv6, family in FAMILIES.items():
            ips = [ip for ip in service.ips if is_ipv6(ip) == ipv6]
            for protocol in _NUMBERED if ips else ():
                ports = merged((port, port) for name, port in service.ports if name == protocol)
                if ports:
                    to = f"ct original {family} daddr {_one_of(sorted(ips))}"
                    port = f"ct original proto-dst {_one_of([_range(*bounds) for bounds in ports])}"
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


def _network_text(network: Network) -> str:
    """Format a network as nft prints it: an address alone without a length."""
    return str(network.network_address) if network.prefixlen == network.max_prefixlen else str(network)


def block_elements(networks_given: Sequence[Network]) -> Iterator[str]:
    """Elements of a set of networks; one network needs no set."""
    if len(networks_given) > 1 and all(network.prefixlen for network in networks_given):
        yield from map(_network_text, networks_given)


def port_matches(services: Sequence[cp.Service]) -> Iterator[PortMatch]:
    """Yield one match for all destination ports of a protocol, and one for each service with further conditions."""
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
    for protocol, ranges in ports.items():
        yield _destination(protocol, merged(ranges))


def _destination(protocol: str, ranges: list[tuple[int, int]]) -> PortMatch:
    name = protocol.lower()
    if ranges == [(0, LAST_PORT)]:
        return PortMatch(f"meta l4proto {name}", protocol)
    return PortMatch(f"{name} dport {_one_of([_range(*bounds) for bounds in ranges])}", protocol)


def _icmp(service: cp.Service) -> Iterator[PortMatch]:
    for ipv6, name in ICMP_PROTOCOLS.items():
        terms = [f"meta l4proto {'ipv6-icmp' if ipv6 else 'icmp'}"]
        if service.icmp_type is not None:
            terms.append(f"{name} type {service.icmp_type}")
        if service.icmp_code is not None:
            terms.append(f"{name} code {service.icmp_code}")
        yield PortMatch(" ".join(terms[1:] or terms), "ICMP", ipv6)


def _ports(first: int | None, last: int | None) -> tuple[int, int] | None:
    """Return a port range; no number, and 0, is every port."""
    return (first, max(first, last or 0)) if first else None


def _range(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}-{last}"


def merged(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """The same numbers in as few ranges as that takes, sorted: nft takes no overlaps.

    >>> merged([(80, 80), (443, 443), (81, 90), (85, 100)])
    [(80, 100), (443, 443)]
    """
    joined: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if joined and first <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(joined[-1][1], last))
        else:
            joined.append((first, last))
    return joined
