"""Whether this replica leads: work that runs only while it does, and a client that writes only then."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from antrea.errors import Unavailable
from antrea.outside.kube.client import Kube

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping

    from antrea.outside.kube.access import Access


class Leadership:
    """The leadership of one replica. Without an election it always leads."""

    def __init__(self, leads: Callable[[], bool] = lambda: True) -> None:
        self.leads = leads
        """Whether it does at this very moment."""
        self.elected = False
        """Whether there are other replicas."""
        self.address = ""
        """Where the leader serves, host:port; empty while it is not known, and for this replica."""
        self.listeners: list[Callable[[], None]] = []
        """Called when it begins or ceases to lead, and when `address` has changed."""
        self._moment = asyncio.Event()

    def changed(self) -> None:
        """Wake all waiters and listeners."""
        moment, self._moment = self._moment, asyncio.Event()
        moment.set()
        for tell in list(self.listeners):
            tell()

    async def wait_for(self, *, leads: bool) -> None:
        """Wait until it leads, or no longer does."""
        while self.leads() != leads:
            await self._moment.wait()

    async def run_while_leading(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run `work` whenever this replica leads, from the beginning each time, and cancel it when that ends.

        Until cancelled. Raises what `work` raises.
        """
        while True:
            await self.wait_for(leads=True)
            task = asyncio.create_task(work())
            end = asyncio.create_task(self.wait_for(leads=False))
            try:
                await asyncio.wait({task, end}, return_when=asyncio.FIRST_COMPLETED)
                if task.done():
                    task.result()
                    await end
            finally:
                task.cancel()
                end.cancel()
                # neither is to be lost: what work raises as it ends, and that this is cancelled meanwhile
                ended, _ = await asyncio.gather(task, end, return_exceptions=True)
                if isinstance(ended, Exception):
                    raise ended


class LeaderOnlyKube(Kube):
    """Reads for everybody, and writes only while this replica leads: a write that was held up must not come later."""

    def __init__(self, access: Access, lead: Leadership) -> None:
        super().__init__(access)
        self._lead = lead

    async def _answer(
        self, method: str, path: str, query: Mapping[str, str], body: bytes = b"", content: str = ""
    ) -> tuple[int, bytes]:
        if method != "GET" and not self._lead.leads():
            raise Unavailable("this replica does not lead")
        return await super()._answer(method, path, query, body, content)
