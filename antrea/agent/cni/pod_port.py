"""Pod ports of the bridge for CNI calls: read from OVSDB, no matter which process wrote them."""

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
    """Operations on the bridge that the CNI server needs. All raise Refused, Unavailable; `standing` only Unavailable."""

    async def add(self, name: str, pod: PodPort) -> PodInterface:
        """Create or correct the port; returns once OVS has given it a number."""

    async def drop(self, names: tuple[str, ...]) -> None:
        """Remove ports; missing ones are not an error."""

    async def acted(self) -> None:
        """Return once OVS has released what was dropped: until then OVS takes a reused name for the old device."""

    def standing(self, container_id: str = "") -> tuple[StandingPort, ...]:
        """List the Pod ports of the bridge, of one container or of all."""

    async def check(self) -> None:
        """Raise Unavailable if nothing can be changed on the bridge now."""


class StandingPort(msgspec.Struct, frozen=True):
    """A Pod port in OVSDB."""

    name: str
    pod: PodPort
    broken: bool
    """Whether the device is gone, with its container, or OVS cannot open it."""


class OvsPodPorts:
    """The Pod ports of one bridge of Open vSwitch."""

    def __init__(self, db: Ovsdb | None, bridge: str) -> None:
        """Without `db`, every operation raises Unavailable until `open`."""
        self._opened = db
        self._bridge = bridge

    def open(self, db: Ovsdb) -> None:
        """Use this connection, since OVSDB has answered."""
        self._opened = db

    @property
    def _db(self) -> Ovsdb:
        if self._opened is None:
            raise Unavailable("OVSDB has not answered since antrea-agent started")
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
        """Check OVSDB and the kernel: the userspace datapath keeps the number of a port whose device is gone."""
        interface = self._db.row("Interface", name)
        if interface is None or (interface["ofport"] is not None and interface["ofport"] < 0):
            return True
        try:
            return not socket.if_nametoindex(name)
        except OSError:
            return True
