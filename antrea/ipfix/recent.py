"""Cache of recent results by their input: for parts of records that are the same in the next one of a connection.

Unlike functools.lru_cache it leaves to its user which results are kept, so that what anybody sends fills no memory.
"""

from __future__ import annotations

from typing import Generic, TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")


class Recent(Generic[Key, Value]):
    """Two generations, each of at most half of all; what is asked for stays, and the rest goes with its generation."""

    __slots__ = ("_half", "_new", "_old")

    def __init__(self, most: int) -> None:
        self._half = most // 2
        self._new: dict[Key, Value] = {}
        self._old: dict[Key, Value] = {}

    def __len__(self) -> int:
        return len(self._new) + len(self._old)

    def get(self, key: Key) -> Value | None:
        """None: it is not kept any more."""
        result = self._new.get(key)
        if result is None and (result := self._old.pop(key, None)) is not None:
            self.keep(key, result)
        return result

    def keep(self, key: Key, value: Value) -> None:
        """For the next one that asks."""
        if len(self._new) >= self._half:
            self._old, self._new = self._new, {}
        self._new[key] = value
