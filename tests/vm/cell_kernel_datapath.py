"""Runs in the virtual machine: that it is the kernel which forwards, and that it leaves the Node's card alone."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest
from vm_shape import TOPOLOGY

from lab.process import run

if TYPE_CHECKING:
    from kernel_lab import KernelLab

PAYLOAD = 321
OUTER_UDP = {4: PAYLOAD + 8 + 20 + 14 + 8 + 8, 6: PAYLOAD + 8 + 40 + 14 + 8 + 8}
"""Length of a ping of that payload once ICMP, IP, Ethernet, Geneve and UDP headers lie around it: no other packet's."""
COUNTER = """
table netdev proof {{
  chain in {{
    type filter hook ingress device "{card}" priority 0
    {ip} saddr {source} {ip} daddr {target} udp dport 6081 udp length {length} counter
  }}
}}
"""


def test_ovs_forwards_in_the_kernel(kernel: KernelLab) -> None:
    for node in kernel.nodes.values():
        datapath = node.run("ovs-appctl", "dpif/show").splitlines()[0]
        devices = set(node.run("ls", "/sys/class/net").split())
        assert (datapath.split(":")[0], {"genev_sys_6081", "ovs-system"} - devices) == (
            "system@ovs-system",
            set(),
        )


@pytest.mark.parametrize(("node", "pod", "version"), [("node-2", "server", 4), ("node-3", "six", 6)])
def test_what_pods_of_two_nodes_say_is_geneve_on_the_wire(
    kernel: KernelLab, node: str, pod: str, version: int
) -> None:
    source, target = (kernel.addresses(name)[version] for name in ("node-1", node))
    ip, length = {4: "ip", 6: "ip6"}[version], OUTER_UDP[version]
    chain = COUNTER.format(card="node-1", ip=ip, source=source, target=target, length=length)
    run(["nft", "-f", "-"], stdin=chain)

    pings = ("ping", "-q", "-c", "5", "-i", "0.2", "-s", str(PAYLOAD), kernel.addresses(pod)[version])
    kernel.pods["client"].run(*pings)
    flows = kernel.nodes["node-1"].run("ovs-appctl", "dpctl/dump-flows", "system@ovs-system")

    found = json.loads(run(["nft", "--json", "list", "chain", "netdev", "proof", "in"]))["nftables"]
    run(["nft", "delete", "table", "netdev", "proof"])
    counted = [
        e["counter"]["packets"] for o in found for e in o.get("rule", {}).get("expr", ()) if "counter" in e
    ]
    assert counted == [5]
    assert f"dst={target}" in "".join(re.findall(r"set\(tunnel\([^)]*\)", flows)), flows


def test_the_nodes_card_keeps_its_addresses_and_stays_out_of_ovs(kernel: KernelLab) -> None:
    for name, node in kernel.nodes.items():
        card = json.loads(node.run("ip", "--json", "address", "show", "dev", "eth0"))[0]
        held = {f"{a['local']}/{a['prefixlen']}" for a in card["addr_info"] if a["scope"] == "global"}
        assert (held, node.run("ovs-vsctl", "list-br").split()) == (
            set(TOPOLOGY.machine(name).nics[0].addresses),
            ["br-int"],
        )
