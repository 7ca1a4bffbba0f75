"""Addresses of other Nodes that are measured: their gateways, which are reached as their Pods are.

parity: pkg/agent/monitortool/latency_store.go getGWIPs
"""

from __future__ import annotations

from ipaddress import ip_network
from typing import TYPE_CHECKING

from antrea.facts.fact import Fact
from antrea.facts.node import ThisNode
from antrea.features.node_latency.monitor import LatencyMonitor
from antrea.features.node_route.way import shared_cidrs, tunnel_end
from antrea.host.pod_cidr import gateway_ip

if TYPE_CHECKING:
    from collections.abc import Iterator

    from antrea.engine import Facts
    from antrea.facts.node import PeerNode


class LatencyTarget(Fact, frozen=True):
    """Address by which the path to another Node is measured; derived while there is a monitor."""

    ip: str
    node: str

    @property
    def key(self) -> str:
        return self.ip


def latency_targets(facts: Facts, peer: PeerNode) -> Iterator[LatencyTarget]:
    """The gateways of a Node, one per family; none of a Pod CIDR without room for one."""
    facts.need(LatencyMonitor)
    node = facts.need(ThisNode)
    if tunnel_end(node, peer) is None:
        return
    for cidr in shared_cidrs(node, peer):
        if ip_network(cidr).num_addresses > 1:
            yield LatencyTarget(gateway_ip(cidr), peer.name)
