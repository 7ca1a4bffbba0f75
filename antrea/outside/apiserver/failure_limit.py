"""Bounds how many proofs of identity of one address may turn out to be none: each costs the API server a question."""

from __future__ import annotations

import time
from collections import OrderedDict
from typing import TYPE_CHECKING

from antrea.outside.listener.source import network

if TYPE_CHECKING:
    from collections.abc import Callable

BURST, PER_SECOND = 20.0, 2.0
"""Failures of an address that cost nothing yet, and how fast they are forgiven."""
MAX_ADDRESSES = 4096


class FailureLimit:
    """A bucket for each IPv4 address and each /64 of IPv6, which one host may have whole."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._spent: OrderedDict[str, tuple[float, float]] = OrderedDict()
        """Spent part of the burst, and the time at which it was computed; the address that failed longest ago comes first."""

    def reserve(self, address: str) -> float:
        """Reserve a token: return 0, or the seconds until there is one."""
        key = network(address)
        spent = self._left(key)
        if spent + 1 > BURST:
            return (spent + 1 - BURST) / PER_SECOND
        self._put(key, spent + 1)
        return 0.0

    def cancel(self, address: str) -> None:
        """Return the token of a request that did not fail."""
        key = network(address)
        self._put(key, max(0.0, self._left(key) - 1))

    def _left(self, key: str) -> float:
        spent, then = self._spent.get(key, (0.0, self._now()))
        return max(0.0, spent - (self._now() - then) * PER_SECOND)

    def _put(self, key: str, spent: float) -> None:
        self._spent[key] = (spent, self._now())
        self._spent.move_to_end(key)
        if len(self._spent) > MAX_ADDRESSES:
            self._spent.popitem(last=False)
