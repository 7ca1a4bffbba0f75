"""Addresses as the API has them: of Pods, Nodes and Services, in one spelling, and the networks that they are in."""

from __future__ import annotations

import contextlib
import functools
import re
from ipaddress import ip_address, ip_network
from typing import TYPE_CHECKING

from antrea.explain.packet import family

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from ipaddress import IPv4Network, IPv6Network

    from antrea.apis.core import Node, Pod, Service
    from antrea.apis.crd.part import IPBlock
    from antrea.apis.networking import IPBlock as KubeBlock

TRANSPORT = "node.antrea.io/transport-addresses"
INTERNAL = tuple(
    map(
        ip_network,
        (
            *("169.254.0.0/24", "169.254.224.0/20", "fc01::aabb:ccdd:eef0/124"),
            *("169.254.169.252/30", "169.254.170.0/24"),
        ),
    )
)
"""Networks between the Node and its switch, and those of metadata services of clouds."""


def ip(text: str) -> str:
    """One spelling of each address; an IPv4 address in IPv6 is that of IPv4. Raises ValueError."""
    parsed = ip_address(text)
    return str(getattr(parsed, "ipv4_mapped", None) or parsed)


def stored_ip(text: str) -> str:
    """Parse an address of the API as `ip` does: numbers of IPv4 that begin with 0 are decimal. Raises ValueError."""
    head, colon, last = text.rpartition(":")
    numbers = last.split(".")
    if len(numbers) == 4 and all(number.isascii() and number.isdecimal() for number in numbers):
        return ip(head + colon + ".".join(str(int(number[-9:])) for number in numbers))
    return ip(text)


def has_addresses(service: Service) -> bool:
    """Whether a Service is reached by an address of its own: not if it is headless, or another name of something else."""
    spec = service.spec
    return spec.type != "ExternalName" and bool(spec.cluster_ips) and "None" not in spec.cluster_ips


def service_ips(service: Service) -> set[str]:
    """Addresses at which kube-proxy serves it."""
    spec = service.spec
    return {*readable_ips((*spec.cluster_ips, *spec.external_ips)), *balanced_ips(service)}


def balanced_ips(service: Service) -> set[str]:
    """Return the addresses that a load balancer gave and leaves to the Nodes."""
    return set(
        readable_ips(
            ingress.ip for ingress in service.status.load_balancer.ingress if ingress.ip_mode != "Proxy"
        )
    )


def readable_ips(texts: Iterable[str]) -> Iterator[str]:
    """Yield the valid addresses in one spelling."""
    for text in texts:
        with contextlib.suppress(ValueError):
            yield stored_ip(text)


def is_reachable(text: str) -> bool:
    """Whether hosts outside can reach an external address of a Service: not what is loopback, multicast, broadcast or internal."""
    parsed = ip_address(text)
    special = parsed.is_loopback or parsed.is_multicast or parsed.is_unspecified
    special |= parsed.version == 6 and parsed.is_link_local
    internal = any(parsed in network for network in INTERNAL)
    return not (special or internal or text == "255.255.255.255" or text.startswith("0."))


def pod_ips(pod: Pod) -> list[str]:
    """Addresses of a Pod, in one spelling."""
    return list(readable_ips(pod_ip.ip for pod_ip in pod.status.pod_ips))


def internal_ips(node: Node) -> set[str]:
    """Return the addresses by which other Nodes know a Node."""
    by_type: dict[str, list[str]] = {}
    for address in node.status.addresses:
        by_type.setdefault(address.type, []).append(address.address)
    return _first_of_family(by_type.get("InternalIP") or by_type.get("ExternalIP") or ())


def node_ips(node: Node) -> set[str]:
    """A Node's own addresses, those of its gateway, and those of tunnels: of each kind one per family.

    parity: pkg/util/k8s/node.go GetNodeAllAddrs
    """
    return internal_ips(node) | {gateway(cidr) for cidr in pod_cidrs(node)} | transport_ips(node)


def transport_ips(node: Node) -> set[str]:
    """Return the addresses of a Node's tunnels, where they differ from the Node's."""
    transport = node.metadata.annotations.get(TRANSPORT, "")
    return _first_of_family(transport.split(",") if transport else ())


def pod_cidrs(node: Node) -> tuple[str, ...]:
    """Networks of the Pods of a Node."""
    return node.spec.pod_cidrs or ((node.spec.pod_cidr,) if node.spec.pod_cidr else ())


def gateway(cidr: str) -> str:
    """The first address of a Node's Pods, which is the Node's own."""
    return str(ip_network(cidr, strict=False).network_address + 1)


def _first_of_family(addresses: Iterable[str]) -> set[str]:
    first_by_family: dict[int, str] = {}
    for address in addresses:
        first_by_family.setdefault(family(address), ip(address))
    return set(first_by_family.values())


def in_block(address: str, block: IPBlock | KubeBlock) -> bool:
    """Whether a block has an address, and none of its exceptions has; not if one of them cannot be read."""
    if not readable(block):
        return False
    parsed = _address(address)
    return parsed in _network(block.cidr) and not any(parsed in _network(hole) for hole in block.except_)


def readable(block: IPBlock | KubeBlock) -> bool:
    """Whether it, and all of its exceptions, are CIDRs as Go reads them."""
    try:
        for cidr in (block.cidr, *block.except_):
            _network(cidr)
    except ValueError:
        return False
    return True


_address = functools.lru_cache(1 << 12)(ip_address)


@functools.lru_cache(1 << 12)
def _network(cidr: str) -> IPv4Network | IPv6Network:
    """A network of IPv4 addresses that are written in IPv6 is one of IPv4, as in `ip` for addresses. Raises ValueError."""
    if not re.fullmatch(r"[^/%]+/[0-9]{1,3}", cidr):
        raise ValueError(cidr)
    network = ip_network(cidr, strict=False)
    mapped = getattr(network.network_address, "ipv4_mapped", None)
    return ip_network(f"{mapped}/{network.prefixlen - 96}") if mapped and network.prefixlen >= 96 else network
