"""What an Egress Node tells of the addresses that it takes and gives up, and until when it announces one."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

import pytest

from antrea.agent.egress_node import EgressNode
from antrea.config.agent import AgentConfig
from antrea.engine import Act, Facts
from antrea.facts.egress import Egress, EgressOwner
from antrea.facts.node import LocalAddress
from antrea.features.egress.address import Assigned
from antrea.features.egress.duplicate import Conflict
from antrea.features.egress.handover import Unassigned
from antrea.features.egress.takeover import Cause, TookOver

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from antrea.apis.core import ObjectReference
    from antrea.outside.kube import Kube

IP = "203.0.113.9"
OF = ("web 1", ("web 1", "n1", IP))


class Api:
    """Stands where kube-apiserver stands: it takes Events."""

    def __init__(self) -> None:
        self.events: list[tuple[str, ...]] = []

    async def create_event(
        self, about: ObjectReference, reason: str, message: str, *, warning: bool, host: str, **_: Any
    ) -> None:
        kind = "Warning" if warning else "Normal"
        self.events.append((about.kind, about.name, about.uid, host, kind, reason, message))


class World:
    """An Egress Node of its own, without a switch."""

    def __init__(self) -> None:
        self.facts, self.api = Facts(), Api()
        self._begun: list[asyncio.Task[None]] = []
        self.node = EgressNode(self.facts, cast("Kube", self.api), AgentConfig(), "n1", self._begin)

    def _begin(self, work: Coroutine[Any, Any, None], name: str) -> None:
        self._begun.append(asyncio.create_task(work, name=name))

    async def told(self, act: Act) -> tuple[str, ...]:
        await self.node.acts()[type(act)](act)
        await asyncio.gather(*self._begun)
        return self.api.events.pop()


@pytest.mark.parametrize(
    ("act", "kind", "reason", "message"),
    [
        (Assigned(*OF, egress="web", uid="u", ip=IP, node="n1"), "Normal", "IPAssigned", f"Assigned Egress web with IP {IP} on Node n1"),
        (Unassigned(*OF, egress="web", uid="u", ip=IP, node="n1"), "Normal", "IPUnassigned", f"Unassigned Egress web with IP {IP} from Node n1"),
        (TookOver(*OF, egress="web", uid="u", ip=IP, pool="p", node="n1", before="n2", why=Cause("gone")), "Normal", "EgressTakenOver", f"Node n1 took over {IP} from n2: gone"),
        (Conflict(*OF, egress="web", uid="u", node="n1", message="taken"), "Warning", "EgressIPConflict", "taken"),
    ],
)  # fmt: skip
async def test_an_event_of_the_egress_says_what_became_of_an_address(
    act: Act, kind: str, reason: str, message: str
) -> None:
    assert await World().told(act) == ("Egress", "web", "u", "n1", kind, reason, message)


def test_an_address_is_announced_while_it_is_here_and_no_other_node_is_to_take_it() -> None:
    facts = (world := World()).facts
    assert not world.node.holds(IP)
    facts.put(Egress("web", "u", IP))
    facts.put(EgressOwner("web", "n1"))
    assert not world.node.holds(IP)
    facts.put(LocalAddress(IP, "antrea-egress0"))
    assert world.node.holds(IP)
    facts.put(EgressOwner("web", "n2"))
    assert not world.node.holds(IP)
