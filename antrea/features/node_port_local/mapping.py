"""The annotation of a Pod: its ports of its Node, as JSON that load balancers outside read.

parity: pkg/agent/nodeportlocal/types/types.go NPLAnnotation; sorted as by k8s/annotations.go compareNPLAnnotationLists
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final, TypeAlias

import msgspec

from antrea.decoding import decode_json
from antrea.errors import Invalid

if TYPE_CHECKING:
    from collections.abc import Iterable


MAX_TEXT: Final = 1 << 16
"""Characters of an annotation that is read; a port takes about 90."""
Port: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=65535)]


class PortMapping(msgspec.Struct, frozen=True, rename={"pod_port": "podPort", "node_ip": "nodeIP", "node_port": "nodePort", "ip_family": "ipFamily"}):  # fmt: skip
    """One port; the order of the fields is that of the text."""

    pod_port: Port
    node_ip: str
    node_port: Port
    protocol: str
    """tcp, udp or sctp."""
    ip_family: str = ""
    """IPv4 or IPv6; upstream before v2.5 wrote none and meant IPv4."""


def sorted_mappings(mappings: Iterable[PortMapping]) -> tuple[PortMapping, ...]:
    """Sort in the order of the annotation."""
    return tuple(sorted(mappings, key=_place))


def text_of(mappings: tuple[PortMapping, ...]) -> str:
    """The annotation's value; empty for none."""
    return msgspec.json.encode(mappings).decode() if mappings else ""


def mappings_of(text: str) -> tuple[PortMapping, ...]:
    """Decode the annotation of a Pod, which any editor of the Pod can write: sorted; empty if it is none of ours, or too long."""
    if not text or len(text) > MAX_TEXT:
        return ()
    try:
        mappings = decode_json(text, tuple[PortMapping, ...], "annotation")
    except Invalid:
        return ()
    return sorted_mappings(mappings)


def _place(mapping: PortMapping) -> tuple[int, str, int, str]:
    return mapping.node_port, mapping.ip_family, mapping.pod_port, mapping.protocol
