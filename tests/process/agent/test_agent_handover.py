"""An Egress IP that another Node has taken is given up a moment later, and the next time in the same way."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from antrea.agent import handover
from antrea.agent.handover import Handover
from antrea.engine import Facts
from antrea.facts.egress import Parted
from antrea.features.egress.handover import Part

if TYPE_CHECKING:
    import pytest


async def test_an_address_is_given_up_after_a_moment_that_is_forgotten_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(handover, "LINGER_SECONDS", 0.05)
    monkeypatch.setattr(handover, "FORGET_SECONDS", 0.2)
    facts, heard = Facts(), asyncio.Event()
    facts.listeners.append(heard.set)
    seen: list[Parted | None] = [facts.get(Parted, "web")]
    async with asyncio.timeout(10):
        await Handover(facts).part(Part("web", ("ip", "n2"), egress="web", ip="203.0.113.9", to="n2"))
        for _ in "ab":
            await heard.wait()
            heard.clear()
            seen.append(facts.get(Parted, "web"))
    assert seen == [None, Parted("web", "203.0.113.9", "n2"), None]
