"""What the vm tier's nodes know of the Egresses that its cluster has from its beginning."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING

from vm_shape import HELD, MACHINES

if TYPE_CHECKING:
    from kernel_lab import KernelLab
    from kernel_node import KernelNode


def egress_node(kernel: KernelLab) -> KernelNode:
    """The one Node that pools select, once it has all addresses and Pods' packets go there."""
    node = next(kernel.nodes[machine.name] for machine in MACHINES if machine.egress)
    node.wait_for("Egress IPs", lambda: set(HELD) <= {ip for _, ip, _ in addresses(node)})
    other = kernel.nodes["node-1"]
    node.wait_for("marks of Egress IPs", partial(_has, node, "->pkt_mark", 2 * len(HELD) - 2))
    other.wait_for("flows to Egress IPs", partial(_lead_to, other))
    return node


def addresses(node: KernelNode) -> set[tuple[str, str, int]]:
    """Device, address and prefix length of those that others may reach."""
    found = json.loads(node.run("ip", "-j", "address", "show"))
    return {
        (link["ifname"], address["local"], address["prefixlen"])
        for link in found
        for address in link.get("addr_info", ())
        if address["scope"] == "global"
    }


def _has(node: KernelNode, text: str, times: int) -> bool:
    return _flows(node).count(text) >= times


def _lead_to(node: KernelNode) -> bool:
    flows = _flows(node)
    return all(f"set_field:{ip}->tun_" in flows for ip in HELD)


def _flows(node: KernelNode) -> str:
    """In the words of OpenFlow 1.5."""
    return node.run("ovs-ofctl", "-O", "OpenFlow15", "--no-names", "--no-stats", "dump-flows", "br-int")
