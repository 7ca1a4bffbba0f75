"""Which numbers the switch still knows of an earlier start, where the journal that says whose they are is gone."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from antrea.errors import Unavailable
from antrea.features.network_policy.conjunction import RESERVED
from antrea.features.network_policy.peer_class import POOL as CLASSES
from antrea.features.network_policy.peer_class import SENDERS
from antrea.features.network_policy.place import POOL
from antrea.outside import klog

if TYPE_CHECKING:
    from antrea.agent.agent_view import Dumper
    from antrea.engine import Facts

log = klog.logger(__name__)

_CONJUNCTION = re.compile(r"\bconj_id=(\d+)|\bconjunction\((\d+),")
_CLASS = re.compile(r"\breg11=(0x[0-9a-f]+)(?!/)\b")


async def keep_clear(facts: Facts, ofctl: Dumper) -> None:
    """New conjunctions, and classes of peers, get numbers above those that flows carry, until these are swept.

    Else one would pass for another.
    """
    highest = classes = 0
    try:
        async for line in ofctl.lines("dump-flows"):
            found = (int(own or part) for own, part in _CONJUNCTION.findall(line))
            highest = max(highest, *found, 0)
            classes = max(classes, *(int(one, 16) & ~SENDERS for one in _CLASS.findall(line)), 0)
    except Unavailable as why:
        log.warning("The switch does not say which conjunctions it has", err=str(why))
    if highest > RESERVED:
        log.warning(
            "The journal of ids is gone; conjunctions are numbered above those that stand", highest=highest
        )
        facts.ids.start_above(POOL, highest - RESERVED)
    if classes:
        facts.ids.start_above(CLASSES, classes)
