"""What lies under the nodes: switches with VLAN trunks, routers, external hosts, packet loss, cut cables. No Kubernetes."""

from __future__ import annotations

import json
import os
import re
import socket
import struct
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest

from lab import cluster, fault, namespace, underlay
from lab.process import run, wait_for
from lab.record import Record
from lab.settings import Settings
from lab.topology import Machine, Nic, StaticRoute, Topology

if TYPE_CHECKING:
    from collections.abc import Iterator

# the same subnet in three VLANs, of which the nodes' trunks carry the first two
TENANTS = tuple(
    Machine(
        name=f"tenant{vlan}",
        nics=(Nic(name="eth0", switch="fabric", vlan=vlan, addresses=(f"172.18.100.{vlan // 10}/24",)),),
    )
    for vlan in (100, 200, 300)
)
BRANCH = Machine(
    name="branch",
    nics=(
        Nic(name="eth0", switch="outside", addresses=("192.0.2.20/24",)),
        Nic(name="eth1", switch="office", addresses=("198.51.100.1/24",)),
    ),
)
OFFICE = Machine(
    name="office",
    nics=(Nic(name="eth0", switch="office", addresses=("198.51.100.9/24",)),),
    routes=(StaticRoute("default", "198.51.100.1"),),
)
ETH_P_ALL, SOL_PACKET, PACKET_AUXDATA = 3, 263, 8


class Wires(msgspec.Struct, frozen=True):
    """A realized topology; `ping` answers how many of `count` packets came back."""

    record: Record
    topology: Topology

    def ping(self, machine: str, target: str, count: int = 1) -> int:
        words = ["ping", "-q", "-c", str(count), "-i", "0.005", "-W", "1", target]
        command = namespace.inside(
            namespace.path(self.record, machine), ["sh", "-c", " ".join(words) + "; true"]
        )
        found = re.search(r"(\d+) received", run(command))
        return int(found[1]) if found else 0


def introduce(lab: Wires) -> None:
    """node-1 and node-2 know each other's MAC for good: where packets are lost, those of ARP are too."""
    for here, there in (("node-1", "node-2"), ("node-2", "node-1")):
        show = namespace.inside(
            namespace.path(lab.record, there), ["ip", "-json", "link", "show", "dev", "eth1"]
        )
        known = (
            f"{lab.topology.machine(there).address('eth1', 4)} lladdr {json.loads(run(show))[0]['address']}"
        )
        words = [f"ip neigh replace {known} dev eth1 nud permanent"]
        namespace.script(lab.record, namespace.path(lab.record, here), words)


def realized(kind: str, settings: Settings) -> Iterator[Wires]:
    record = Record(f"{kind}{os.getpid()}")
    try:
        with record.locked():
            underlay.create(record, settings.topology())
        yield Wires(record, settings.topology())
    finally:
        cluster.down(record)


@pytest.fixture(scope="module")
def bridges() -> Iterator[Wires]:
    """No VLANs: every switch is a Linux bridge. A second router with a network behind it."""
    yield from realized("b", Settings(nodes=2, family="dual", routers=(BRANCH,), hosts=(OFFICE,)))


@pytest.fixture(scope="module")
def trunks() -> Iterator[Wires]:
    """VLANs 100 and 200 on the fabric, which is therefore an Open vSwitch."""
    yield from realized("v", Settings(nodes=2, vlans=(100, 200), hosts=TENANTS))


def test_nodes_reach_each_other_on_both_cards_and_the_external_host_in_both_families(bridges: Wires) -> None:
    targets = (
        "172.30.0.12",
        "172.31.0.12",
        "192.0.2.10",
        "fd00:172:30::12",
        "fd00:172:31::12",
        "2001:db8:2::10",
    )

    assert {t: bridges.ping("node-1", t) for t in targets} == dict.fromkeys(targets, 1)


def test_a_router_of_the_configuration_forwards_to_the_network_behind_it(bridges: Wires) -> None:
    for machine, via in (("outside", "192.0.2.20"), ("branch", "192.0.2.1")):
        dst = "198.51.100.0/24" if machine == "outside" else "default"
        namespace.script(
            bridges.record, namespace.path(bridges.record, machine), [f"ip route replace {dst} via {via}"]
        )

    assert bridges.ping("outside", "198.51.100.9") == 1


def test_access_ports_of_a_vlan_see_each_other_and_no_other_vlan(trunks: Wires) -> None:
    assert trunks.ping("gateway", "172.18.100.10") == 1
    assert trunks.ping("gateway", "172.18.100.20") == 0


