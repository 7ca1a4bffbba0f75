"""The feed of ports: the ports of one bridge in OVSDB, as facts `PodInterface` and `OvsPort`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from antrea.facts.ovs import OvsPort, PodInterface
from antrea.host.ovs_port import RealizedPort

if TYPE_CHECKING:
    from collections.abc import Iterable

    from antrea.engine import Facts
    from antrea.outside.ovsdb.client import Ovsdb

_NO_PORTS: frozenset[str] = frozenset()


class PortFeed:
    """Keeps the facts of one bridge's ports; a port counts once OVS gave it a number (and, unless it is a Pod's, a MAC), and until it takes the number back."""

    def __init__(self, db: Ovsdb, bridge: str) -> None:
        self._db = db
        self._bridge = bridge
        self._ports = _NO_PORTS
        """UUIDs of the ports of the bridge."""
        self._port_of: dict[str, str] = {}
        """uuid of an interface -> uuid of the port that holds it"""
        self._facts: dict[str, PodInterface | OvsPort] = {}
        """uuid of a port -> its fact"""

    async def run(self, facts: Facts) -> None:
        """List, mark both kinds synced, then follow; what follows is urgent, because a Pod waits for it."""
        changes = self._db.changes()
        self._ports = self._standing()
        self._write_facts(facts, self._ports, urgent=False)
        facts.synced(PodInterface)
        facts.synced(OvsPort)
        async for touched in changes:
            self._write_facts(facts, self._affected(touched), urgent=True)

    def _standing(self) -> frozenset[str]:
        row = self._db.row("Bridge", self._bridge)
        return row["ports"] if row else _NO_PORTS

    def _affected(self, touched: Iterable[tuple[str, str]]) -> set[str]:
        """The ports to look at again; costs the size of the change, except when the bridge itself changes."""
        ports: set[str] = set()
        for table, uuid in touched:
            if table == "Port":
                ports.add(uuid)
            elif table == "Interface" and (port := self._port_of.get(uuid)):
                ports.add(port)
                if uuid not in self._db.rows("Interface"):
                    del self._port_of[uuid]
            elif table == "Bridge":
                standing = self._standing()
                ports |= standing ^ self._ports
                self._ports = standing
        return ports

    def _write_facts(self, facts: Facts, ports: Iterable[str], *, urgent: bool) -> None:
        """Drops first: a port that was made anew under its old name is the same key."""
        news = {uuid: self._fact(uuid) for uuid in sorted(ports)}
        for uuid, fact in news.items():
            old = self._facts.pop(uuid, None) if fact is None else self._facts.get(uuid)
            if old is not None and (fact is None or (type(fact), fact.key) != (type(old), old.key)):
                facts.drop(type(old), old.key, urgent=urgent)
        for uuid, fact in news.items():
            if fact is not None and fact != self._facts.get(uuid):
                self._facts[uuid] = fact
                facts.put(fact, urgent=urgent)

    def _fact(self, port_uuid: str) -> PodInterface | OvsPort | None:
        port = self._db.rows("Port").get(port_uuid)
        if port is None or port_uuid not in self._ports:
            return None
        for uuid in port["interfaces"]:
            self._port_of[uuid] = port_uuid
            interface = self._db.rows("Interface").get(uuid)
            if interface is not None and interface["name"] == port["name"]:
                number = interface["ofport"] or 0
                mac = interface["mac_in_use"] or self._last_mac(port_uuid)
                return (
                    RealizedPort(port["name"], port_uuid, number, mac, port["external_ids"]).fact()
                    if number > 0
                    else None
                )
        return None

    def _last_mac(self, port_uuid: str) -> str:
        """OVSDB loses mac_in_use when it restarts, and has it again once ovs-vswitchd is back with it, seconds later."""
        known = self._facts.get(port_uuid)
        return known.mac if isinstance(known, OvsPort) else ""
