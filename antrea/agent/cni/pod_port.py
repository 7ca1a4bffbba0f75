"""The Pod ports of the bridge, as CNI calls see them: found in OVSDB, no matter which process wrote them."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Protocol, cast

import msgspec

from antrea.errors import Unavailable
from antrea.host.ovs_port import PodPort, Port, RealizedPort
from antrea.outside.ovsdb import write as ovsdb_write

if TYPE_CHECKING:
    from antrea.facts.ovs import PodInterface
    from antrea.outside.ovsdb.client import Ovsdb


class PodPorts(Protocol):
    """What the CNI server needs of the bridge. All raise Refused, Unavailable; `standing` only Unavailable."""

    async def add(self, name: str, pod: PodPort) -> PodInterface:
        """Make the port, or bring it in line; returns once OVS has given it a number."""

    async def drop(self, names: tuple[str, ...]) -> None:
        """Take ports away; those that are not there are no error."""

    async def acted(self) -> None:
        """Returns once OVS has let go of what was dropped: until then a name that comes again is the old device to it."""

    def standing(self, container_id: str = "") -> tuple[StandingPort, ...]:
        """The Pod ports of the bridge, of one container or of all, as of now."""

    async def check(self) -> None:
        """Raises Unavailable if nothing can be changed on the bridge now."""


class StandingPort(msgspec.Struct, frozen=True):
    """A Pod port in OVSDB."""

    name: str
    pod: PodPort
    broken: bool
    """The device is gone, with its container, or OVS cannot open it."""


class OvsPodPorts:
    """The Pod ports of one bridge of Open vSwitch."""

    def __init__(self, db: Ovsdb | None, bridge: str) -> None:
        """Without `db`, all is Unavailable until `open`."""
        self._opened = db
        self._bridge = bridge

    def open(self, db: Ovsdb) -> None:
        """OVSDB has answered."""
        self._opened = db

    @property
    def _db(self) -> Ovsdb:
        if self._opened is None:
            raise Unavailable("OVSDB, which has not answered since antrea-agent started")
        return self._opened

    async def add(self, name: str, pod: PodPort) -> PodInterface:
        port = Port(name=name, external_ids=tuple(pod.external_ids().items()))
        uuid = await ovsdb_write.ensure_port(self._db, self._bridge, port)
        number = await ovsdb_write.ofport(self._db, name)
        return cast("PodInterface", RealizedPort(name, uuid, number, "", pod.external_ids()).fact())

    async def drop(self, names: tuple[str, ...]) -> None:
        await ovsdb_write.drop_ports(self._db, self._bridge, names)

    async def acted(self) -> None:
        await ovsdb_write.realized(self._db)

    def standing(self, container_id: str = "") -> tuple[StandingPort, ...]:
        bridge = self._db.row("Bridge", self._bridge)
        ports = self._db.rows("Port")
        rows = [ports[uuid] for uuid in bridge["ports"] if uuid in ports] if bridge else []
        return tuple(
            StandingPort(row["name"], pod, self._is_broken(row["name"]))
            for row in rows
            if container_id in ("", row["external_ids"].get("container-id"))
            and (pod := PodPort.read(row["external_ids"]))
        )

    async def check(self) -> None:
        await self._db.transact({"op": "comment", "comment": "is OVSDB there"})

    def _is_broken(self, name: str) -> bool:
        """The userspace datapath keeps the number of a port whose device is gone, so the kernel is asked as well."""
        interface = self._db.row("Interface", name)
        if interface is None or (interface["ofport"] is not None and interface["ofport"] < 0):
            return True
        try:
            return not socket.if_nametoindex(name)
        except OSError:
            return True
