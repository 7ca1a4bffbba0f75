"""Who sends a review costs others neither their turn nor questions to the API server: kube-apiserver is told from strangers."""

from __future__ import annotations

import asyncio
import json
import threading
from typing import Any

import pytest
from certificate_world import api_server

from antrea.controller.webhook.admission import AdmissionContext, Listing, review
from antrea.controller.webhook.review_thread import STRANGER, Caller, ReviewThread
from antrea.controller.webhook.runtime import ApiLookup
from antrea.engine import Facts
from antrea.features.framework.admission import Installation
from antrea.features.framework.gate import GATES
from antrea.features.network_policy.tier import CRD, TierRow
from antrea.features.registry.webhooks import WATCHED, WEBHOOKS
from antrea.outside.apiserver.failure_limit import BURST, PER_SECOND

API_SERVER = Caller("10.0.0.1", trusted=True)
POD = Caller("10.244.1.5", trusted=False)
TIERS = next(one for one in WEBHOOKS if one.path == "/validate/tier")


def listed() -> Facts:
    facts = Facts()
    facts.put(Installation(gates=frozenset(gate.name for gate in GATES)))
    for watched in WATCHED:
        facts.synced(watched.fact)
    return facts


def tier(name: str, priority: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"priority": priority, "description": ""}}


def creation(priority: int = 7) -> bytes:
    return json.dumps(
        {"request": {"uid": "u", "operation": "CREATE", "object": tier("t", priority)}}
    ).encode()


class Counting:
    """An API server without objects, which counts how often it is asked for all of a kind, also at a time."""

    def __init__(self) -> None:
        self.lists = self.at_once = self.most_at_once = 0

    async def find(self, path: str, kind: type) -> Any:
        return None

    async def all(self, path: str, kind: type) -> Listing:
        self.lists += 1
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        await asyncio.sleep(0)
        self.at_once -= 1
        return Listing()

    async def may_get_secret(self, user: Any, namespace: str, name: str) -> bool:
        return False


async def test_a_large_review_of_the_api_server_does_not_wait_for_one_of_a_stranger() -> None:
    ends = threading.Event()
    stuck = asyncio.ensure_future(ReviewThread(POD, large=True).do(ends.wait))
    try:
        async with asyncio.timeout(60):
            assert await ReviewThread(API_SERVER, large=True).do(lambda: "decided") == "decided"
        assert not stuck.done()
    finally:
        ends.set()
        await stuck


async def test_small_reviews_of_a_stranger_cannot_ask_the_api_server_for_any_number_of_lists() -> None:
    outside, loop = Counting(), asyncio.get_running_loop()
    desk = AdmissionContext(listed(), outside)
    begun = loop.time()
    said = [await review(TIERS, desk, creation(), POD) for _ in range(200)]
    assert outside.lists <= BURST + PER_SECOND * (loop.time() - begun) + 1
    refused = [one.status.message for one in said if one.status]
    assert len(refused) == len(said) - outside.lists
    assert all("reviews that 10.244.1.5 sends ask too much" in message for message in refused)
    # nobody else waits for that
    assert (await review(TIERS, desk, creation(), API_SERVER)).allowed
    assert (await review(TIERS, desk, creation(), Caller("10.244.1.6", trusted=False))).allowed


async def test_reviews_of_the_api_server_share_lists_and_have_no_bounds() -> None:
    outside = Counting()
    desk = AdmissionContext(listed(), outside)
    said = await asyncio.gather(*(review(TIERS, desk, creation(), API_SERVER) for _ in range(200)))
    assert all(one.allowed for one in said)
    assert outside.most_at_once == 1
    assert outside.lists < 10


@pytest.mark.parametrize("taken", [7, 8])
async def test_an_object_that_cannot_be_read_holds_up_no_verdict_and_counts_as_it_was(taken: int) -> None:
    facts = listed()
    facts.put(TierRow("odd", 7))
    async with api_server({f"{CRD}/tiers/odd": tier("odd", "high"), f"{CRD}/tiers/b": tier("b", 8)}) as (
        _,
        kube,
    ):
        desk = AdmissionContext(facts, ApiLookup(kube))
        free, refused = [await review(TIERS, desk, creation(number), STRANGER) for number in (9, taken)]
    assert free.allowed
    assert refused.status
    assert refused.status.message == f"spec.priority: tier t priority {taken} overlaps with existing Tier"
