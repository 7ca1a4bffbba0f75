"""Keeps the work on one large review from holding the loop: it runs in a thread, one review after the other.

There are two such threads: reviews that kube-apiserver sends do not wait for those of strangers.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

from antrea.outside.apiserver.authentication import FRONT_ADDRESS

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from aiohttp import web

    from antrea.engine import Facts

T = TypeVar("T")
LARGE = 32 << 10
"""Bytes of a review from which on its work takes more than some 20 ms; a review of 1 MiB takes up to 3 s."""
_WORKERS = {
    True: ThreadPoolExecutor(1, "large-review"),
    False: ThreadPoolExecutor(1, "large-review-of-stranger"),
}
"""Numbers of worker threads by whether the caller is trusted."""


class Caller(NamedTuple):
    """Sender of a review."""

    address: str
    trusted: bool
    """Its address is one of kube-apiserver's: the aggregation layer has proved itself from there."""


STRANGER = Caller("", trusted=False)


def caller_of(request: web.Request) -> Caller:
    """The sender of a request that the server has let through."""
    peer = (request.transport.get_extra_info("peername") if request.transport else None) or ("",)
    return Caller(str(peer[0]), request.get(FRONT_ADDRESS, False))


class ReviewThread:
    """Where the work on one review is done: here, or, if it is large, in a thread."""

    def __init__(self, caller: Caller, *, large: bool) -> None:
        self.caller = caller
        self._large = large

    async def do(self, work: Callable[[], T]) -> T:
        """Return what `work` returns, or raise what it raises except StopIteration."""
        if not self._large:
            return work()
        return await asyncio.get_running_loop().run_in_executor(_WORKERS[self.caller.trusted], work)

    def facts(self, facts: Facts) -> Facts:
        """The same facts for `work`."""
        return cast("Facts", _FactsOnLoop(facts, asyncio.get_running_loop())) if self._large else facts


class _FactsOnLoop:
    """Facts for another thread: each question is answered by the loop that they belong to."""

    def __init__(self, facts: Facts, loop: asyncio.AbstractEventLoop) -> None:
        self._facts = facts
        self._loop = loop

    def get(self, kind: type[Any], key: str = "self") -> Any:
        return self._answer(lambda: self._facts.get(kind, key))

    def by(self, kind: type[Any], index: str, value: Hashable) -> Any:
        return self._answer(lambda: self._facts.by(kind, index, value))

    def all(self, kind: type[Any]) -> Any:
        return self._answer(lambda: self._facts.all(kind))

    def _answer(self, ask: Callable[[], T]) -> T:
        answered: Future[T] = Future()

        def answer() -> None:
            try:
                answered.set_result(ask())
            except Exception as error:  # noqa: BLE001 (passed on to the thread that waits)
                answered.set_exception(error)

        self._loop.call_soon_threadsafe(answer)
        return answered.result()
