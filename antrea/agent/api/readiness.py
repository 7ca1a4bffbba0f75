"""Readiness to connect Pods, and what is missing for it: in the log, on /readyz and in the answer to CNI ADD."""

from __future__ import annotations

import asyncio

from antrea.outside.log import klog

log = klog.logger(__name__)


class Readiness(asyncio.Event):
    """Event that is set once the Node's network is ready."""

    def __init__(self) -> None:
        super().__init__()
        self._waiting = "start of antrea-agent"
        self.is_outside = False
        """Whether the missing thing is an outside dependency that is away, with no fault in the request to it."""

    @property
    def waiting(self) -> str:
        """Thing that the agent waits for; empty once the event is set."""
        return "" if self.is_set() else self._waiting

    def wait_for(self, what: str, *, level: int = 0, outside: bool = False) -> None:
        """Set what is missing now, and whether it is `outside`; logged once per change, at verbosity `level`."""
        if what != self._waiting:
            log.v(level).info("Waiting", **{"for": what})
        self._waiting, self.is_outside = what, outside
