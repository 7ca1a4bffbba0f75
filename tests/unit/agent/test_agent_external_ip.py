"""What a Node tells of the external IPs that it answers for: who has which, and from whom it took one over."""

from __future__ import annotations

import asyncio
import contextlib
import time
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from agent_context import agent_context

from antrea.apis.crd.info import AgentCondition
from antrea.config.agent import AgentConfig
from antrea.engine import Engine, Facts, Unit
from antrea.errors import Unavailable
from antrea.facts.external_ip import AnsweredAddress, AnsweringNetwork, ExternalIPOwner, PoolAddressNodes
from antrea.facts.member import AgentNode, GossipMember, PoolSelector, Quorum, SilenceReport, SilentNetwork
from antrea.facts.node import ThisNode
from antrea.facts.service import Service
from antrea.features.egress.agent_part.part import EgressPart
from antrea.features.external_ip_pool.silence import ReportSilence
from antrea.features.framework.agent_part import NotFound, make_parts
from antrea.features.membership.agent_part import part as membership_part
from antrea.features.membership.agent_part.part import MembershipPart, report_majority
from antrea.features.service_external_ip.agent import AnnounceExternalIP, RecordAnswered
from antrea.features.service_external_ip.agent_part import part
from antrea.features.service_external_ip.agent_part.answered_file import NAME
from antrea.features.service_external_ip.agent_part.part import ServiceExternalIPPart
from antrea.features.service_external_ip.network import RecordUnheard
from antrea.features.service_external_ip.unanswered import RecordUnanswered
from antrea.outside.gossip.feed import GossipFeed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
    from pathlib import Path

    from antrea.apis.core import ObjectReference

IP, IP6 = "192.0.2.40", "2001:db8::40"
ACT = AnnounceExternalIP(
    ("shop/web", IP), "eth0", holder="shop/web", service="shop/web", uid="u", pool="p", ip=IP, dev="eth0"
)


class Api:
    """Stands where kube-apiserver stands: it takes Events."""

    def __init__(self) -> None:
        self.events: list[tuple[str, ...]] = []

    async def create_event(self, about: ObjectReference, reason: str, message: str, **_: Any) -> None:
        self.events.append((about.kind, about.namespace, about.name, about.uid, reason, message))


