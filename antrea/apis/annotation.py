"""An annotation that this agent keeps on its own Node."""

from __future__ import annotations

from typing import ClassVar

import msgspec

TRANSPORT_ADDRESSES = "node.antrea.io/transport-addresses"
"""Where tunnels to this Node end, when that is not its InternalIP: "10.1.0.4,fd00::4"."""

PREFERRED_NODES = "egress.antrea.io/preferred-nodes"
"""On an Egress: which Nodes are to hold its address, the first one that can: "n1,n2"."""
FAILBACK = "egress.antrea.io/failback"
"""On an Egress: when its address leaves a Node that lives for a better one: "immediate", "when-idle" or "never"."""
LOST_CONNECTIONS = "egress.antrea.io/lost-connections"
"""On an Egress: what the next gateway does with connections through a lost one: "continue" or "reset"."""

ON_DENY = "antrea.io/on-deny"
"""On a network policy, of Kubernetes or of Antrea: what becomes of connections that stand and that it comes to forbid."""
FLUSH = "flush"
"""Its one value: they are cut."""


class NodeAnnotation(msgspec.Struct, frozen=True):
    """`name: value` on Node `node`; an empty value means that the annotation is absent."""

    node: str
    name: str
    value: str

    rank: ClassVar[int] = 1000
    category: ClassVar[int] = 0

    @property
    def key(self) -> tuple[str, str]:
        return (self.node, self.name)
