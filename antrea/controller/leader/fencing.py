"""Fencing: units see that this replica leads once writes of the previous leader have ended and were received."""

from __future__ import annotations

import asyncio
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from antrea.errors import Refused, Unavailable
from antrea.facts.external_ip import FencedLeadership
from antrea.outside.kube.address_promise import Head
from antrea.outside.log import klog

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from antrea.engine import Facts
    from antrea.facts.fact import Fact
    from antrea.features.framework.admission import Watched
    from antrea.outside.kube.client import Kube
    from antrea.outside.kube.resource_feed import ResourceFeed

log = klog.logger(__name__)

NO_FEEDS: Mapping[type[Fact], ResourceFeed[Any]] = MappingProxyType({})
FENCE_SECONDS = 3.0
"""Fencing delay. A leader stops 1 s before its Lease can be taken (`election.Terms`), and its writes time out after 2 s
(`outside/kube/egress_address_sink.py`): after 3 s no write of the previous leader can still arrive."""
AGAIN_SECONDS = 0.1
RETRY_SECONDS = 1.0


async def lead_after_fencing(
    kube: Kube,
    facts: Facts,
    watched: Iterable[Watched],
    *,
    fence: float = FENCE_SECONDS,
    feeds: Mapping[type[Fact], ResourceFeed[Any]] = NO_FEEDS,
) -> None:
    """Wait for the fencing delay and for the feeds, then write FencedLeadership until cancelled."""
    await asyncio.sleep(fence)
    for each in watched:
        if each.fence == "objects":
            await _caught_up(kube, facts, each)
        elif each.fence == "collection" and each.fact in feeds:
            newest = max(
                (int(head.metadata.resource_version) for head in await _heads(kube, each)), default=0
            )
            await feeds[each.fact].reaches(newest)
    log.v(2).info("Caught up with all writes made before this replica became leader")
    facts.put(FencedLeadership())
    try:
        await asyncio.Event().wait()
    finally:
        facts.drop(FencedLeadership, "self")


async def _caught_up(kube: Kube, facts: Facts, watched: Watched) -> None:
    """Wait until each object that existed at the beginning was received in that version or a later one, or is deleted."""
    late: set[str] | None = None
    while late is None or late:
        late = {
            head.metadata.name
            for head in await _heads(kube, watched)
            if (late is None or head.metadata.name in late)
            and not _covers(facts.get(watched.fact, head.metadata.name), head)
        }
        if late:
            await asyncio.sleep(AGAIN_SECONDS)


async def _heads(kube: Kube, watched: Watched) -> Sequence[Head]:
    """All objects as the API server has them now; waits until it answers."""
    continuation = ""
    while True:
        try:
            heads, _ = await kube.list(watched.path, Head)
        except (Unavailable, Refused) as error:
            if str(error) != continuation:
                continuation = str(error)
                log.info(
                    "Waiting for kube-apiserver before making decisions as leader",
                    path=watched.path,
                    err=continuation,
                )
            await asyncio.sleep(RETRY_SECONDS)
        else:
            return heads


def _covers(row: Any, head: Head) -> bool:
    return bool(row) and row.uid == head.metadata.uid and row.generation >= head.metadata.generation
