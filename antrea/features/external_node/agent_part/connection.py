"""Connection of a machine's interface to the switch, and back, without losing its addresses and routes.

The network card gets the name of the interface with the suffix `~`, and becomes a port; an internal port takes name, MAC,
addresses and routes. Each step can be repeated, and the journal has what a step removes before it does: an agent that was
killed is continued by the next one.
parity: pkg/agent/externalnode/external_node_controller.go createOVSPortsAndFlows, removeOVSPortsAndFlows
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec

from antrea.errors import Refused, Unavailable
from antrea.features.external_node.agent_part.journal import ConnectedInterface
from antrea.host.ovs_port import TYPE_KEY, UPLINK, MachinePort, Port
from antrea.outside.log import klog
from antrea.outside.netlink import interface_settings as netlink
from antrea.outside.netlink.pod_veth import turn_off_checksums
from antrea.outside.ovsdb import write as ovsdb_write

if TYPE_CHECKING:
    from antrea.features.external_node.agent_part.journal import InterfaceJournal
    from antrea.outside.ovsdb.client import Ovsdb

log = klog.logger(__name__)

MARK = "~"
"""Suffix of the name of the network card. # parity: pkg/agent/util/net.go GenerateUplinkInterfaceName"""
SECONDS = 10.0
"""Seconds until the kernel has, or no longer has, the interface of a port."""
PAUSE_SECONDS = 0.02


def card_name(interface: str) -> str:
    """Return the name of the network card of a connected interface."""
    return f"{interface}{MARK}"


