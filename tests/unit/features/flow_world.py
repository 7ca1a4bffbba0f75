"""Connections as the exporter finds them, and the store that they are shown to."""

from __future__ import annotations

from typing import Any

from antrea.apis.flow import FlowRecord
from antrea.features.flow_export.connection import ConnectionStore
from antrea.openflow.tracked_connection import TrackedConnection

ACTIVE, IDLE, STALE = 5, 15, 300


def entry(packets: int = 1, state: str = "ESTABLISHED", port: int = 1000, **more: Any) -> TrackedConnection:
    found = TrackedConnection(
        (6, "10.1.0.5", port, "10.2.0.7", 80, 0), "10.2.0.7", 80, "10.1.0.5", port, packets, 100 * packets, 0, 0, "",
        1, 0, state,
    )  # fmt: skip
    return found._replace(**more)


class World:
    """A store, and what it is shown."""

    def __init__(self) -> None:
        self.store = ConnectionStore(ACTIVE, IDLE, STALE)
        self._before: tuple[TrackedConnection, ...] = ()
        self.clock = 1000.0
        """What the Node's clock shows at the monotonic time 0."""

    def poll(self, now: float, *entries: TrackedConnection) -> None:
        """Show it what is another than at the poll before."""
        changed = [one for one in entries if one not in self._before]
        stay = {one.identity for one in entries}
        gone = [one for one in self._before if one.identity not in stay]
        self._before = entries
        for _ in self.store.update(
            changed, gone, now, self.clock + now, lambda _: FlowRecord(source_ip="10.1.0.5")
        ):
            pass

    def due(self, now: float) -> list[tuple[int, int, int]]:
        found = self.store.due(now, 100)
        return [(one.flow_end_reason, one.packet_total_count, one.packet_delta_count) for one in found]
