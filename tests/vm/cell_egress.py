"""Runs in the virtual machine: Egress IPs on the devices that upstream has: a sub-interface in a VLAN, and a dummy."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from kernel_egress import egress_node
from kernel_lab import OUTSIDE, TRUNK
from kernel_traffic import carry
from vm_shape import EGRESS_IPS, GATEWAYS, TOPOLOGY, VLAN

if TYPE_CHECKING:
    from kernel_lab import KernelLab
    from kernel_node import KernelNode

EGRESS_NODE, DEVICE = "node-2", f"antrea-ext.{VLAN}"
SIZE = 32 * 1024
PRINTED = """
antrea-ext.181@eth0: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 1500 qdisc noqueue state UP
vlan protocol 802.1Q id 181 <REORDER_HDR>
inet 172.18.181.40/24 brd 172.18.181.255 scope global antrea-ext.181
inet6 fd00:172:18:181::40/64 scope global
antrea-egress0: <BROADCAST,NOARP> mtu 1500 qdisc noop state DOWN
dummy
inet 172.30.0.240/32 scope global antrea-egress0
inet6 fd00:172:30::240/128 scope global
ovs-system: <BROADCAST,MULTICAST> mtu 1500 qdisc noop state DOWN
genev_sys_6081: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 65000 qdisc noqueue master ovs-system state UNKNOWN
antrea-gw0: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 1450 qdisc noqueue state UNKNOWN
inet 10.244.2.1/24 brd 10.244.2.255 scope global antrea-gw0
"""
"""Beginnings of lines of `ip -d address`, as users of upstream know them."""


@pytest.fixture(scope="module")
def gateway(kernel: KernelLab) -> KernelNode:
    return egress_node(kernel)


@pytest.mark.parametrize(("pod", "version"), [(pod, v) for pod in EGRESS_IPS for v in (4, 6)])
def test_a_pod_of_any_node_is_seen_with_its_egress_ip(
    kernel: KernelLab, gateway: KernelNode, pod: str, version: int
) -> None:
    before, outside = _came_in_vlan(), kernel.addresses(OUTSIDE)[version]
    seen = carry(kernel.netns(pod), kernel.netns(OUTSIDE), outside, SIZE)
    assert seen == (EGRESS_IPS[pod][version], True)
    assert (_came_in_vlan() - before > SIZE) == ("181" in EGRESS_IPS[pod][version])


@pytest.mark.parametrize("version", [4, 6])
def test_other_pods_of_the_egress_node_keep_its_address(
    kernel: KernelLab, gateway: KernelNode, version: int
) -> None:
    """Those of another Node are seen with that one's, says cell_pod_network.py."""
    address = kernel.addresses(OUTSIDE)[version]
    seen = carry(kernel.netns("server"), kernel.netns(OUTSIDE), address, SIZE)
    assert seen == (TOPOLOGY.machine(EGRESS_NODE).address("eth0", version), True)


def test_the_devices_and_addresses_are_printed_as_upstreams_are(gateway: KernelNode) -> None:
    printed = gateway.run("ip", "-d", "address", "show")
    lines = [
        line.strip().split(": ", 1)[-1] if line[0].isdigit() else line.strip()
        for line in printed.splitlines()
    ]
    missing = [
        want for want in PRINTED.strip().splitlines() if not any(one.startswith(want) for one in lines)
    ]
    assert not missing, printed
    # as up to v1.15; by default each has an address of its own
    macs = {link["ifname"]: link["address"] for link in json.loads(gateway.run("ip", "-j", "link", "show"))}
    assert macs[DEVICE] == macs["eth0"]


@pytest.mark.parametrize("version", [4, 6])
def test_marks_lead_to_a_table_of_the_subnet_alone(gateway: KernelNode, version: int) -> None:
    """Tables 101 to 120 are upstream's."""
    rules = json.loads(gateway.run("ip", "-j", f"-{version}", "rule", "show"))
    ours = [rule for rule in rules if rule["table"].isdecimal() and 101 <= int(rule["table"]) <= 120]
    assert [rule["fwmask"] for rule in ours] == ["0xff"]
    table = json.loads(gateway.run("ip", "-j", f"-{version}", "route", "show", "table", ours[0]["table"]))
    ways = {(route["dst"], route.get("gateway", ""), route["dev"]) for route in table}
    network = {4: "172.18.181.0/24", 6: "fd00:172:18:181::/64"}[version]
    assert ways == {(network, "", DEVICE), ("default", GATEWAYS[version], DEVICE)}
    name = {4: "egress-snat", 6: "egress-snat6"}[version]
    snat = json.loads(gateway.run("nft", "-j", "list", "map", "inet", "antrea", name))["nftables"]
    ((chosen,),) = [[one["map"]["elem"] for one in snat if "map" in one]]
    marks = {ip: mark for mark, ip in chosen}
    assert marks.keys() == {ips[version] for ips in EGRESS_IPS.values()}
    assert marks[EGRESS_IPS["vlan"][version]] == int(ours[0]["fwmark"], 16)


def test_the_kernel_took_all_flows_that_ovs_asked_for(kernel: KernelLab, gateway: KernelNode) -> None:
    """It refuses those that look at tunnels of both families; what they are for would be slow, and lost without ovs-vswitchd."""
    log, refused = "/var/log/openvswitch/ovs-vswitchd.log", "/failed to put.*Invalid argument/p"
    found = [node.run("sed", "-n", refused, log) for node in kernel.nodes.values()]
    assert found == [""] * len(found)


def _came_in_vlan() -> int:
    """Bytes that the machine got with the tag."""
    return int(Path(f"/sys/class/net/{TRUNK}/statistics/rx_bytes").read_text())
