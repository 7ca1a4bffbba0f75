"""Session affinity beyond the lifetime of a flow in OpenFlow: the API allows 86,400 s, a flow 65,535 s.

The flow of a client's first connection is put again once, with the rest of its time, as soon as that is less than a flow can
live. Its age and the Service's timeout suffice for it: no flow is lost while the agent is away for less than 44,000 s.
Upstream's affinity ends after 65,535 s.
"""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Final, Protocol

from antrea.errors import Unavailable
from antrea.facts.node import ThisNode
from antrea.facts.service import ServicePort
from antrea.features.framework.agent_feature import RealizedPipeline
from antrea.features.proxy.load_balancer import MAX_TIMEOUT_SECONDS, affinity_ids
from antrea.openflow.cookie import CATEGORY_MASK, LEARNED_ROUND, ROUND_MASK, Category, cookie
from antrea.openflow.match import PROTOCOLS
from antrea.openflow.tables import SESSION_AFFINITY
from antrea.outside.log import klog

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

    from antrea.engine import Facts
    from antrea.outside.vswitch.ofctl import Refusal

log = klog.logger(__name__)

LOOK_SECONDS: Final = 600.0
"""Seconds between two looks; each flow can be renewed during twelve hours."""
AGE = re.compile(r"\bduration=(\d+)")
HARD_TIMEOUT = re.compile(r"\bhard_timeout=(\d+)")
COOKIE = re.compile(r"\bcookie=0x([0-9a-f]+)")
_WHOLE = f"hard_timeout={MAX_TIMEOUT_SECONDS}"
_COUNTERS = re.compile(r"\b(?:duration|n_packets|n_bytes|idle_age|hard_age)=[^ ,]+,? ?")


class Switch(Protocol):
    """The methods of outside.vswitch.ofctl.Ofctl that are needed here."""

    def lines(self, command: str, *arguments: str) -> AsyncIterator[str]:
        """Yield the lines of a dump. Raises Unavailable."""

    async def bundle(self, lines: Sequence[str]) -> Refusal | None:
        """Apply changes, all or none. Raises Unavailable."""


def affinity_timeouts(facts: Facts, longer_than: int = 0) -> dict[int, int]:
    """Return the seconds of affinity, by object id of learned flows, of Services that have more than `longer_than`."""
    node = facts.get(ThisNode)
    if node is None:
        return {}
    return {
        object_id: port.affinity_seconds
        for port in facts.all(ServicePort)
        if port.affinity_seconds > longer_than and port.protocol in PROTOCOLS
        for object_id in affinity_ids(facts, port, node)
    }


def renewed(line: str, timeouts: Mapping[int, int]) -> str | None:
    """Return the change that puts a learned flow with the rest of its time; None if it is too early, or was done."""
    age, number = AGE.search(line), COOKIE.search(line)
    if age is None or number is None or _WHOLE not in line:
        return None
    left = timeouts.get(int(number[1], 16) & 0xFFFFFFFF, 0) - int(age[1])
    if not 0 < left < MAX_TIMEOUT_SECONDS:
        return None
    return with_timeout(line, left)


def with_timeout(line: str, seconds: int) -> str:
    """Return the change that puts a dumped flow with this timeout."""
    match, _, actions = line.partition(" actions=")
    kept = HARD_TIMEOUT.sub(f"hard_timeout={seconds}", _COUNTERS.sub("", match)).replace(", ", ",")
    return f"flow add {kept},actions={actions}"


async def learned_lines(facts: Facts, switch: Switch) -> AsyncIterator[str]:
    """Yield the dumped learned flows. Raises Unavailable."""
    pipeline = facts.get(RealizedPipeline)
    if pipeline is None:
        return
    learned, mask = cookie(LEARNED_ROUND, Category.SERVICE), ROUND_MASK | CATEGORY_MASK
    selection = f"table={pipeline.pipeline.id(SESSION_AFFINITY.name)},cookie={learned:#x}/{mask:#x}"
    async for line in switch.lines("dump-flows", selection, "--no-names"):
        yield line


class LongAffinity:
    """Renewal of learned flows, as a task of the agent."""

    def __init__(self, facts: Facts, switch: Switch, *, look_seconds: float = LOOK_SECONDS) -> None:
        self._facts, self._switch, self._look_seconds = facts, switch, look_seconds

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            await asyncio.sleep(self._look_seconds)
            try:
                await self.renew()
            except Unavailable as error:
                log.info("Learned flows cannot be renewed now", err=str(error))

    async def renew(self) -> int:
        """Renew due flows; return their number. Raises Unavailable."""
        timeouts = affinity_timeouts(self._facts, MAX_TIMEOUT_SECONDS)
        if not timeouts:
            return 0
        renewals = [renewed(line, timeouts) async for line in learned_lines(self._facts, self._switch)]
        changes = [line for line in renewals if line is not None]
        if changes and (why := await self._switch.bundle(changes)):
            raise Unavailable(f"Open vSwitch refuses a learned flow: {why.why}")
        return len(changes)