def test_a_nodes_card_is_a_trunk_with_untagged_traffic_beside_it(trunks: Wires) -> None:
    asked = {
        vlan: who_has(trunks, vlan, f"172.18.100.{vlan // 10}", source="172.18.100.11")
        for vlan in (100, 200, 300)
    }

    assert asked == {100: 100, 200: 200, 300: None}
    assert trunks.ping("node-1", "172.31.0.12") == 1


@pytest.mark.parametrize("wires", ["bridges", pytest.param("trunks", marks=pytest.mark.wide)])
def test_loss_takes_its_share_in_each_direction_and_ends(wires: str, request: pytest.FixtureRequest) -> None:
    lab: Wires = request.getfixturevalue(wires)
    node = lab.topology.machine("node-2")
    card = node.nics[1]
    target = card.addresses[0].split("/")[0]
    introduce(lab)
    got = []
    for percent in (100.0, 50.0, 0.0):
        underlay.set_loss(lab.record, node, card, percent)
        got.append(lab.ping("node-1", target, 200))

    assert got[0] == 0
    assert 10 < got[1] < 100  # a quarter of the echoes survives both directions
    assert got[2] == 200


def test_lost_packets_may_be_as_many_in_a_row_as_is_said(bridges: Wires) -> None:
    node = bridges.topology.machine("node-2")
    card = node.nics[1]
    introduce(bridges)
    assert bridges.ping("node-1", "172.31.0.12") == 1
    underlay.set_loss(bridges.record, node, card, 25.0, burst=50)
    got = [bridges.ping("node-1", "172.31.0.12", 40), bridges.ping("node-1", "172.31.0.12", 120)]
    underlay.set_loss(bridges.record, node, card, 0)
    # the first 50 of 200, to the Node and from it
    assert got[0] == 0
    assert 40 < got[1] < 80


@pytest.mark.parametrize("wires", ["bridges", pytest.param("trunks", marks=pytest.mark.wide)])
def test_a_cut_cable_takes_the_carrier_and_a_healed_one_works_again(
    wires: str, request: pytest.FixtureRequest
) -> None:
    lab: Wires = request.getfixturevalue(wires)
    node = lab.topology.machine("node-2")

    def carrier() -> str:
        return run(
            namespace.inside(namespace.path(lab.record, "node-2"), ["cat", "/sys/class/net/eth1/carrier"])
        )

    underlay.set_link(lab.record, node, node.nics[1], up=False)
    cut = lab.ping("node-1", "172.31.0.12")
    underlay.set_link(lab.record, node, node.nics[1], up=True)

    assert cut == 0
    wait_for("a ping over the healed cable", lambda: lab.ping("node-1", "172.31.0.12"), seconds=60)
    assert lab.ping("node-1", "172.30.0.12") == 1


def test_a_healed_cable_loses_what_its_configuration_says_again(bridges: Wires) -> None:
    got = []
    for percent in (100.0, 0.0):
        settings = Settings(nodes=2, loss={"node-2/eth1": percent})
        lab = cluster.Lab(bridges.record, settings, Path("kubectl"))
        fault.lose(lab, "node-2", "eth1", 100.0 - percent)
        fault.inject(lab, "node-2", "cut-link", link="eth1")
        fault.inject(lab, "node-2", "heal-link", link="eth1")
        namespace.script(
            bridges.record, namespace.path(bridges.record, "node-1"), ["ip neigh flush dev eth1"]
        )
        wait_for("the carrier", lambda: bridges.ping("node-1", "172.31.0.1"), seconds=60)
        got.append(bridges.ping("node-1", "172.31.0.12", 3) > 0)
    assert got == [False, True]


def who_has(lab: Wires, vlan: int, target: str, *, source: str) -> int | None:
    """Ask by ARP in a VLAN from node-1's eth1; the VLAN tag of the answer, None if there is none."""
    with namespace.entered(namespace.path(lab.record, "node-1")):
        raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
    with raw:
        raw.bind(("eth1", 0))
        raw.setsockopt(SOL_PACKET, PACKET_AUXDATA, 1)
        mac = raw.getsockname()[4]
        arp = struct.pack("!HHBBH", 1, 0x0800, 6, 4, 1) + mac + socket.inet_aton(source)
        arp += bytes(6) + socket.inet_aton(target)
        raw.send(b"\xff" * 6 + mac + struct.pack("!HHH", 0x8100, vlan, 0x0806) + arp)
        raw.settimeout(1)
        while True:
            try:
                frame, ancillary, _, _ = raw.recvmsg(1500, 128)
            except TimeoutError:
                return None
            if (
                frame[12:14] == b"\x08\x06"
                and frame[20:22] == b"\x00\x02"
                and frame[28:32] == socket.inet_aton(target)
            ):
                # struct tpacket_auxdata (packet(7)): the kernel moves the tag there
                return int(struct.unpack_from("=IIIHHH", ancillary[0][2])[5])
