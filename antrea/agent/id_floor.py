"""Which numbers the switch still knows of an earlier start, where the journal that says whose they are is gone."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from antrea.errors import Unavailable
from antrea.features.network_policy.conjunction import RESERVED
from antrea.features.network_policy.place import POOL
from antrea.outside import klog

if TYPE_CHECKING:
    from antrea.agent.agent_view import Dumper
    from antrea.engine import Facts

log = klog.logger(__name__)

_CONJUNCTION = re.compile(r"\bconj_id=(\d+)|\bconjunction\((\d+),")


async def keep_clear(facts: Facts, ofctl: Dumper) -> None:
    """New conjunctions get numbers above those that flows carry, until these are swept: else one would pass for another."""
    highest = 0
    try:
        async for line in ofctl.lines("dump-flows"):
            found = (int(own or part) for own, part in _CONJUNCTION.findall(line))
            highest = max(highest, *found, 0)
    except Unavailable as why:
        log.warning("The switch does not say which conjunctions it has", err=str(why))
    if highest > RESERVED:
        log.warning(
            "The journal of ids is gone; conjunctions are numbered above those that stand", highest=highest
        )
        facts.ids.start_above(POOL, highest - RESERVED)