class World:
    """n1 of three Nodes, whose announcements go nowhere."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.facts, self.api = Facts(), Api()
        self._begun: list[asyncio.Task[None]] = []
        context = agent_context(self.facts, kube=self.api, begin=self._begin)
        self.node = ServiceExternalIPPart(context)
        self.announced: list[str] = []

        async def announce(act: AnnounceExternalIP) -> None:
            self.announced.append(act.ip)

        monkeypatch.setattr(self.node._announcer, "announce", announce)
        monkeypatch.setattr(time, "monotonic", lambda: 100.0)
        self.node._changes._clock = lambda: 99.75
        for row in (
            Quorum(has=True, alive=3, of=3), PoolSelector("p", ()), self.service(),
            *(AgentNode(name, (), ()) for name in ("n1", "n2")), GossipMember("n2", alive=True),
        ):  # fmt: skip
            self.facts.put(row)

    def service(self, *, local: bool = False) -> Service:
        return Service(
            "shop", "web", ("10.96.0.7", IP), (), external_ips=(IP,), load_balancer_ips=(IP,), external_local=local, pools=("p",)
        )  # fmt: skip

    def _begin(self, work: Coroutine[Any, Any, None], name: str) -> None:
        self._begun.append(asyncio.create_task(work, name=name))

    def owns(self, node: str, ip: str = IP, slot: int = 0) -> None:
        self.facts.put(ExternalIPOwner("shop/web", ip, "p", node, slot=slot))

    async def told(self) -> list[str]:
        await self.node.acts()[AnnounceExternalIP](ACT)
        await asyncio.gather(*self._begun)
        assert all(
            event[:5] == ("Service", "shop", "web", "u", "ExternalIPTakenOver") for event in self.api.events
        )
        return [event[5] for event in self.api.events]


@pytest.fixture
async def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


async def test_a_first_assignment_is_announced_and_told_of_to_nobody(world: World) -> None:
    world.owns("n1")
    assert await world.told() == []
    assert world.announced == [IP]


async def test_a_move_is_told_with_its_cause_and_the_time_since_that_was_known(world: World) -> None:
    world.owns("n2")
    world.facts.put(GossipMember("n2", alive=False, why="no gossip"))
    world.owns("n1")
    said = f"Node n1 took over {IP} from n2 in 250 ms: dead: no gossip"
    assert await world.told() == [said]
    assert await world.told() == [said]  # once


async def test_who_hands_an_address_over_says_so_once_for_an_agent_that_starts_does_not_know(
    world: World,
) -> None:
    world.owns("n1")
    assert await world.told() == []
    world.owns("n2")
    await asyncio.sleep(0)
    await asyncio.gather(*world._begun)
    handed = ("Service", "shop", "web", "", "ExternalIPHandedOver", f"Node n1 handed {IP} over to n2")
    assert world.api.events == [handed]
    # what was placed here and never announced was not here
    world.owns("n1")
    world.owns("n2")
    world.facts.put(Quorum(has=False, alive=1, of=3))
    await asyncio.sleep(0)
    await asyncio.gather(*world._begun)
    assert world.api.events == [handed]


async def test_a_move_because_of_endpoints_says_so(world: World) -> None:
    world.facts.put(world.service(local=True))
    world.facts.put(PoolAddressNodes("shop/web", ipv6=False, parts=("n2",)))
    world.owns("n2")
    world.facts.put(PoolAddressNodes("shop/web", ipv6=False, parts=("n1",)))
    world.owns("n1")
    why = "endpoints: it has none, which externalTrafficPolicy Local needs"
    assert await world.told() == [f"Node n1 took over {IP} from n2 in 250 ms: {why}"]


async def test_another_address_and_what_was_seen_without_a_majority_is_no_move(world: World) -> None:
    world.owns("n2", "192.0.2.41")
    world.owns("n1")
    assert await world.told() == []
    world.facts.put(Quorum(has=False, alive=1, of=3))
    world.owns("n2")
    world.owns("n1")
    assert await world.told() == []


async def test_who_has_which_address_is_shown_by_name_and_namespace(world: World) -> None:
    world.owns("n2")
    row = {
        "serviceName": "web",
        "namespace": "shop",
        "externalIP": IP,
        "externalIPPool": "p",
        "assignedNode": "n2",
    }
    shown = world.node.shown
    assert shown({}) == shown({"name": "web", "namespace": "shop"}) == [row]
    assert shown({"namespace": "other"}) == []
    with pytest.raises(NotFound, match="no Service api"):
        shown({"name": "api"})
    off = ServiceExternalIPPart(
        agent_context(Facts(), AgentConfig(feature_gates={"ServiceExternalIP": False}))
    )
    with pytest.raises(Unavailable, match="ServiceExternalIP is not enabled"):
        off.shown({})
    assert (off.bundle(), world.node.bundle()) == ({}, {"serviceexternalips": [row]})


async def test_of_several_pools_that_of_each_address_is_shown(world: World) -> None:
    pools = [("four", IP), ("six", IP6)]
    for pool, ip in pools:
        address = ip_address(ip)
        world.facts.put(PoolSelector(pool, (), ranges=((address.version, int(address), int(address)),)))
    service = msgspec.structs.replace(
        world.service(), pools=("four", "six"), load_balancer_ips=(IP, IP6), external_ips=(IP, IP6)
    )
    world.facts.put(service)
    shown = [(row["externalIPPool"], row["externalIP"]) for row in world.node.shown({})]
    assert shown == pools
    world.facts.put(msgspec.structs.replace(service, load_balancer_ips=()))
    (row,) = world.node.shown({})
    assert (row["externalIPPool"], "externalIP" in row) == ("four,six", False)


async def test_each_address_of_a_dual_stack_service_has_its_own_node_and_its_own_moves(world: World) -> None:
    ips = (IP, IP6)
    world.facts.put(
        msgspec.structs.replace(world.service(), ips=ips, external_ips=ips, load_balancer_ips=ips)
    )
    world.owns("n2")
    world.owns("n2", IP6, 1)
    world.owns("n1")
    shown = [(row["externalIP"], row["assignedNode"]) for row in world.node.shown({})]
    assert shown == [(IP, "n1"), (IP6, "n2")]
    assert [text.split()[4] for text in await world.told()] == [IP]
    second = msgspec.structs.replace(ACT, holder="shop/web 1", ip=IP6)
    await world.node.acts()[AnnounceExternalIP](second)
    assert world.facts.get(AnsweredAddress, "shop/web 1") == AnsweredAddress("shop/web 1", IP6, here=True)
    assert world.facts.get(AnsweredAddress, "shop/web") == AnsweredAddress("shop/web", IP, here=True)


async def test_who_answered_before_is_kept_while_this_node_answers_and_that_it_did_afterwards(
    world: World,
) -> None:
    answered, announced = (world.node.acts()[kind] for kind in (RecordAnswered, AnnounceExternalIP))
    of_other = RecordAnswered("shop/web", (IP, "n2"), holder="shop/web", ip=IP, node="n2")
    await answered(of_other)
    assert world.facts.get(AnsweredAddress, "shop/web") == AnsweredAddress("shop/web", IP, others=("n2",))
    await announced(ACT)
    both = AnsweredAddress("shop/web", IP, others=("n2",), here=True)
    assert world.facts.get(AnsweredAddress, "shop/web") == both
    await answered(msgspec.structs.replace(of_other, node="n3"))
    kept = AnsweredAddress("shop/web", IP, others=("n3", "n2"), here=True)
    assert world.facts.get(AnsweredAddress, "shop/web") == kept
    await answered(msgspec.structs.replace(of_other, ip="192.0.2.41"))
    assert world.facts.get(AnsweredAddress, "shop/web") == AnsweredAddress(
        "shop/web", "192.0.2.41", others=("n2",)
    )


async def test_an_agent_that_ends_waits_until_the_next_node_has_announced_what_it_answered_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    facts = Facts()
    context = agent_context(facts)
    egress = EgressPart(context)
    context.parts.append(egress)
    monkeypatch.setattr(time, "monotonic", lambda: 100.0)
    ServiceExternalIPPart(context)
    handover = egress._handover
    facts.put(ExternalIPOwner("shop/web", IP, "p", "n2"))
    assert not handover._hands_over()
    facts.put(ExternalIPOwner("shop/web", IP, "p", "n1"))
    assert not handover._hands_over()  # nobody takes it
    facts.put(ExternalIPOwner("shop/web", IP, "p", "n2"))
    assert handover._hands_over()
    monkeypatch.setattr(time, "monotonic", lambda: 101.1)
    assert not handover._hands_over()


@contextlib.asynccontextmanager
async def restarted(directory: Path, *rows: AnsweredAddress) -> AsyncIterator[Facts]:
    """The facts of an agent that starts with the files of the one before, to which `rows` come."""
    facts = Facts()
    started = ServiceExternalIPPart(agent_context(facts, run_dir=directory))
    task = asyncio.create_task(started.run())
    try:
        for row in rows:
            facts.put(row)
        yield facts
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def until(condition: Callable[[], bool]) -> None:
    for _ in range(1_000):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it is never so")


async def test_who_answered_before_is_known_to_the_next_agent_until_the_service_is_gone(
    tmp_path: Path,
) -> None:
    web = AnsweredAddress("shop/web", IP, others=("n2",), here=True)
    web6, api = AnsweredAddress("shop/web 1", IP6, others=("n3",)), AnsweredAddress("shop/api", "192.0.2.41")
    file = tmp_path / NAME
    async with restarted(tmp_path, web, web6, api):
        await until(lambda: file.exists() and b"shop/api" in file.read_bytes())
    assert file.stat().st_mode & 0o777 == 0o600
    async with restarted(tmp_path) as facts:
        assert {row.key: row for row in facts.all(AnsweredAddress)} == {
            row.key: row for row in (web, web6, api)
        }
        facts.put(Service("shop", "web", (), ()))
        facts.synced(Service)
        await until(lambda: b"shop/api" not in file.read_bytes())
        assert facts.all(AnsweredAddress) == [web, web6]
    file.write_bytes(file.read_bytes().replace(b"n2", b"n9"))
    async with restarted(tmp_path) as facts:
        assert facts.all(AnsweredAddress) == []
    assert b"n9" in file.with_name(f"{NAME}.damaged").read_bytes()


async def test_that_no_node_answers_is_told_unless_one_does_a_moment_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(part, "UNANSWERED_SECONDS", 0.01)
    facts, api = Facts(), Api()
    handle = ServiceExternalIPPart(agent_context(facts, kube=api)).acts()[RecordUnanswered]
    act = RecordUnanswered(
        "shop/web", IP, holder="shop/web", ip=IP, service="shop/web", uid="u", message="none"
    )
    facts.put(ExternalIPOwner("shop/web", IP, "p", "n2"))
    await handle(act)
    await asyncio.sleep(0.1)
    assert api.events == []
    facts.put(ExternalIPOwner("shop/web", IP, "p", ""))
    await handle(act)
    await until(lambda: bool(api.events))
    assert api.events == [("Service", "shop", "web", "u", "ExternalIPUnanswered", "none")]


async def test_that_neighbours_do_not_answer_is_an_event_of_the_node_and_a_condition_while_it_is_so() -> None:
    facts, api = Facts(), Api()
    node = ServiceExternalIPPart(agent_context(facts, kube=api))
    await node.acts()[RecordUnheard](RecordUnheard("192.0.2.0/24", "", message="no neighbour"))
    await until(lambda: bool(api.events))
    assert api.events == [("Node", "", "n1", "n1", "ExternalIPsUnheard", "no neighbour")]
    for name in node.conditions():  # the CRD has it
        msgspec.convert({"type": name, "status": "True", "lastHeartbeatTime": ""}, AgentCondition)
    check = node.conditions()["ExternalIPsUnheard"]
    assert check() == ""
    for network in ("192.0.2.0/24", "2001:db8::/64", "198.51.100.0/24"):
        facts.put(AnsweringNetwork("eth0", network, answers=network.startswith("198"), targets=("a",)))
    assert [text.partition(" on ")[0] for text in check().split("; ") if text.startswith("no ")] == [
        f"no neighbour answers Node n1 in {network}" for network in ("192.0.2.0/24", "2001:db8::/64")
    ]


async def test_silent_networks_of_this_node_count_at_once_and_go_to_all_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    facts = Facts()
    context = agent_context(facts)
    parts = make_parts(context, {"membership", "external_ip_pool"})
    sent: list[tuple[str, ...]] = []
    gossip = GossipFeed("n1", "127.0.0.1", 1)
    monkeypatch.setattr(gossip, "report_silence", sent.append)
    monkeypatch.setattr(MembershipPart, "gossip", gossip)
    engine = Engine(facts, [Unit(ThisNode, silent, yields=(SilentNetwork,))])
    facts.put(ThisNode("n1"))
    engine.plan()
    await parts[-1].acts()[ReportSilence](ReportSilence("n1", ()))
    assert facts.get(SilenceReport, "n1") == SilenceReport("n1", ("192.0.2.0/24",))
    assert sent == [("192.0.2.0/24",)]


def silent(_: Facts, __: ThisNode) -> Iterator[SilentNetwork]:
    yield SilentNetwork("192.0.2.0/24")


async def test_a_majority_that_is_lost_for_a_while_is_told_of_once_while_there_are_pools(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(membership_part, "LOOK_SECONDS", 0.001)
    facts, api = Facts(), Api()
    lost = Quorum(has=False, alive=1, of=3)
    facts.put(lost)
    task = asyncio.create_task(report_majority(agent_context(facts, kube=api)))
    await asyncio.sleep(0.05)
    assert api.events == []
    facts.put(PoolSelector("p", ()))
    for _ in range(2):
        api.events.clear()
        await until(lambda: bool(api.events))
        await asyncio.sleep(0.05)
        assert len(api.events) == 1
        facts.put(Quorum(has=True, alive=3, of=3))
        await asyncio.sleep(0.05)
        facts.put(lost)
    task.cancel()
    kind, _, name, _, reason, message = api.events[0]
    assert (kind, name, reason) == ("Node", "n1", membership_part.REASON)
    assert "1 of 3 agents" in message
    assert "port 10351" in message
