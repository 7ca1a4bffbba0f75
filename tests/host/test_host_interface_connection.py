"""An interface goes behind the switch and comes back with all it had, wherever the agent is killed between steps."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from netdev_switch import NetdevSwitch

from antrea.errors import Refused
from antrea.features.external_node.agent_part.connection import InterfaceConnector
from antrea.features.external_node.agent_part.journal import InterfaceJournal
from antrea.host.ovs_port import MachinePort
from antrea.outside.netlink.interface_settings import MAX_NAME
from antrea.outside.ovsdb.client import Ovsdb

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from conftest import Namespaces

PORT = MachinePort("vm1", "vms", ("192.0.2.1", "2001:db8:7::1"), "eth0~")
ROUTES = (
    "default via 192.0.2.254 proto dhcp src 192.0.2.1 metric 100",
    "198.51.100.0/24 proto static scope link metric 5",
    "203.0.113.0/24 via 198.51.100.9 proto static metric 7 onlink",
    "default via 2001:db8:7::fe proto static metric 1024 pref medium",
)


class Killed(BaseException):
    """The agent ends here."""


class CutDatabase:
    """OVSDB, until so many transactions were made."""

    def __init__(self, db: Ovsdb, left: int) -> None:
        self._db, self._left = db, left

    def __getattr__(self, name: str) -> Any:
        return getattr(self._db, name)

    async def transact(self, *operations: Any) -> Any:
        if self._left == 0:
            raise Killed
        self._left -= 1
        return await self._db.transact(*operations)


class CutJournal(InterfaceJournal):
    """Ends the agent after so many writes."""

    def __init__(self, path: Path, left: int) -> None:
        super().__init__(path)
        self._left = left

    def _write(self) -> None:
        super()._write()
        if self._left == 0:
            raise Killed
        self._left -= 1


@pytest.fixture
def switch(netns: Namespaces) -> Iterator[NetdevSwitch]:
    found = NetdevSwitch()
    found.start()
    found.add_bridge("br-int")
    netns.sh(
        "ip link add eth0 type veth peer name far0; ip link set eth0 mtu 1400 up; ip link set far0 up;"
        " ip addr add 192.0.2.1/24 dev eth0; ip addr add 192.0.2.2/24 dev eth0;"
        " ip addr add 2001:db8:7::1/64 dev eth0 nodad valid_lft 4000 preferred_lft 3000;"
        " ip route add 198.51.100.0/24 dev eth0 proto static metric 5;"
        " ip route add 203.0.113.0/24 via 198.51.100.9 dev eth0 proto static metric 7 onlink;"
        " ip route add default via 192.0.2.254 proto dhcp src 192.0.2.1 metric 100;"
        " ip -6 route add default via 2001:db8:7::fe proto static"
    )
    yield found
    found.stop()


def state(netns: Namespaces) -> tuple[Any, ...]:
    """What a person sees of eth0, but for the seconds that are left of addresses."""
    (link,) = json.loads(netns.sh("ip -j addr show dev eth0"))
    held = [
        (one["local"], one["prefixlen"], one.get("dynamic", False))
        for one in link["addr_info"]
        if one["scope"] == "global"
    ]
    routes = netns.sh("ip route show dev eth0; ip -6 route show dev eth0 default").splitlines()
    return link["address"], link["mtu"], "UP" in link["flags"], held, sorted(line.strip() for line in routes)


def is_connected(netns: Namespaces, switch: NetdevSwitch) -> bool:
    return switch.ports("br-int") == {"eth0", "eth0~"} and netns.run("ip link show eth0~").returncode == 0


async def test_an_interface_keeps_all_it_has(netns: Namespaces, switch: NetdevSwitch, tmp_path: Path) -> None:
    before = state(netns)
    for route in ROUTES:
        assert any(
            route.replace(" pref medium", "") in line.replace(" linkdown", "") for line in before[-1]
        ), before
    db = await Ovsdb.connect(switch.socket)
    one = InterfaceConnector(db, "br-int", InterfaceJournal(tmp_path / "journal"), tx_off=True)
    for _ in range(2):
        for _ in range(2):
            await one.connect("eth0", PORT)
            assert is_connected(netns, switch)
            assert state(netns) == before
            assert one.known() == ("eth0",)
        assert not json.loads(netns.sh("ip -j -4 addr show dev eth0~"))
        for _ in range(2):
            await one.disconnect("eth0")
            assert switch.ports("br-int") == set()
            assert state(netns) == before
            assert one.known() == ()
    await db.close()


async def test_what_was_changed_while_it_was_connected_stays(
    netns: Namespaces, switch: NetdevSwitch, tmp_path: Path
) -> None:
    """Also if Open vSwitch makes the port anew, which has no address then."""
    db = await Ovsdb.connect(switch.socket)
    one = InterfaceConnector(db, "br-int", InterfaceJournal(tmp_path / "journal"), tx_off=True)
    await one.connect("eth0", PORT)
    netns.sh("ip addr add 192.0.2.77/24 dev eth0; ip route del 198.51.100.0/24 dev eth0")
    await one.connect("eth0", PORT)
    now = state(netns)
    switch.vsctl("del-port", "br-int", "eth0")
    await db.until(lambda: db.row("Port", "eth0") is None or None, "the port to go", within=60)
    await one.connect("eth0", PORT)
    assert state(netns) == now
    await one.disconnect("eth0")
    assert state(netns) == now
    await db.close()


async def test_a_route_that_has_outlived_its_address_does_not_keep_the_interface(
    netns: Namespaces, switch: NetdevSwitch, tmp_path: Path
) -> None:
    """The kernel keeps a route of IPv6 when the address goes that is in one subnet with its router."""
    db = await Ovsdb.connect(switch.socket)
    one = InterfaceConnector(db, "br-int", InterfaceJournal(tmp_path / "journal"), tx_off=True)
    for change in (one.connect("eth0", PORT), one.disconnect("eth0")):
        netns.run("ip addr del 2001:db8:7::1/64 dev eth0")
        await change
        assert "default via 2001:db8:7::fe" in netns.sh("ip -6 route show dev eth0")
    assert one.known() == ()
    await db.close()


@pytest.mark.parametrize("what", ["transactions", "journal"])
async def test_an_agent_that_is_killed_between_steps_is_followed_by_one_that_finishes(
    netns: Namespaces, switch: NetdevSwitch, tmp_path: Path, what: str
) -> None:
    before, path = state(netns), tmp_path / "journal"
    db = await Ovsdb.connect(switch.socket)

    def agent(left: int) -> InterfaceConnector:
        cut: Any = CutDatabase(db, left) if what == "transactions" else db
        journal = CutJournal(path, left) if what == "journal" else InterfaceJournal(path)
        return InterfaceConnector(cut, "br-int", journal, tx_off=True)

    def next_agent() -> InterfaceConnector:
        return InterfaceConnector(db, "br-int", InterfaceJournal(path), tx_off=True)

    cuts = 0
    for left in range(20):
        ended = 0
        try:
            await agent(left).connect("eth0", PORT)
        except Killed:
            ended += 1
        await next_agent().resume("eth0")
        if is_connected(netns, switch):
            assert state(netns) == before, f"connecting, {left}"
        await next_agent().connect("eth0", PORT)
        assert state(netns) == before
        try:
            await agent(left).disconnect("eth0")
        except Killed:
            ended += 1
        await next_agent().resume("eth0")
        for name in next_agent().known():
            await next_agent().disconnect(name)
        assert (state(netns), switch.ports("br-int")) == (before, set()), f"giving back, {left}"
        cuts += ended
        if not ended:
            break
    assert cuts >= 4
    await db.close()


async def test_ports_that_a_boot_before_left_in_the_database_are_made_anew(
    netns: Namespaces, switch: NetdevSwitch, tmp_path: Path
) -> None:
    """OVSDB outlives a reboot; the kernel's interface has its own name again, and the journal is gone."""
    ids = [f'external_ids:{key}="{value}"' for key, value in PORT.external_ids().items()]
    switch.vsctl("--no-wait", "add-port", "br-int", "eth0", "--", "set", "port", "eth0", *ids)
    switch.vsctl("--no-wait", "add-port", "br-int", "eth0~")
    before, db = state(netns), await Ovsdb.connect(switch.socket)
    one = InterfaceConnector(db, "br-int", InterfaceJournal(tmp_path / "journal"), tx_off=True)
    assert one.known() == ("eth0",)
    await one.connect("eth0", PORT)
    assert (is_connected(netns, switch), state(netns)) == (True, before)
    await one.disconnect("eth0")
    assert state(netns) == before
    await db.close()


async def test_a_name_without_room_for_the_mark_is_refused(
    netns: Namespaces, switch: NetdevSwitch, tmp_path: Path
) -> None:
    db = await Ovsdb.connect(switch.socket)
    one = InterfaceConnector(db, "br-int", InterfaceJournal(tmp_path / "journal"), tx_off=True)
    with pytest.raises(Refused, match="has no room for ~: 15 characters at most"):
        await one.connect("e" * MAX_NAME, PORT)
    await db.close()


def test_a_damaged_journal_is_set_aside(tmp_path: Path) -> None:
    (tmp_path / "journal").write_bytes(b"nothing of ours")
    assert InterfaceJournal(tmp_path / "journal").names() == ()
    assert (tmp_path / "journal.damaged").exists()
