"""What `antctl explain` says of the switch of Node n1: it asks as the command does, by the code of the command and of the agent."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

import msgspec
from policy_switch import CONFIG, NODE

from antrea.agent.api.trace_packet import PacketTracer
from antrea.agent.api.view import AgentView
from antrea.antctl.explain.switch import chosen, compared, question
from antrea.antctl.failure import Failure
from antrea.config.effect import InEffect
from antrea.errors import Invalid, Refused, Unavailable
from antrea.explain.answer import Through
from antrea.explain.packet import pod_name
from antrea.features.framework.agent_part import NotFound
from antrea.features.framework.config_validation import accept_agent

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from policy_switch import Agent, Switch

    from antrea.antctl.explain.switch import SwitchVerdict
    from antrea.explain.packet import Packet
    from antrea.explain.verdict import Judged
    from antrea.explain.world import World

T = TypeVar("T")


class Pods:
    """Pods of other Nodes, where kube-apiserver would be asked for them."""

    def __init__(self, world: World) -> None:
        self._found = {pod_name(pod): pod for pod in world.objects.pods}

    async def get(self, path: str, kind: type[T]) -> T | None:
        """By its path."""
        *_, space, _, name = path.split("/")
        found = self._found.get(f"{space}/{name}")
        return msgspec.convert(msgspec.to_builtins(found), kind) if found else None


class Bridge:
    """ofproto/trace, and no dumps."""

    def __init__(self, switch: Switch) -> None:
        self._switch = switch

    async def trace(self, flow: str) -> str:
        """As outside.ovs_control.Tracer has it."""
        return self._switch.trace(flow)

    def lines(self, *_: str) -> AsyncIterator[str]:
        """None is asked for."""
        raise NotImplementedError


class Command:
    """The command in one cluster."""

    def __init__(self, switch: Switch, agent: Agent, world: World) -> None:
        bridge = Bridge(switch)
        self._world = world
        effect = InEffect("", CONFIG, accept_agent(CONFIG))
        view = AgentView(lambda: effect, agent.facts, bridge, agent.served.pipeline.ids)
        self._tracing = PacketTracer(view, Pods(world), bridge)

    def says(self, packet: Packet, found: Judged | Through) -> list[SwitchVerdict]:
        """Of Node n1; n2 has no agent here."""
        if isinstance(found, Through):
            return chosen(self._trace, self._world, packet, found)
        return compared(self._trace, packet, found.egress, found.ingress)

    def _trace(self, node: str, packet: Packet) -> str:
        if node != NODE.name:
            raise Failure("no agent")
        try:
            return asyncio.run(self._tracing.answer(question(packet))).result
        except (Invalid, NotFound, Refused, Unavailable) as error:
            raise Failure(str(error)) from error
