"""Says to units that this replica leads: not before what others wrote has ended, and has been heard."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from antrea.errors import Refused, Unavailable
from antrea.facts.egress import EgressRow
from antrea.facts.external_ip import Leads
from antrea.features.external_ip_pool.pool import PoolRow
from antrea.outside import klog
from antrea.outside.egress_address import Head

if TYPE_CHECKING:
    from collections.abc import Iterable

    from antrea.engine import Facts
    from antrea.facts.fact import Fact
    from antrea.features.admission import Watched
    from antrea.outside.kube import Kube

log = klog.logger(__name__)

FENCE_SECONDS = 3.0
"""A leader leads at most a second less than nobody else does (`election.Terms`). What it wrote last, with both sides giving
up after 2 s (`outside/egress_address.py`), has come through or never will when the next one has waited so long."""
AGAIN_SECONDS = 0.1
RETRY_SECONDS = 1.0
JUDGED: tuple[type[Fact], ...] = (EgressRow, PoolRow)
"""Rows that decisions are made of which must not be made twice; each has the uid and generation of its object."""


async def term(kube: Kube, facts: Facts, watched: Iterable[Watched], *, fence: float = FENCE_SECONDS) -> None:
    """While this replica leads, until cancelled."""
    await asyncio.sleep(fence)
    for one in watched:
        if one.fact in JUDGED:
            await _heard(kube, facts, one)
    log.v(2).info("Everything that was written before this replica led has been heard")
    facts.put(Leads())
    try:
        await asyncio.Event().wait()
    finally:
        facts.drop(Leads, "self")


async def _heard(kube: Kube, facts: Facts, watched: Watched) -> None:
    """Returns when each object that there was at the beginning is known as it was then, or later, or is gone."""
    late: set[str] | None = None
    told = ""
    while late is None or late:
        try:
            found, _ = await kube.list(watched.path, Head)
        except (Unavailable, Refused) as why:
            if str(why) != told:
                told = str(why)
                log.info("Waiting for the API server before anything is decided", path=watched.path, err=told)
            await asyncio.sleep(RETRY_SECONDS)
            continue
        late = {
            one.metadata.name
            for one in found
            if (late is None or one.metadata.name in late)
            and not _covers(facts.get(watched.fact, one.metadata.name), one)
        }
        if late:
            await asyncio.sleep(AGAIN_SECONDS)


def _covers(row: Any, head: Head) -> bool:
    return bool(row) and row.uid == head.metadata.uid and row.generation >= head.metadata.generation
