"""A bounded queue in which Namespaces take turns, so that the objects of one delay and displace no others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator

K = TypeVar("K", bound="Hashable")
V = TypeVar("V")


class NamespaceQueue(Generic[K, V]):
    """Values by key, each of a Namespace; those of a Namespace in the order in which they came."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._rows: dict[str, dict[K, V]] = {}
        """Rows of each Namespace; the first one has the next turn."""
        self._namespaces: dict[K, str] = {}

    def __len__(self) -> int:
        return len(self._namespaces)

    def __iter__(self) -> Iterator[V]:
        return iter([value for rows in self._rows.values() for value in rows.values()])

    def get(self, key: K) -> V | None:
        """Return the value of a key; None if there is none."""
        return self._rows[self._namespaces[key]][key] if key in self._namespaces else None

    def put(self, key: K, namespace: str, value: V) -> K | None:
        """Add a value, or replace it, as the last of its Namespace; return the key that makes room: the first of the largest Namespace."""
        self.pop(key)
        self._namespaces[key] = namespace
        self._rows.setdefault(namespace, {})[key] = value
        if len(self) <= self._limit:
            return None
        largest: dict[K, V] = max(self._rows.values(), key=len)
        first = next(iter(largest))
        self.pop(first)
        return first

    def pop(self, key: K) -> V | None:
        """Remove a key, if it is here, and return its value."""
        namespace = self._namespaces.pop(key, None)
        if namespace is None:
            return None
        rows = self._rows[namespace]
        value = rows.pop(key)
        if not rows:
            del self._rows[namespace]
        return value

    def next_turn(self) -> tuple[K, V]:
        """Return the first value of the Namespace whose turn it is, which stays here. Raises StopIteration if there is none."""
        namespace = next(iter(self._rows))
        rows = self._rows[namespace] = self._rows.pop(namespace)
        return next(iter(rows.items()))
