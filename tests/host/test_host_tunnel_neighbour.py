"""Real userspace OVS is told of neighbours that the kernel finds, and told again whatever it forgets or they change."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

import pytest
from netdev_switch import NetdevSwitch, until

from antrea.host.tunnel_neighbour import TunnelNeighbour
from antrea.outside.vswitch.tunnel_neighbour_sink import PERIOD, TunnelNeighbourSink, parse

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from conftest import Namespaces

MAC, OTHER_MAC = "0a:00:00:00:00:12", "0a:00:00:00:00:99"
ADDRESSES = PEER4, PEER6, NOBODY = "172.31.9.12", "fd00:172:31::12", "172.31.9.77"


class Place:
    """A Node whose OVS owns the card, and its peer on the same link."""

    def __init__(self, netns: Namespaces) -> None:
        self.netns = netns
        self.peer = netns.make()
        self.switch = NetdevSwitch()
        self.sink = TunnelNeighbourSink(self.switch.directory)

    def start(self) -> None:
        netns, peer = self.netns, self.peer
        netns.sh(f"ip link add eth1 type veth peer name eth0 netns {peer}; ip link set eth1 up")
        netns.sh(f"ip link set eth0 address {MAC}; ip link set eth0 up", peer)
        netns.sh(
            f"ip addr add {PEER4}/24 dev eth0; ip addr add {PEER6}/64 dev eth0 nodad; ethtool -K eth0 tx off",
            peer,
        )
        self.switch.start()
        self.switch.vsctl("add-br", "br-phy", "--", "set", "bridge", "br-phy", "datapath_type=netdev")
        self.switch.vsctl("add-port", "br-phy", "eth1")
        self.wire()

    def wire(self) -> None:
        """What the agent gives br-phy, whenever it is a new device."""
        self.netns.sh(
            "ip addr replace 172.31.9.11/24 dev br-phy; ip addr replace fd00:172:31::11/64 dev br-phy nodad"
        )
        self.netns.sh("ip link set br-phy up")

    async def knows(self, wanted: dict[str, str], seconds: float = 30) -> None:
        """OVS comes to know exactly these of the addresses that tests use, in time."""
        await asyncio.to_thread(until, lambda: self.known() == wanted, f"{wanted} in OVS", seconds)

    def known(self) -> dict[str, str]:
        """What OVS knows of the addresses that tests use."""
        shown = parse(self.switch.appctl("tnl/neigh/show"))
        return {ip: mac for (bridge, ip), mac in shown.items() if bridge == "br-phy" and ip in ADDRESSES}

    @contextlib.asynccontextmanager
    async def told(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self.sink.run())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


@pytest.fixture
def place(netns: Namespaces) -> Iterator[Place]:
    there = Place(netns)
    try:
        there.start()
        yield there
    finally:
        there.switch.stop()


BOTH = [TunnelNeighbour("br-phy", PEER4), TunnelNeighbour("br-phy", PEER6)]
KNOWN = {PEER4: MAC, PEER6: MAC}


async def test_ovs_knows_neighbours_of_both_families_before_any_packet_and_learns_them_again_when_flushed(
    place: Place,
) -> None:
    async with place.told():
        await place.sink.apply([*BOTH, TunnelNeighbour("br-phy", NOBODY)], ())
        await place.knows(KNOWN)
        place.switch.appctl("tnl/neigh/flush")
        await place.knows(KNOWN, PERIOD + 30)


@pytest.mark.wide
async def test_entries_do_not_age(place: Place) -> None:
    """Told anew ten times before they would: a machine may stand still for a while."""
    place.sink = TunnelNeighbourSink(place.switch.directory, refresh=0.5)
    place.switch.appctl("tnl/neigh/aging", "5")
    async with place.told():
        await place.sink.apply(BOTH, ())
        await place.knows(KNOWN)
        for _ in range(65):
            await asyncio.sleep(0.1)
            assert place.known() == KNOWN


async def test_a_peer_that_comes_back_with_another_mac_is_followed(place: Place) -> None:
    async with place.told():
        await place.sink.apply(BOTH, ())
        await place.knows(KNOWN)
        place.netns.sh(
            f"ip link set eth0 address {OTHER_MAC}; ping -c 1 -W 10 172.31.9.11; ping -c 1 -W 10 fd00:172:31::11",
            place.peer,
        )
        await place.knows({PEER4: OTHER_MAC, PEER6: OTHER_MAC})


async def test_a_new_ovs_is_told_all_of_it_when_its_bridge_has_its_addresses_again(place: Place) -> None:
    async with place.told():
        await place.sink.apply(BOTH, ())
        await place.knows(KNOWN)
        place.switch.kill("ovs-vswitchd")
        place.switch.start_switch()
        until(lambda: place.netns.run("ip link show br-phy").returncode == 0, "br-phy")
        place.wire()
        await place.sink.resync(BOTH)
        await place.knows(KNOWN)


async def test_who_is_not_wanted_any_more_is_not_kept(place: Place) -> None:
    async with place.told():
        await place.sink.apply(BOTH, ())
        await place.knows(KNOWN)
        await place.sink.apply((), BOTH[1:])
        place.switch.appctl("tnl/neigh/flush")
        await place.knows({PEER4: MAC}, PERIOD + 30)
