"""All of the vm tier's cluster inside the virtual machine: its wires, its nodes on the kernel datapath, and their Pods.

The machine itself is the switch and the router between the nodes, the external host and, through QEMU, the API server.
"""

from __future__ import annotations

import socket
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from kernel_node import KernelNode, Pod
from vm_shape import (
    API_SERVER,
    CONTROLLER_PORT,
    GATEWAYS,
    MACHINES,
    RESTART_PORT,
    TOPOLOGY,
    VLAN,
    Machine,
)

from lab import vm
from lab.process import run, wait_for
from lab.topology import Nic  # noqa: TC001

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

MODULES = ("virtio_net", "openvswitch", "geneve", "vport-geneve", "8021q", "dummy", "sctp")
OUTSIDE = "outside"
TRUNK = f"nodes.{VLAN}"
"""The machine's end of the VLAN, on the Nodes' cable."""
API_NAT = f"""
table ip api {{
  chain in {{
    type nat hook prerouting priority dstnat
    ip daddr {API_SERVER} tcp dport {{ 6443, {CONTROLLER_PORT} }} dnat to {vm.HOST}
  }}
  chain out {{
    type nat hook postrouting priority srcnat
    ip daddr {vm.HOST} masquerade
  }}
}}
"""


class KernelLab(msgspec.Struct, frozen=True):
    """Nodes and Pods by name, and how to get at these and at the external host `outside` by theirs."""

    nodes: dict[str, KernelNode]
    pods: dict[str, Pod]

    def netns(self, name: str) -> Path:
        """The network namespace of a Pod, of a node or of `outside`."""
        return self.pods[name].netns if name in self.pods else Path("/run/netns", name)

    def addresses(self, name: str) -> dict[int, str]:
        """By IP version, of a Pod, of a node, of `outside` or of the `gateway of` a node: its first address for Pods."""
        if name in self.pods:
            return self.pods[name].ips
        if name.startswith("gateway of "):
            return self.nodes[name.removeprefix("gateway of ")].gateway
        return {version: TOPOLOGY.machine(name).address("eth0", version) for version in (4, 6)}

    def restart_controller(self) -> None:
        """It is killed, and another one starts; agents lose their connections."""
        with socket.create_connection((vm.HOST, RESTART_PORT), timeout=60) as asked:
            assert asked.recv(64) == b"started\n"


@contextmanager
def realized(machines: Sequence[Machine] = MACHINES, **config: Any) -> Iterator[KernelLab]:
    """Everything up, Pods connected; its processes are ended, the rest ends with the machine.

    With these keys of antrea-agent.conf on top of what all cells have.
    """
    nodes = {machine.name: KernelNode(machine, **config) for machine in machines}
    try:
        say("begin")
        _wires(machines)
        say("wires")
        for node in nodes.values():
            node.start()
        say("programs started")
        wanted = [(node, pod) for node in nodes.values() for pod in node.machine.pods]
        with ThreadPoolExecutor(len(wanted)) as pool:
            pods = {pod.name: pod for pod in pool.map(lambda pair: pair[0].add(pair[1]), wanted)}
        say("Pods connected")
        yield KernelLab(nodes, pods)
    finally:
        for node in nodes.values():
            node.stop()


def say(what: str) -> None:
    """A line on the machine's console with the seconds since its start."""
    seconds = time.clock_gettime(time.CLOCK_BOOTTIME)
    Path("/dev/console").write_text(f"{seconds:6.1f} s: {what}\n")


def _wires(machines: Sequence[Machine]) -> None:
    """One bridge, a card of each node in it, a cable to the external host: few processes, since each is slow here."""
    run(["modprobe", "-a", *MODULES])
    for name in (*(machine.name for machine in machines), OUTSIDE):
        run(["ip", "netns", "add", name])
    control, gateway, outside = (TOPOLOGY.machine(name) for name in ("control", "gateway", OUTSIDE))
    here = ["link add nodes type bridge", "link set nodes up"]
    here += [f"link add {m.name} type veth peer name eth0 netns {m.name}" for m in machines]
    here += [f"link set {m.name} master nodes up" for m in machines]
    here += [f"link add {OUTSIDE} type veth peer name eth0 netns {OUTSIDE}", f"link set {OUTSIDE} up"]
    ends = {nic.switch: nic for nic in gateway.nics}
    here += [*_addresses(ends["nodes"], "nodes"), *_addresses(ends[OUTSIDE], OUTSIDE)]
    here += [f"link add link nodes name {TRUNK} type vlan id {VLAN}", f"link set {TRUNK} up"]
    here += [f"address add {GATEWAYS[4]}/24 dev {TRUNK}", f"address add {GATEWAYS[6]}/64 dev {TRUNK} nodad"]
    here += [*_addresses(control.nics[0], "nodes"), f"address add {vm.CARD} dev eth0", "link set eth0 up"]
    wait_for("QEMU's card", Path("/sys/class/net/eth0").exists, seconds=10)
    run(["ip", "-batch", "-"], stdin="\n".join(here))
    for machine in (*(TOPOLOGY.machine(m.name) for m in machines), outside):
        lines = ["link set lo up", "link set eth0 up", *_addresses(machine.nics[0], "eth0")]
        lines += [f"route add {'::/0' if ':' in r.via else r.dst} via {r.via}" for r in machine.routes]
        run(["ip", "-netns", machine.name, "-batch", "-"], stdin="\n".join(lines))
    for path in ("ipv4/ip_forward", "ipv6/conf/all/forwarding"):
        Path("/proc/sys/net", path).write_text("1")
    run(["nft", "-f", "-"], stdin=API_NAT)


def _addresses(nic: Nic, device: str) -> list[str]:
    """Lines for `ip -batch`; without duplicate address detection, which would delay IPv6."""
    return [f"address add {a} dev {device} {'nodad' if ':' in a else ''}" for a in nic.addresses]
