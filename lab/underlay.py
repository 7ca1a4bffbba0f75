"""Realize a topology: one namespace that holds the switches, one per machine, and the cables between them.

A switch is a Linux bridge; where ports carry VLANs it is a lab-owned Open vSwitch in userspace (`switch.py`), because
the bridge of a minimal kernel cannot filter VLANs.
"""

from __future__ import annotations

import hashlib
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from lab import namespace, switch

if TYPE_CHECKING:
    from lab.record import Record
    from lab.topology import Machine, Nic, Topology

UNDERLAY = "underlay"
# duplicate address detection would delay every IPv6 address by a second
NO_DAD = "for f in all default; do echo 0 > /proc/sys/net/ipv6/conf/$f/accept_dad; done"
# a router answers ARP only where the address is, unlike a plain Linux
STRICT_ARP = (
    "echo 1 > /proc/sys/net/ipv4/conf/all/arp_ignore",
    "echo 2 > /proc/sys/net/ipv4/conf/all/arp_announce",
)
# a switch does not run iptables on frames (nodes do, on their own bridges: Services between Pods of a node need it)
NO_FILTER = "for f in ip ip6 arp; do f=/proc/sys/net/bridge/bridge-nf-call-${f}tables; [ ! -e $f ] || echo 0 > $f; done"


def port_name(machine: Machine, nic: Nic) -> str:
    """The switch's end of a cable: node-1.eth0."""
    return f"{machine.name}.{nic.name}"


def mac(machine: Machine, nic: Nic) -> str:
    """Fixed, as burnt into a card: a machine that is powered on again is known to its neighbours."""
    digest = hashlib.sha256(f"{machine.name}/{nic.name}".encode()).digest()
    return ":".join(["02", *(f"{b:02x}" for b in digest[:5])])


def create(record: Record, topology: Topology) -> None:
    """The switches, then all machines with their cables, addresses and routes."""
    underlay = namespace.create(record, UNDERLAY)
    lines = ["echo 1 > /proc/sys/net/ipv6/conf/default/disable_ipv6", NO_FILTER, "ip link set lo up"]
    bridges = [s for s in topology.switches if not topology.has_vlans(s)]
    kind = "type bridge forward_delay 0 mcast_snooping 0"
    lines += [f"ip link add {name} {kind}; ip link set {name} up" for name in bridges]
    namespace.script(record, underlay, lines)
    if len(bridges) < len(topology.switches):
        switch.start(record, underlay, [s for s in topology.switches if topology.has_vlans(s)])
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda machine: plug(record, topology, machine), topology.machines))


def plug(record: Record, topology: Topology, machine: Machine) -> None:
    """A machine's namespace and its cables. Also used when a node is powered on again."""
    netns, underlay = namespace.create(record, machine.name), namespace.path(record, UNDERLAY)
    forward = "1" if machine.forwards else "0"
    namespace.script(
        record,
        netns,
        [
            NO_DAD,
            *(() if machine.role == "node" else STRICT_ARP),
            f"echo {forward} > /proc/sys/net/ipv4/ip_forward",
            f"echo {forward} > /proc/sys/net/ipv6/conf/all/forwarding",
            "ip link set lo up",
        ],
    )
    for nic in machine.nics:
        namespace.script(record, underlay, _cable(record, topology, machine, nic))
    namespace.script(record, netns, _configure(machine))
    for nic in machine.nics:
        if nic.loss:
            set_loss(record, machine, nic, nic.loss)


def unplug(record: Record, machine: Machine) -> None:
    """Pull a machine's cables at once; its namespace may take the kernel a while to free."""
    ports = [port_name(machine, nic) for nic in machine.nics]
    lines = [f"ip link del {port} 2>/dev/null || true" for port in ports]
    lines += switch.drop_ports(record, ports)
    namespace.script(record, namespace.path(record, UNDERLAY), lines)


def _cable(record: Record, topology: Topology, machine: Machine, nic: Nic) -> list[str]:
    port, file = port_name(machine, nic), namespace.path(record, machine.name)
    lines = [f"ip link add {port} type veth peer name {nic.name} address {mac(machine, nic)} netns {file}"]
    if topology.has_vlans(nic.switch):
        # userspace OVS adds no checksums to what it reads from a veth, so both ends send finished packets
        lines.append(f"ethtool -K {port} tx off >/dev/null")
        lines.append(switch.add_port(record, nic, port))
    else:
        lines.append(f"ip link set {port} master {nic.switch}")
    return [*lines, f"ip link set {port} up"]


def _configure(machine: Machine) -> list[str]:
    lines = []
    for nic in machine.nics:
        lines.append(f"ethtool -K {nic.name} tx off >/dev/null; ip link set {nic.name} up")
        lines.extend(f"ip address add {a} dev {nic.name} nodad" for a in nic.addresses if ":" in a)
        lines.extend(f"ip address add {a} dev {nic.name}" for a in nic.addresses if ":" not in a)
    for route in machine.routes:
        family = "-6 " if ":" in route.via else ""
        lines.append(f"ip {family}route replace {route.dst} via {route.via}")
    return lines


def set_link(record: Record, machine: Machine, nic: Nic, *, up: bool) -> None:
    """Cut or heal a cable: with the switch's end down the machine's card has no carrier."""
    state = "up" if up else "down"
    namespace.script(
        record, namespace.path(record, UNDERLAY), [f"ip link set {port_name(machine, nic)} {state}"]
    )


def set_loss(record: Record, machine: Machine, nic: Nic, percent: float, burst: int = 1) -> None:
    """Lose that share of the packets in each direction, so many in a row, one at random; 0 removes the rule.

    Both ends drop at egress: what userspace OVS sends through a packet socket passes that hook too, whereas it would read
    a packet before an ingress hook drops it (nft(8), netdev family).
    """
    table = f"lab-{machine.name}-{nic.name}"
    for file, dev in (
        (namespace.path(record, UNDERLAY), port_name(machine, nic)),
        (namespace.path(record, machine.name), nic.name),
    ):
        rules = [f"nft 'add table netdev {table}; delete table netdev {table}'"]
        if percent:
            chain = f'chain loss {{ type filter hook egress device "{dev}" priority 0; '
            share = round(percent * 100)
            lost = f"numgen random mod 10000 < {share} drop; }};" if share < 10000 else "drop; };"
            in_a_row = f"numgen inc mod {round(100 * burst / percent)} < {burst} drop; }};"
            rule = lost if burst == 1 else in_a_row
            rules.append(f"nft 'table netdev {table} {{ {chain}{rule} }}'")
        namespace.script(record, file, rules)
