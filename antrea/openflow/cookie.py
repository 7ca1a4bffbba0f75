"""The 64-bit cookie of a flow: which start of the agent wrote it, and for which purpose.

    | round 16 bits | category 8 bits | reserved 8 bits | object id 32 bits |

Source: pkg/agent/openflow/cookie/allocator.go.
"""

from __future__ import annotations

from antrea.openflow.purpose import Purposed

ROUND_MASK = 0xFFFF << 48
CATEGORY_MASK = 0xFF << 40
LEARNED_ROUND = 0
"""Round in the cookie of learned flows: no start of the agent has it, so no sweep takes them."""


class Category(Purposed):
    """Purpose of a flow; the group of flows that one sweep removes."""

    DEFAULT = 0, "Miss flows and the flows that enter a pipeline."
    POD_CONNECTIVITY = 1, "Traffic between Pods, Nodes and the gateway."
    NETWORK_POLICY = 2, "Kubernetes and Antrea network policies."
    SERVICE = 3, "Load balancing and NAT of Services."
    EGRESS = 4, "Choice of the source address of traffic that leaves the cluster."
    MULTICAST = 5, "IPv4 multicast."
    MULTICLUSTER = 6, "Traffic between the clusters of a ClusterSet."
    TRACEFLOW = 7, "Copies of traced packets, and of dropped ones of captured Pods, to the agent."
    EXTERNAL_NODE_CONNECTIVITY = 8, "Traffic of a virtual machine or bare metal server."
    ROUTES = 9, "Routes advertised to routers, and relays between Nodes that advertise them; not in upstream."
    IMPORTED_ROUTES = 10, "Routes taken from routers; no flow has it, and upstream has no such category."


def cookie(cookie_round: int, category: int, object_id: int = 0) -> int:
    """The cookie of one flow; a round above 16 bits keeps its low 16 bits.

    >>> hex(cookie(1, Category.POD_CONNECTIVITY))
    '0x1010000000000'
    """
    if not 0 <= category <= 0xFF or not 0 <= object_id <= 0xFFFFFFFF:
        raise ValueError(f"category {category} or object id {object_id} does not fit a cookie")
    return (cookie_round & 0xFFFF) << 48 | category << 40 | object_id


def round_of(value: int) -> int:
    """Return the round of a cookie: the start of the agent that wrote the flow."""
    return value >> 48 & 0xFFFF


def category_of(value: int) -> int:
    """Return the category of a cookie: the purpose of the flow."""
    return value >> 40 & 0xFF
