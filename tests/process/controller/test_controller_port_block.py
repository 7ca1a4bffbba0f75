"""A block of ports whose Pod has ended is free after its quarantine, and is known as free for a moment."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from antrea.config.controller import ControllerConfig
from antrea.engine import Facts
from antrea.facts.egress import FreeBlock
from antrea.features.egress import controller_part
from antrea.features.egress.controller.port_block import QuarantineBlock
from antrea.features.egress.controller_part import EgressPart
from antrea.features.framework.controller_part import ControllerContext

if TYPE_CHECKING:
    import pytest


async def test_a_block_is_free_after_its_quarantine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controller_part, "QUARANTINE_SECONDS", 0.2)
    monkeypatch.setattr(controller_part, "FREE_SECONDS", 0.2)
    nothing: Any = None
    facts = Facts()
    context = ControllerContext(
        config=ControllerConfig(),
        gates=frozenset({"Egress"}),
        facts=facts,
        kube=nothing,
        lead=nothing,
        namespace="kube-system",
    )
    begun = asyncio.get_running_loop().time()
    with facts.watch(FreeBlock) as changed:
        await EgressPart(context).acts()[QuarantineBlock](
            QuarantineBlock(("u", "shop/a"), 1024, egress="u", pod="shop/a", first=1024)
        )
        assert facts.get(FreeBlock, "u shop/a 1024") is None
        async with asyncio.timeout(30):
            await changed.wait()
        assert facts.get(FreeBlock, "u shop/a 1024") == FreeBlock("u", "shop/a", 1024)
        assert asyncio.get_running_loop().time() - begun >= 0.2
        changed.clear()
        async with asyncio.timeout(30):
            await changed.wait()
        assert facts.get(FreeBlock, "u shop/a 1024") is None
