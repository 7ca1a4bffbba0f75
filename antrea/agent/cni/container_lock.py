"""Locks that serialize the calls of one container; calls of different containers do not wait for each other."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from antrea.agent.cni.request import Failed
from antrea.apis.cni import Code

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


class _Queue:
    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.members = 0


class ContainerLocks:
    """One lock per container, kept for as long as a call holds or awaits it."""

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self._queues: dict[str, _Queue] = {}

    @property
    def busy(self) -> frozenset[str]:
        """Containers for which a call is under way or waits."""
        return frozenset(self._queues)

    @contextlib.asynccontextmanager
    async def hold(self, container_id: str) -> AsyncIterator[None]:
        """Hold the lock of this container. Raises Failed ("try again later") if others take longer than `patience` seconds."""
        queue = self._queues.setdefault(container_id, _Queue())
        queue.members += 1
        try:
            try:
                async with asyncio.timeout(self._patience):
                    await queue.lock.acquire()
            except TimeoutError:
                raise Failed(
                    Code.TRY_AGAIN_LATER, f"Another call for container {container_id} is still under way"
                ) from None
            try:
                yield
            finally:
                queue.lock.release()
        finally:
            queue.members -= 1
            if not queue.members:
                del self._queues[container_id]