class InterfaceConnector:
    """Connector of the interfaces of this machine, on one bridge."""

    def __init__(self, db: Ovsdb, bridge: str, journal: InterfaceJournal, *, tx_off: bool) -> None:
        """`tx_off`: packets that leave an interface need whole checksums."""
        self._db, self._bridge, self._journal, self._tx_off = db, bridge, journal, tx_off

    def known(self) -> tuple[str, ...]:
        """Names of interfaces that are connected, or half."""
        rows = self._db.rows("Port").values()
        standing = {row["name"] for row in rows if MachinePort.read(row["external_ids"]) is not None}
        return tuple(sorted(standing | {*self._journal.names()}))

    def entities(self) -> dict[str, str]:
        """Names of interfaces whose cards are behind the switch, by their ExternalEntities."""
        rows = self._db.rows("Port").values()
        ports = {row["name"]: MachinePort.read(row["external_ids"]) for row in rows}
        ports |= {name: record.port for name in self._journal.names() if (record := self._journal.get(name))}
        return {
            port.entity: name
            for name, port in ports.items()
            if port is not None and netlink.device(card_name(name)) is not None
        }

    def left_by_boot(self) -> dict[str, MachinePort]:
        """Interfaces that OVSDB has of before a boot and that have an address of before, by name."""
        held = netlink.held_addresses(MARK)
        rows = self._db.rows("Port").values()
        ports = {row["name"]: MachinePort.read(row["external_ids"]) for row in rows}
        return {
            name: port
            for name, port in ports.items()
            if port is not None
            and self._journal.get(name) is None
            and not held.get(name, set()).isdisjoint(port.ips)
        }

    async def resume(self, name: str) -> None:
        """Continue an unfinished step in its direction. Raises Refused, Unavailable."""
        record = self._journal.get(name)
        if record is not None and not self._is_whole(record):
            log.info("Going on with an interface that an earlier agent left half connected", interface=name)
            await self.connect(name, record.port)

    async def connect(self, name: str, port: MachinePort) -> None:
        """Connect an interface; idempotent. Raises Refused, Unavailable."""
        card, record = card_name(name), self._journal.get(name)
        if len(card) > netlink.MAX_NAME:
            raise Refused([name], f"{name} has no room for {MARK}: {netlink.MAX_NAME} characters at most")
        if netlink.device(card) is None:
            record = await self._take_card(name, port)
        elif record is None:
            settings = netlink.read_settings(name) or netlink.read_settings(card)
            if settings is None:
                raise Unavailable(f"interface {name} does not exist")
            record = ConnectedInterface(name, settings, port)
            self._journal.put(record)
        await self._ports(record, port)
        await self._settle(msgspec.structs.replace(record, port=port))

    async def disconnect(self, name: str) -> None:
        """Disconnect an interface; the card gets name, addresses and routes back. Idempotent. Raises Refused, Unavailable."""
        card, record = card_name(name), self._journal.get(name)
        if netlink.device(card) is not None:
            now = netlink.read_settings(name)
            if now is not None and now.addresses:
                # what was changed since, as by DHCP, goes with it
                port = record.port if record else MachinePort("", "", (), card)
                record = ConnectedInterface(name, now, port)
                self._journal.put(record)
            await self._drop_ports(name)
            await self._until(name, there=False)
            netlink.rename(card, name)
        else:
            await self._drop_ports(name)
        if netlink.device(name) is not None:
            netlink.give_settings(name, record.settings if record else netlink.InterfaceSettings("", 0))
        self._journal.drop(name)
        log.info("Interface is no longer connected", interface=name)

    def _is_whole(self, record: ConnectedInterface) -> bool:
        here, card = netlink.device(record.name), netlink.device(card_name(record.name))
        return card is not None and here is not None and here.index == record.index

    async def _take_card(self, name: str, port: MachinePort) -> ConnectedInterface:
        """Rename the card; OVSDB's port from an earlier boot would keep it from getting its own."""
        await self._drop_ports(name)
        settings, before = netlink.read_settings(name), self._journal.get(name)
        if settings is None:
            raise Unavailable(f"interface {name} does not exist")
        if before is not None and not settings.addresses:
            settings = before.settings
        record = ConnectedInterface(name, settings, port)
        self._journal.put(record)
        netlink.rename(name, card_name(name))
        return record

    async def _ports(self, record: ConnectedInterface, port: MachinePort) -> None:
        card, settings = card_name(record.name), record.settings
        uplink = Port(name=card, external_ids=((TYPE_KEY, UPLINK),))
        await ovsdb_write.ensure_port(self._db, self._bridge, uplink)
        ids = tuple(port.external_ids().items())
        internal = Port(
            name=record.name, type="internal", external_ids=ids, mac=settings.mac, mtu=settings.mtu
        )
        await ovsdb_write.ensure_port(self._db, self._bridge, internal)
        await ovsdb_write.realized(self._db)
        for name in (card, record.name):
            await ovsdb_write.ofport(self._db, name)
        await self._until(record.name, there=True)

    async def _settle(self, record: ConnectedInterface) -> None:
        """Apply the settings to a new interface; one that has been given its settings keeps what it has."""
        here = netlink.device(record.name)
        if here is None:
            raise Unavailable(f"interface {record.name} does not exist")
        if here.index != record.index:
            if self._tx_off:
                turn_off_checksums(record.name)
            netlink.clear_settings(card_name(record.name))
            netlink.give_settings(record.name, record.settings)
            log.info("Interface is connected", interface=record.name, entity=record.port.entity)
        settings = netlink.read_settings(record.name) or record.settings
        now = settings if settings.addresses else record.settings
        fresh = ConnectedInterface(record.name, now, record.port, here.index)
        if fresh != self._journal.get(record.name):
            self._journal.put(fresh)

    async def _drop_ports(self, name: str) -> None:
        await ovsdb_write.drop_ports(self._db, self._bridge, (name, card_name(name)))
        await ovsdb_write.realized(self._db)

    async def _until(self, name: str, *, there: bool) -> None:
        """Wait for the interface. Raises Unavailable."""
        try:
            async with asyncio.timeout(SECONDS):
                while (netlink.device(name) is not None) != there:  # noqa: ASYNC110 (the kernel has no event for us here)
                    await asyncio.sleep(PAUSE_SECONDS)
        except TimeoutError:
            what = "to appear" if there else "to go"
            raise Unavailable(f"interface {name} of Open vSwitch, {what} within {SECONDS:.0f} s") from None
