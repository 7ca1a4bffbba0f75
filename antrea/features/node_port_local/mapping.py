"""The annotation of a Pod: its ports of its Node, as JSON that load balancers outside read.

parity: pkg/agent/nodeportlocal/types/types.go NPLAnnotation; sorted as by k8s/annotations.go compareNPLAnnotationLists
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable


class PortMapping(msgspec.Struct, frozen=True, rename={"pod_port": "podPort", "node_ip": "nodeIP", "node_port": "nodePort", "ip_family": "ipFamily"}):  # fmt: skip
    """One port; the order of the fields is that of the text."""

    pod_port: int
    node_ip: str
    node_port: int
    protocol: str
    """tcp, udp or sctp."""
    ip_family: str = ""
    """IPv4 or IPv6; upstream before v2.5 wrote none and meant IPv4."""


def text_of(mappings: Iterable[PortMapping]) -> str:
    """The annotation's value; empty for none."""
    found = sorted(mappings, key=_place)
    return msgspec.json.encode(found).decode() if found else ""


def read(text: str) -> tuple[PortMapping, ...]:
    """The mappings of an annotation, sorted; none of what is no such annotation."""
    try:
        found = msgspec.json.decode(text or "[]", type=tuple[PortMapping, ...])
    except (msgspec.DecodeError, msgspec.ValidationError):
        return ()
    return tuple(sorted(found, key=_place))


def _place(one: PortMapping) -> tuple[int, str, int, str]:
    return one.node_port, one.ip_family, one.pod_port, one.protocol
