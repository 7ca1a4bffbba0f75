"""Connections from outside that this Node was asked for and whose Pod is on another one: their source becomes this Node's gateway.

The zone of destinations marks them, and has where they go; the address and port that the Pod sees are in the zone of sources alone.
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


def is_translated(found: TrackedConnection) -> bool:
    """Whether its source was translated for an Endpoint elsewhere."""
    return found.mark & _WHY == CONN_SNAT.mask


class TranslatedSources:
    """What the zone of sources has. It is read for connections that are new and marked alone."""

    def __init__(self) -> None:
        self._dump = TrackedDump()
        self._sources: dict[Key, tuple[str, int]] = {}
        self._known: set[Hashable] = set()
        """Open connections that have got theirs."""

    def lack(self, found: Iterable[TrackedConnection]) -> bool:
        """Whether one of these is marked and has not got its source."""
        return any(is_translated(one) and one.identity not in self._known for one in found)

    def read(self, texts: Iterable[str]) -> None:
        """Take in dumps of the zones of sources, of which only what is new is parsed."""
        changed, gone = self._dump.read(texts)
        for one in gone:
            self._sources.pop(one.key, None)
        for one in changed:
            self._sources[one.key] = one.source_seen, one.source_port_seen

    def seen(self, found: TrackedConnection) -> TrackedConnection:
        """The connection with the source that its other end sees."""
        if not is_translated(found):
            return found
        if found.state in ENDED:
            self._known.discard(found.identity)  # the same ports may begin anew, with another source
        else:
            self._known.add(found.identity)
        source, port = self._sources.get(found.key, (found.source_seen, found.source_port_seen))
        return found._replace(source_seen=source, source_port_seen=port)

    def forget(self, gone: Iterable[TrackedConnection]) -> None:
        """Those are tracked no more."""
        self._known.difference_update(one.identity for one in gone)
