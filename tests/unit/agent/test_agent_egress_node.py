"""What an Egress Node tells of the addresses that it takes and gives up, and until when it announces one."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from agent_context import agent_context

from antrea.engine import Act, Facts
from antrea.facts.egress import AssignedAddress, Egress, EgressOwner, MissingAddress
from antrea.facts.member import Quorum
from antrea.facts.node import LocalAddress, ThisNode
from antrea.features.egress.agent.address import RecordAssigned
from antrea.features.egress.agent.address_report import ReportMissing
from antrea.features.egress.agent.duplicate_address import RecordConflict
from antrea.features.egress.agent.handover import RecordUnassigned
from antrea.features.egress.agent.status import RecordAssignmentFailed
from antrea.features.egress.agent.takeover_event import Cause, RecordTakeover
from antrea.features.egress.agent_part.part import EgressPart, MissingAddresses

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from antrea.apis.core import ObjectReference

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
        self.node = EgressPart(agent_context(self.facts, kube=self.api, begin=self._begin))

    def _begin(self, work: Coroutine[Any, Any, None], name: str) -> None:
        self._begun.append(asyncio.create_task(work, name=name))

    async def told(self, act: Act) -> tuple[str, ...]:
        await self.node.acts()[type(act)](act)
        await asyncio.gather(*self._begun)
        return self.api.events.pop()


@pytest.mark.parametrize(
    ("act", "kind", "reason", "message"),
    [
        (RecordAssigned(*OF, row="web", egress="web", uid="u", ip=IP, node="n1", recorded=False), "Normal", "IPAssigned", f"Assigned Egress web with IP {IP} on Node n1"),
        (RecordUnassigned(*OF, address=f"web {IP}", egress="web", uid="u", ip=IP, node="n1"), "Normal", "IPUnassigned", f"Unassigned Egress web with IP {IP} from Node n1"),
        (RecordTakeover(*OF, egress="web", uid="u", ip=IP, pool="p", node="n1", before="n2", why=Cause("gone")), "Normal", "EgressTakenOver", f"Node n1 took over {IP} from n2: gone"),
        (RecordAssignmentFailed(*OF, egress="web", uid="u", node="n1", message="none"), "Warning", "AssignmentError", "none"),
        (RecordConflict(*OF, egress="web", uid="u", node="n1", message="taken"), "Warning", "EgressIPConflict", "taken"),
    ],
)  # fmt: skip
async def test_an_event_of_the_egress_says_what_became_of_an_address(
    act: Act, kind: str, reason: str, message: str
) -> None:
    world = World()
    world.facts.put(Egress("other", "u"))  # of the same object: the Event is of the object
    assert await world.told(act) == ("Egress", "web", "u", "n1", kind, reason, message)


async def test_an_address_that_was_here_before_the_agent_gets_an_event_when_it_goes_unless_its_egress_is_gone() -> (
    None
):
    world = World()
    world.facts.put(Egress("web", "u"))
    acts = world.node.acts()
    assigned = RecordAssigned(*OF, row="web", egress="web", uid="u", ip=IP, node="n1", recorded=True)
    gone = RecordUnassigned(*OF, address=f"web {IP}", egress="web", uid="u", ip=IP, node="n1")
    await acts[RecordAssigned](assigned)
    assert world.facts.all(AssignedAddress) == [AssignedAddress("web", "web", "u", IP)]
    assert (await world.told(gone))[-2] == "IPUnassigned"
    assert world.facts.all(AssignedAddress) == []
    world.facts.drop(Egress, "web")
    await acts[RecordUnassigned](gone)
    assert world.api.events == []


async def test_a_move_has_one_event_until_the_address_is_placed_elsewhere() -> None:
    """A Node that hung writes itself into the status for a moment; interfaces come and go."""
    world = World()
    world.facts.put(Egress("web", "u"))
    world.facts.put(EgressOwner("web", "n1"))
    acts = world.node.acts()
    taken = RecordTakeover(
        "web", (IP, "n2"), egress="web", uid="u", ip=IP, pool="p", node="n1", before="n2", why=Cause("gone")
    )
    gone = RecordUnassigned(*OF, address=f"web {IP}", egress="web", uid="u", ip=IP, node="n1")

    async def reasons(*done: Act) -> list[str]:
        for act in done:
            await acts[type(act)](act)
        await asyncio.gather(*world._begun)
        found, world.api.events = [event[-2] for event in world.api.events], []
        return found

    assert await reasons(taken, taken) == ["EgressTakenOver"]
    world.facts.put(EgressOwner("web", "n1", home="n2"))  # the same place
    assert await reasons(taken) == []
    world.facts.put(EgressOwner("web", "n2"))
    assert await reasons(gone, gone) == ["IPUnassigned"]
    world.facts.put(EgressOwner("web", "n1"))
    assert await reasons(taken) == ["EgressTakenOver"]
    world.facts.put(EgressOwner("web", "n2"))
    assert await reasons(gone) == ["IPUnassigned"]
    world.facts.drop(EgressOwner, "web")
    assert (world.node._reported, world.node._owners) == ({}, {})


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


async def test_an_address_is_missing_when_it_has_been_so_for_a_moment_and_until_it_is_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One that came in time, or whose Egress went, is not told of, and nothing is kept of it."""
    why = "ExternalIPPool p does not exist"
    facts, loop = Facts(), asyncio.get_running_loop()
    late: list[tuple[float, Callable[[], None]]] = []
    monkeypatch.setattr(
        loop, "call_later", lambda seconds, work, *words: late.append((seconds, partial(work, *words)))
    )
    waiting = MissingAddresses(facts)

    def pass_time() -> float:
        seconds, work = late.pop(0)
        work()
        return seconds

    for row in (ThisNode("n1"), Quorum(has=True, alive=1, of=1), Egress("web", "u", pool="p")):
        facts.put(row)
    for name in ("web", "gone"):
        await waiting.wait(ReportMissing(name, why, egress=name, why=why))
    assert [pass_time(), pass_time()] == [2.0, 2.0]
    assert (facts.all(MissingAddress), len(late)) == ([MissingAddress("web", why)], 1)
    assert pass_time() == 30.0
    assert facts.all(MissingAddress) == [MissingAddress("web", why)]
    await waiting.wait(ReportMissing("web", why, egress="web", why=why, slow=True))
    assert late.pop()[0] == 10.0
    facts.drop(Egress, "web")
    pass_time()
    assert (facts.all(MissingAddress), late) == ([], [])
