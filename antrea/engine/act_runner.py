"""Run acts: once each, in order per class, after the entries that they refer to are applied."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

from antrea.engine.core.order import Order, Slot

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from antrea.engine.entry import Act
    from antrea.engine.error_log import Errors


class ActRunner:
    """Runs one class of acts. A failure is counted and not tried again: an act is done at most once."""

    def __init__(self, do: Callable[[Act], Awaitable[None]], order: Order, errors: Errors) -> None:
        self.awake = asyncio.Event()
        self.todo: deque[tuple[Slot, Act]] = deque()
        self.busy = False
        self._do = do
        self._order = order
        self._errors = errors

    def add(self, act: Act) -> None:
        """`act` appeared in the pass that has just been closed."""
        self.todo.append((Slot(True, self._order.number, False, act.rank), act))
        self.awake.set()

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            self.awake.clear()
            while self.todo and self._order.free(self.todo[0][0], {}):
                _, act = self.todo.popleft()
                self.busy = True
                try:
                    await self._do(act)
                except Exception as error:  # noqa: BLE001 (one act fails and the others are done)
                    self._errors.once(f"act {type(act).__name__}", error)
                self.busy = False
            await self.awake.wait()
