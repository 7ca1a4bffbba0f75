"""The reference plugins as the cluster's network: `bridge`, `host-local` and `portmap`, with static routes between nodes.

It shows that the lab works without our own CNI, and it is what our CNI is compared with.
"""

from __future__ import annotations

from ipaddress import ip_network
from typing import TYPE_CHECKING, Any

import msgspec

from lab import namespace, node

if TYPE_CHECKING:
    from lab.record import Record
    from lab.topology import Topology


def conflist(pod_cidrs: list[str]) -> dict[str, Any]:
    """The network configuration of a node with these Pod CIDRs (CNI specification 0.4.0)."""
    everywhere = {4: "0.0.0.0/0", 6: "::/0"}
    ipam = {
        "type": "host-local",
        "dataDir": "/run/cni-ipam",
        "ranges": [[{"subnet": cidr}] for cidr in pod_cidrs],
        "routes": [{"dst": everywhere[ip_network(cidr).version]} for cidr in pod_cidrs],
    }
    bridge = {"type": "bridge", "bridge": "cni0", "isGateway": True, "hairpinMode": True, "ipam": ipam}
    portmap = {"type": "portmap", "capabilities": {"portMappings": True}}
    return {"cniVersion": "0.4.0", "name": "reference", "plugins": [bridge, portmap]}


def configure(record: Record, topology: Topology, pod_cidrs: dict[str, list[str]]) -> None:
    """Give every running node its plugin configuration and a route to every other node's Pods; also after a power cycle."""
    for machine in (m for m in topology.nodes if m.name in record.processes()):
        file = namespace.path(record, machine.name)
        others = {n: c for n, c in pod_cidrs.items() if n != machine.name}
        namespace.script(record, file, routes(topology, others))
        node.execute(
            record,
            machine.name,
            "sh",
            "-c",
            "cat > /etc/cni/net.d/.new && mv /etc/cni/net.d/.new /etc/cni/net.d/10-reference.conflist",
            stdin=msgspec.json.encode(conflist(pod_cidrs[machine.name])).decode(),
        )


def routes(topology: Topology, pod_cidrs: dict[str, list[str]]) -> list[str]:
    """Shell lines: each node's Pods are reached through that node's eth0."""
    lines = []
    for name, cidrs in pod_cidrs.items():
        for cidr in cidrs:
            version = ip_network(cidr).version
            via = topology.machine(name).address("eth0", version)
            lines.append(f"ip -{version} route replace {cidr} via {via}")
    return lines
