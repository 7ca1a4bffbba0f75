"""Session affinity over a restart of ovs-vswitchd, which loses what clients have learned: the agent keeps it, also on disk.

Choices since the last look are lost. Upstream keeps nothing.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final

import msgspec

from antrea.decoding import decode_json
from antrea.errors import Invalid, Unavailable
from antrea.facts.service import Service
from antrea.features.proxy.agent_part.long_affinity import (
    AGE,
    COOKIE,
    HARD_TIMEOUT,
    affinity_timeouts,
    learned_lines,
    with_timeout,
)
from antrea.features.proxy.load_balancer import MAX_TIMEOUT_SECONDS
from antrea.outside.disk.atomic_file import exchange
from antrea.outside.disk.state_file import Damaged, read_bytes, sealed, set_aside, unsealed
from antrea.outside.log import klog
from antrea.outside.vswitch.appctl import sockets

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from pathlib import Path

    from antrea.engine import Facts
    from antrea.features.proxy.agent_part.long_affinity import Switch

log = klog.logger(__name__)

LOOK_SECONDS: Final = 15.0
MAX_CHOICES: Final = 20_000
"""Maximum number of choices that are kept; those dumped first."""
KIND: Final = b"antrea affinity 3\n"
OBJECT_MASK: Final = 0xFFFFFFFF


class KeptChoice(msgspec.Struct, frozen=True):
    """Learned flow as it was dumped, and until when it counts, in seconds since the Node started."""

    owner: int
    """Object id of the flow."""
    line: str
    until: float


class Kept(msgspec.Struct):
    """State of one run of ovs-vswitchd, identified by its control socket."""

    switch: str = ""
    choices: list[KeptChoice] = []


def since_boot() -> float:
    """Return seconds since boot, which changes of the clock do not affect; the file does not outlive the Node either."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def choice_of(line: str, timeouts: Mapping[int, int], now: float) -> KeptChoice | None:
    """Parse a choice; None if it is not one of these owners, or has expired. A Service may request more time than a flow can
    live.
    """
    age, number, hard = AGE.search(line), COOKIE.search(line), HARD_TIMEOUT.search(line)
    if age is None or number is None or hard is None:
        return None
    owner, seconds = int(number[1], 16) & OBJECT_MASK, int(hard[1])
    whole = timeouts.get(owner, 0)
    left = (max(seconds, whole) if seconds == MAX_TIMEOUT_SECONDS else seconds) - int(age[1])
    return KeptChoice(owner, line, now + left) if whole and left > 0 else None


class KeptAffinity:
    """Task of the agent; `settled` returns once a new switch has all wanted entries."""

    def __init__(self, facts: Facts, switch: Switch, run_directory: Path, file: Path) -> None:
        self._facts, self._switch, self._directory, self._file = facts, switch, run_directory, file
        self._kept = self._read()

    @property
    def clients(self) -> int:
        """Number of choices that are kept."""
        return len(self._kept.choices)

    async def run(self, settled: Callable[[], Awaitable[None]]) -> None:
        """Run until cancelled."""
        while True:
            try:
                await self.sync(settled)
            except Unavailable as error:
                log.v(2).info("Learned flows cannot be kept now", err=str(error))
            await asyncio.sleep(LOOK_SECONDS)

    async def sync(self, settled: Callable[[], Awaitable[None]]) -> int:
        """Restore the choices to a new switch, and keep those of this one; return the number of restored ones. Raises
        Unavailable.
        """
        if not self._facts.feeds.has(Service):
            return 0  # which Services ask for affinity is not known yet
        run = self._run()
        given = 0
        if self._kept.choices and self._kept.switch != run:
            await settled()
            given = await self._restore()
        timeouts, now = affinity_timeouts(self._facts), since_boot()
        choices: list[KeptChoice] = []
        if timeouts:
            async for line in learned_lines(self._facts, self._switch):
                if len(choices) < MAX_CHOICES and (choice := choice_of(line, timeouts, now)):
                    choices.append(choice)
        if self._run() == run and (choices or self._kept.choices):
            self._kept = Kept(run, choices)
            await asyncio.to_thread(self._write, self._kept)
        return given

    async def _restore(self) -> int:
        """Restore choices of Services that still have affinity. A client whose Endpoint is gone gets a new one with its next
        packet.
        """
        now, timeouts = since_boot(), affinity_timeouts(self._facts)
        changes = [
            with_timeout(choice.line, min(int(choice.until - now), MAX_TIMEOUT_SECONDS))
            for choice in self._kept.choices
            if choice.owner in timeouts and choice.until - now >= 1
        ]
        if changes and (why := await self._switch.bundle(changes)):
            raise Unavailable(f"Open vSwitch refuses a learned flow: {why.why}")
        log.info("Gave a new ovs-vswitchd what clients had learned", flows=len(changes))
        return len(changes)

    def _run(self) -> str:
        """Identify the run of ovs-vswitchd. Raises Unavailable."""
        try:
            for path in sockets(self._directory):
                status = path.stat()
                return f"{path.name} {status.st_ino} {status.st_mtime_ns}"
        except OSError as error:
            raise Unavailable(f"the control socket of ovs-vswitchd cannot be used: {error}") from error
        raise Unavailable(
            f"no control socket of ovs-vswitchd in {self._directory}: ovs-vswitchd does not run"
        )

    def _read(self) -> Kept:
        try:
            return decode_json(unsealed(KIND, read_bytes(self._file)), Kept, str(self._file))
        except FileNotFoundError:
            return Kept()
        except (OSError, Damaged, Invalid) as error:
            log.warning("Failed to read what clients have learned", path=self._file, err=str(error))
            set_aside(self._file)
            return Kept()

    def _write(self, kept: Kept) -> None:
        try:
            exchange(self._file, sealed(KIND, [msgspec.json.encode(kept)]))
        except OSError as error:
            log.warning("Failed to keep what clients have learned", path=self._file, err=str(error))
