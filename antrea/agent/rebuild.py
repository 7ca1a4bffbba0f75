"""State that outlives an agent when its process builds the next one: the listening socket and readiness.

A changed configuration ends one agent and starts the next. Packets are forwarded meanwhile, so the change is invisible outside:
requests to the API wait for the next agent, and probes of kubelet are answered as before, for a while.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from antrea.outside.listener.listening_socket import SharedListener
from antrea.outside.reload.supervisor import PROOF_SECONDS

if TYPE_CHECKING:
    from antrea.agent.api.health import Readiness


class Rebuild:
    """State that one agent of this process passes to the next."""

    def __init__(self) -> None:
        self.listener = SharedListener()
        self._ready: Readiness | None = None
        self._until = 0.0

    def begins(self, ready: Readiness) -> None:
        """Register an agent that begins, which sets `ready` once it works."""
        if self._ready is not None and self._ready.is_set():
            self._until = asyncio.get_running_loop().time() + PROOF_SECONDS
        self._ready = ready

    def under_way(self) -> bool:
        """Whether an agent that worked has a successor that does not work yet, and still has time for it."""
        begun = self._ready is not None and not self._ready.is_set()
        return begun and asyncio.get_running_loop().time() < self._until
