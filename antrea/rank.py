"""The order in which entries of the agent are put: what receives a packet exists before what sends it there."""

from __future__ import annotations

from enum import IntEnum


class Rank(IntEnum):
    """Smaller is put earlier and dropped later; the engine compares the ranks of one pass across all sinks."""

    DIVERTS = 5
    """Takes packets away from an address before there is one that draws them."""
    PORT = 5
    """A port of the switch, which everything else refers to."""
    RECEIVES = 10
    """Rank of what packets meet after a flow sent them: addresses, Egress SNAT, policy routes."""
    METER = 40
    """Flows refer to it."""
    GROUP = 45
    """Flows refer to it."""
    ISOLATION = 45
    """Exists before the rules that make exceptions from it, and goes after them."""
    FLOW = 50
    SENDS = 90
    """Rank of what brings packets to flows: NodePort DNAT, Service routes, routes to the Pods of other Nodes."""
    ACT = 95
    """An act waits for the puts of smaller rank of its pass."""
    REPORT = 1000
    """Rank from which an entry only reports, as a status: nothing waits for it and it holds nothing back."""
