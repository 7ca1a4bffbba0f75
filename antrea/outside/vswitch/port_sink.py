"""The sink of ports that features want on the bridge: in OVSDB, and by OpenFlow what OVSDB does not have."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from antrea.errors import Refused
from antrea.host.ovs_port import INDEX_KEY, TYPE_KEY
from antrea.outside.netlink.host_message import set_device
from antrea.outside.netlink.socket import Rtnl
from antrea.outside.ovsdb import write as ovsdb_write

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from antrea.host.ovs_port import Port
    from antrea.outside.ovsdb.client import Ovsdb
    from antrea.outside.vswitch.ofctl import Ofctl


class PortSink:
    """Applies `Port` entries, to one bridge where they name no other.

    `owned` maps a category to the antrea-types of the ports that its sweep may take away. The flag no-flood lives in
    ovs-vswitchd only, so this sink has to be replayed, like that of flows, when the switch comes back.
    """

    def __init__(self, db: Ovsdb, bridge: str, ofctl: Ofctl, owned: Mapping[int, frozenset[str]]) -> None:
        self._db = db
        self._bridge = bridge
        self._ofctl = ofctl
        self._owned = owned
        self._wanted: set[str] = set()

    async def apply(self, put: Sequence[Port], drop: Sequence[Port]) -> None:
        """Ports one by one, drops together. Raises Refused with those that OVS does not take, Unavailable."""
        refused: dict[Port, str] = {}
        for port in put:
            self._wanted.add(port.name)
            try:
                await self._stand(port)
            except Refused as error:
                refused[port] = error.why
        self._wanted.difference_update(port.name for port in drop)
        for bridge in {port.bridge or self._bridge for port in drop}:
            names = [port.name for port in drop if (port.bridge or self._bridge) == bridge]
            await ovsdb_write.drop_ports(self._db, bridge, names)
        if refused:
            raise Refused(list(refused), "; ".join(dict.fromkeys(refused.values())))

    async def resync(self, entries: Sequence[Port]) -> None:
        """Bring every wanted port in line; the others stay until the sweep. Raises as `apply` does."""
        self._wanted.clear()
        await self.apply(entries, ())

    async def sweep(self, category: int) -> None:
        """Remove the ports of this category's types that are not wanted any more. Raises Refused, Unavailable."""
        types = self._owned.get(category, frozenset())
        for bridge in list(self._db.rows("Bridge").values()) if types else ():
            rows = [self._db.rows("Port").get(uuid) for uuid in bridge["ports"]]
            stale = [row["name"] for row in rows if row and row["external_ids"].get(TYPE_KEY) in types]
            await ovsdb_write.drop_ports(
                self._db, bridge["name"], [name for name in stale if name not in self._wanted]
            )

    async def _stand(self, port: Port) -> None:
        index = dict(port.external_ids).get(INDEX_KEY)
        is_new = index is not None and await self._parted_with_device_before(port, index)
        await ovsdb_write.ensure_port(self._db, port.bridge or self._bridge, port)
        if port.no_flood or port.type == "internal":  # what is put on it next finds the device
            await ovsdb_write.ofport(self._db, port.name)
        if port.no_flood:
            await self._ofctl.keep_from_flooding(port.name)
        if index is not None and is_new:
            # ovs-vswitchd gives flags back by name when it closes a device that is gone: it sets the next one down
            await asyncio.to_thread(_set_up, int(index))

    async def _parted_with_device_before(self, port: Port, index: str) -> bool:
        """Returns whether the port is to be made, and then once ovs-vswitchd has closed what had this name before.

        A port that goes and comes back within one of its looks at OVSDB is the same port to it, with the device that is gone.
        """
        row = self._db.row("Port", port.name)
        if row is not None and row["external_ids"].get(INDEX_KEY, index) == index:
            return False
        if row is not None:
            await ovsdb_write.drop_ports(self._db, port.bridge or self._bridge, [port.name])
        await ovsdb_write.realized(self._db)
        return True


def _set_up(index: int) -> None:
    """A device that has gone meanwhile is not an error: its port goes, too."""
    with Rtnl() as kernel, contextlib.suppress(OSError):
        kernel.ask(set_device(index, up=True))
