"""Connections of one stage, by source, in the order in which they have to make room."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from antrea.outside.listener.source import network

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

Peer = tuple[Any, ...]


class ConnectionPool:
    """At most `limit` connections; those that are idle for longest come first."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._share = max(1, limit // 8)
        """Connections of a source that make no difference; a source with more makes room before others do."""
        self._peers: dict[Peer, None] = {}
        self._by_source: dict[str, dict[Peer, None]] = {}

    def __len__(self) -> int:
        return len(self._peers)

    def __iter__(self) -> Iterator[Peer]:
        return iter(tuple(self._peers))

    @property
    def is_full(self) -> bool:
        """Whether one more connection would be too many."""
        return len(self) >= self._limit

    @property
    def exceeds(self) -> bool:
        """Whether there are too many connections."""
        return len(self) > self._limit

    def add(self, peer: Peer) -> None:
        """Add a connection as the one that was active last."""
        self._peers[peer] = None
        self._by_source.setdefault(_source(peer), {})[peer] = None

    def discard(self, peer: Peer) -> bool:
        """Forget a connection; return whether it was here."""
        if peer not in self._peers:
            return False
        del self._peers[peer]
        source = _source(peer)
        del self._by_source[source][peer]
        if not self._by_source[source]:
            del self._by_source[source]
        return True

    def next_to_drop(self, busy: Collection[Peer] = (), besides: Peer | None = None) -> Peer | None:
        """Return the connection that makes room: of the source with the most, if those are many, else of all."""
        largest = max(self._by_source.values(), key=len, default=self._peers)
        candidates = largest if len(largest) > self._share else self._peers
        return first_idle([peer for peer in candidates if peer != besides], busy)


def first_idle(peers: list[Peer], busy: Collection[Peer]) -> Peer | None:
    """Return the first connection that is idle, or else the one that has been busy for longest."""
    return next((peer for peer in peers if peer not in busy), peers[0] if peers else None)


def _source(peer: Peer) -> str:
    return network(str(peer[0])) if peer else ""
