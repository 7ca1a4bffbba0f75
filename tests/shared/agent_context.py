"""What parts of the agent are made from, where there is no agent: the facts are real, all that is outside is not there."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from antrea.agent.feature_set import folders_on
from antrea.config.agent import AgentConfig
from antrea.features.framework.agent_part import AgentContext, make_parts
from antrea.features.framework.config_validation import accept_agent
from antrea.outside.support_bundle.plan import Order

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

    from antrea.engine import Engine, Facts
    from antrea.features.framework.agent_part import Part
    from antrea.openflow.packet_in import PacketIn
    from antrea.openflow.packet_out import PacketOut
    from antrea.outside.controlplane.client import Controlplane
    from antrea.outside.kube.client import Kube


def _no_engine() -> Engine:
    raise LookupError("there is no engine here")


def _begin(work: Coroutine[Any, Any, None], name: str) -> None:
    asyncio.create_task(work, name=name)  # noqa: RUF006 (what is awaited gives its own `begin`)


def _drop(_: PacketOut | PacketIn) -> None:
    """There is no switch."""


async def _empty() -> Order:
    return Order(target=os.devnull)


def agent_context(
    facts: Facts,
    config: AgentConfig | None = None,
    *,
    node: str = "n1",
    kube: object = None,
    begin: Callable[[Coroutine[Any, Any, None], str], None] = _begin,
    run_dir: Path = Path("/nonexistent"),
    save_state: Callable[[], None] = lambda: None,
    bundle: Callable[[], Awaitable[Order]] = _empty,
) -> AgentContext:
    """Of the agent of this Node; what is not named is not there."""
    config = config or AgentConfig()
    return AgentContext(
        node=node, config=config, gates=accept_agent(config), facts=facts, kube=cast("Kube", kube),
        controlplane=cast("Controlplane", None), run_dir=run_dir, ready=asyncio.Event(), engine=_no_engine,
        begin=begin, send=_drop, resume=_drop, bundle=bundle, save_state=save_state,
    )  # fmt: skip


def agent_parts(facts: Facts, config: AgentConfig | None = None) -> list[Part]:
    """The parts of all features that the configuration leaves on."""
    context = agent_context(facts, config)
    return make_parts(context, folders_on(context.gates.names))
