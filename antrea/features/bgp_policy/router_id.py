"""Identifier of the BGP speaker of a Node: of its annotation, else its IPv4 address, else made of its name.

It is written back to the annotation, so that it stays when the address of the Node changes.
parity: pkg/agent/controller/bgp/controller.go getRouterID
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Hashable, Iterable, Mapping
from ipaddress import IPv4Address
from typing import TYPE_CHECKING, ClassVar

from antrea.apis.annotation import BGP_ROUTER_ID, NodeAnnotation
from antrea.apis.core import Node
from antrea.facts.fact import Fact
from antrea.facts.family import is_ipv6
from antrea.features.bgp_policy.policy import EffectivePolicy
from antrea.features.framework.admission import Watched

if TYPE_CHECKING:
    from collections.abc import Iterator

    from antrea.engine import Facts
    from antrea.facts.node import ThisNode


class NodeRouterId(Fact, frozen=True):
    """Identifier in the annotation of a Node, which is valid; the feed of Nodes writes it."""

    node: str
    router_id: str

    indexes: ClassVar[Mapping[str, Callable[[NodeRouterId], Iterable[Hashable]]]] = {
        "router_id": lambda row: (row.router_id,)
    }

    @property
    def key(self) -> str:
        return self.node


def node_router_id(node: Node) -> NodeRouterId | None:
    """Make the row of a Node; None without a valid annotation."""
    text = valid_router_id(node.metadata.annotations.get(BGP_ROUTER_ID, ""))
    return NodeRouterId(node.metadata.name, text) if text else None


def valid_router_id(text: str) -> str:
    """Return the identifier; empty if it is not an IPv4 address other than 0.0.0.0, which no speaker may have (RFC 6286)."""
    try:
        address = IPv4Address(text)
    except ValueError:
        return ""
    return str(address) if int(address) else ""


def router_id(facts: Facts, node: ThisNode) -> str:
    """Return the identifier of this Node."""
    if (row := facts.get(NodeRouterId, node.name)) is not None:
        return row.router_id
    ipv4 = next((ip for ip in node.transport_ips or node.node_ips if not is_ipv6(ip)), "")
    return ipv4 or hashed_router_id(node.name)


def hashed_router_id(name: str) -> str:
    """Make an identifier of the name of a Node, never 0.0.0.0.

    >>> hashed_router_id("node-1")
    '53.151.27.230'
    """
    number = int.from_bytes(hashlib.sha256(name.encode()).digest()[:4])
    return str(IPv4Address(number or 1))


def router_id_annotation(facts: Facts, node: ThisNode) -> Iterator[NodeAnnotation]:
    """Yield the annotation, once the Node has a policy."""
    if facts.get(EffectivePolicy) is not None:
        yield NodeAnnotation(node.name, BGP_ROUTER_ID, router_id(facts, node))


WATCHED = Watched("/api/v1/nodes", Node, NodeRouterId, node_router_id)
