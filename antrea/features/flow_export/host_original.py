"""Connections that the host may have translated before the switch: kube-proxy's NodePorts, ports of NodePortLocal.

Only the kernel's default zone has the sender of the first packet, and its destination. It is queried once for each new
connection from the host that no Service of the switch has translated.
parity: pkg/agent/flowexporter/connections/from_external_correlator.go, which reads that zone at every poll
"""

from __future__ import annotations

from ipaddress import ip_address
from typing import TYPE_CHECKING, Final

from antrea.facts.node import LocalAddress
from antrea.features.flow_export.connection import ENDED
from antrea.features.flow_export.port_local import PROTOCOLS
from antrea.openflow.fields import CONN_SOURCE_CT_MARK, FROM_GATEWAY_CT_MARK, SERVICE
from antrea.openflow.tracked_connection import HostOriginal

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable

    from antrea.engine import Facts
    from antrea.openflow.tracked_connection import Key, TrackedConnection

_MARKS: Final = CONN_SOURCE_CT_MARK.mask | SERVICE.mask


def is_from_host(connection: TrackedConnection) -> bool:
    """Whether it came from the host, to the address of its destination: no Service of the switch has translated it."""
    return connection.mark & _MARKS == FROM_GATEWAY_CT_MARK.value and connection.key[0] in PROTOCOLS


class HostOriginals:
    """Results of the host's translation for tracked connections."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._found: dict[Hashable, HostOriginal | None] = {}
        self._ended: set[Hashable] = set()
        """Ended connections without counters: a new one with the same ports has the same identity, and may have another client.
        """

    def lacking(self, connections: Iterable[TrackedConnection]) -> list[TrackedConnection]:
        """Return the connections for which the host is to be queried."""
        return [
            connection for connection in connections if is_from_host(connection) and self._lacks(connection)
        ]

    def _lacks(self, connection: TrackedConnection) -> bool:
        key = connection.identity
        if key not in self._found:
            return True
        if connection.state in ENDED:
            self._ended.add(key)
            return False
        return key in self._ended

    def store(
        self, connections: Iterable[TrackedConnection], originals: Iterable[HostOriginal | None]
    ) -> None:
        """Store the results of the host for these."""
        for connection, original in zip(connections, originals, strict=True):
            self._found[connection.identity] = (
                self._translated(connection.key, original) if original else None
            )
            if connection.state in ENDED:
                self._ended.add(connection.identity)
            else:
                self._ended.discard(connection.identity)

    def _translated(self, key: Key, reported: HostOriginal) -> HostOriginal | None:
        """Return the original; None if nothing is translated; what begins at the Node itself keeps the source that the Pod
        sees.
        """
        is_of_node = self._facts.get(LocalAddress, reported.source) or ip_address(reported.source).is_loopback
        original = HostOriginal(key[1], key[2], reported.ip, reported.port) if is_of_node else reported
        return original if original != key[1:5] else None

    def with_original(self, connection: TrackedConnection) -> TrackedConnection:
        """Return the connection with its first packet as the host got it, if that was another one."""
        original = self._found.get(connection.identity) if is_from_host(connection) else None
        return connection._replace(host=original) if original else connection

    def forget(self, gone: Iterable[TrackedConnection]) -> None:
        """Remove connections that are no longer tracked."""
        for connection in gone:
            self._found.pop(connection.identity, None)
            self._ended.discard(connection.identity)
