"""Connections of one stage, by source, in the order in which they have to make room."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from antrea.outside.listener.source import network

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

Peer = tuple[Any, ...]


class ConnectionPool:
    """At most `limit` connections; those that are idle for longest come first."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._share = max(1, limit // 8)
        """Connections of a source that make no difference; a source with more makes room before others do."""
        self._peers: dict[Peer, None] = {}
        self._by_source: dict[str, dict[Peer, None]] = {}
        self._by_count: dict[int, dict[str, None]] = {}
        """Sources by how many connections they have, so that a flood of sources costs no search for the largest."""
        self._largest = 0
        """Connections of the source with the most."""

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
        if peer in self._peers:
            return
        self._peers[peer] = None
        source = source_of(peer)
        held = self._by_source.setdefault(source, {})
        held[peer] = None
        self._recount(source, len(held) - 1, len(held))

    def discard(self, peer: Peer) -> bool:
        """Forget a connection; return whether it was here."""
        if peer not in self._peers:
            return False
        del self._peers[peer]
        source = source_of(peer)
        held = self._by_source[source]
        del held[peer]
        self._recount(source, len(held) + 1, len(held))
        if not held:
            del self._by_source[source]
        return True

    def _recount(self, source: str, before: int, now: int) -> None:
        if before:
            del self._by_count[before][source]
            if not self._by_count[before]:
                del self._by_count[before]
        if now:
            self._by_count.setdefault(now, {})[source] = None
        self._largest = max(self._largest, now)
        if self._largest not in self._by_count:
            # one source changes by one connection
            self._largest = now

    def next_to_drop(self, busy: Collection[Peer] = (), besides: Peer | None = None) -> Peer | None:
        """Return the connection that makes room: of the source with the most, if those are many, else of all."""
        if self._largest <= self._share:
            return first_idle(self._peers, busy, besides)
        source = next(iter(self._by_count[self._largest]))
        return first_idle(self._by_source[source], busy, besides)


def first_idle(
    peers: Iterable[Peer], busy: Collection[Peer] = (), besides: Peer | None = None
) -> Peer | None:
    """Return the first connection that is idle, or else the one that has been busy for longest."""
    longest = None
    for peer in peers:
        if peer == besides:
            continue
        if peer not in busy:
            return peer
        longest = longest or peer
    return longest


def source_of(peer: Peer) -> str:
    """Return the source of a connection, which shares its place in queues and pools with the others of that source."""
    return network(str(peer[0])) if peer else ""
