"""Connections from outside through this Node to a Pod of another one: their source becomes this Node's gateway.

The zone of destinations marks them, and has their destination; only the zone of sources has the address and port that the Pod
sees.
parity: beyond pkg/agent/flowexporter/connections/from_external_correlator.go, which reads what kube-proxy translates
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from antrea.features.flow_export.connection import ENDED
from antrea.openflow.fields import CONN_SNAT, HAIRPIN
from antrea.openflow.tracked_connection import TrackedDump

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable

    from antrea.openflow.tracked_connection import Key, TrackedConnection

_WHY: Final = CONN_SNAT.mask | HAIRPIN.mask


def is_translated(connection: TrackedConnection) -> bool:
    """Whether its source was translated for an Endpoint elsewhere."""
    return connection.mark & _WHY == CONN_SNAT.mask


class TranslatedSources:
    """Content of the zone of sources, read only for connections that are new and marked."""

    def __init__(self) -> None:
        self._dump = TrackedDump()
        self._sources: dict[Key, tuple[str, int]] = {}
        self._known: set[Hashable] = set()
        """Open connections whose source is known."""

    def lack(self, connections: Iterable[TrackedConnection]) -> bool:
        """Whether one of these is marked and its source unknown."""
        return any(
            is_translated(connection) and connection.identity not in self._known for connection in connections
        )

    def read(self, texts: Iterable[str]) -> None:
        """Read dumps of the zones of sources, of which only new lines are parsed."""
        changed, gone = self._dump.read(texts)
        for connection in gone:
            self._sources.pop(connection.key, None)
        for connection in changed:
            self._sources[connection.key] = connection.source_seen, connection.source_port_seen

    def with_seen_source(self, connection: TrackedConnection) -> TrackedConnection:
        """Return the connection with the source that its other end sees."""
        if not is_translated(connection):
            return connection
        if connection.state in ENDED:
            self._known.discard(connection.identity)  # the same ports may begin anew, with another source
        else:
            self._known.add(connection.identity)
        source, port = self._sources.get(
            connection.key, (connection.source_seen, connection.source_port_seen)
        )
        return connection._replace(source_seen=source, source_port_seen=port)

    def forget(self, gone: Iterable[TrackedConnection]) -> None:
        """Remove connections that are no longer tracked."""
        self._known.difference_update(connection.identity for connection in gone)
