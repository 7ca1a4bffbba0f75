"""When an agent says goodbye at its end and when not, how long that takes, and how an address is given up."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, Literal

import msgspec
import pytest

from antrea.apis.core import ObjectMeta
from antrea.config.agent import AgentConfig
from antrea.engine import Facts
from antrea.errors import Unavailable
from antrea.facts.egress import (
    AnnouncedAddress,
    CopiedAddress,
    Egress,
    EgressOwner,
    ReleasedAddress,
)
from antrea.facts.member import AgentLeaving, AgentNode, GossipMember
from antrea.facts.node import LocalAddress
from antrea.features.egress.agent.handover import ConfirmAnnounced, ReleaseAddress
from antrea.features.egress.agent.takeover_event import Cause, RecordTakeover
from antrea.features.egress.agent_part import graceful_handover
from antrea.features.egress.agent_part.graceful_handover import GracefulHandover
from antrea.features.framework.change_times import ChangeTimes

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

NODE = AgentNode("n1", ("192.0.2.1",), ("192.0.2.1",))
IP = "203.0.113.9"


class Api:
    """Stands where kube-apiserver stands: it has the agent's Pod, or is away."""

    def __init__(self, pod: ObjectMeta | None = None, *, away: bool = False) -> None:
        self.pod, self.away = pod, away

    async def get(self, path: str, kind: type) -> Any:
        assert path == "/api/v1/namespaces/kube-system/pods/antrea-agent-x"
        if self.away:
            raise Unavailable("kube-apiserver")
        return kind(self.pod) if self.pod else None


class Clock:
    """Time that passes only while the agent sleeps; what is due by then happens before it wakes."""

    def __init__(self) -> None:
        self.now = 0.0
        self._due: list[tuple[float, Callable[[], None]]] = []

    def monotonic(self) -> float:
        return self.now

    def later(self, seconds: float, do: Callable[[], None]) -> None:
        self._due.append((self.now + seconds, do))

    async def sleep(self, seconds: float) -> None:
        self.now += seconds
        while self._due and self._due[0][0] <= self.now:
            self._due.pop(0)[1]()


class Gossip:
    """Stands where gossip stands: it counts goodbyes, after which another Node is found, and takes the address over."""

    def __init__(self, facts: Facts, file: Path, clock: Clock) -> None:
        self.facts, self.file, self.clock = facts, file, clock
        self.left = self.returns = 0
        self.finds = self.takes = True

    def return_soon(self) -> None:
        assert self.file.exists()
        assert not self.facts.get(AgentLeaving)
        self.returns += 1

    def leave(self) -> None:
        assert self.facts.get(AgentLeaving)
        assert self.file.exists()
        self.left += 1
        if self.finds:
            self.clock.later(0.1, lambda: self.facts.put(EgressOwner("web", "n2")))
        if self.takes:
            self.clock.later(0.5, lambda: self.facts.drop(LocalAddress, IP))


STAYS, ENDS = (
    ObjectMeta("antrea-agent-x"),
    ObjectMeta("antrea-agent-x", deletion_timestamp="2026-01-01T00:00:00Z"),
)


class Ending(msgspec.Struct, frozen=True):
    """What an agent that is told to end may know."""

    pod: ObjectMeta | None = STAYS
    away: bool = False
    node: AgentNode | None = NODE
    datapath: Literal["system", "netdev"] = "netdev"


def agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: Ending) -> tuple[GracefulHandover, Gossip]:
    monkeypatch.setenv("POD_NAMESPACE", "kube-system")
    monkeypatch.setenv("POD_NAME", "antrea-agent-x")
    facts = Facts()
    rows = (Egress("web", "u", IP, "pool"), LocalAddress(IP, "antrea-egress0"), EgressOwner("web", "n1"))
    for row in (*rows, *([end.node] if end.node else [])):
        facts.put(row)
    facts.synced(AgentNode)
    config = AgentConfig(ovs_run_dir=str(tmp_path), ovs_datapath_type=end.datapath)
    kube: Any = Api(end.pod, away=end.away)
    mine = GracefulHandover(facts, kube, config, "n1")
    gossip: Any = Gossip(facts, tmp_path / graceful_handover.ENDING, Clock())
    mine.gossip = gossip
    return mine, gossip


async def farewell(mine: GracefulHandover, gossip: Gossip, monkeypatch: pytest.MonkeyPatch) -> float:
    """Seconds that it takes by the clock of these two."""
    with monkeypatch.context() as patch:
        patch.setattr(graceful_handover, "time", gossip.clock)
        patch.setattr(asyncio, "sleep", gossip.clock.sleep)
        await mine.farewell()
    return gossip.clock.now


CORDONED = msgspec.structs.replace(NODE, cordoned=True)


@pytest.mark.parametrize(
    ("end", "goodbyes"),
    [
        (Ending(), 0),
        (Ending(away=True), 0),
        (Ending(pod=ENDS), 1),
        (Ending(pod=None), 1),
        (Ending(node=CORDONED), 1),
        (Ending(node=CORDONED, datapath="system", away=True), 1),
        (Ending(node=None, datapath="system"), 1),
    ],
)
async def test_an_agent_says_goodbye_if_its_node_is_to_do_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: Ending, goodbyes: int
) -> None:
    mine, gossip = agent(tmp_path, monkeypatch, end)
    taken = await farewell(mine, gossip, monkeypatch)
    assert (gossip.left, gossip.file.exists()) == (goodbyes, False)
    assert 0.5 <= taken < graceful_handover.FAREWELL_SECONDS if goodbyes else taken == 0
    assert (mine._facts.get(LocalAddress, IP) is None) == bool(goodbyes)


@pytest.mark.parametrize(
    ("end", "returns"),
    [
        (Ending(pod=ENDS, datapath="system"), 1),
        (Ending(pod=None, datapath="system"), 1),
        (
            Ending(datapath="system"),
            0,
        ),  # a container of it, or a Node that shuts down: its Pods are not deleted
        (Ending(datapath="system", away=True), 0),
        (Ending(pod=ENDS, datapath="system", node=CORDONED), 0),
        (Ending(pod=ENDS, datapath="system", node=None), 0),
        (Ending(pod=ENDS), 0),
    ],
)
async def test_an_agent_says_that_it_is_back_in_a_moment_if_its_pod_is_exchanged_and_the_kernel_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: Ending, returns: int
) -> None:
    mine, gossip = agent(tmp_path, monkeypatch, end)
    taken = await farewell(mine, gossip, monkeypatch)
    assert (gossip.returns, gossip.file.exists()) == (returns, False)
    if returns:
        assert (taken, gossip.left) == (graceful_handover.SPREAD_SECONDS, 0)
        assert mine._facts.get(LocalAddress, IP)


@pytest.mark.parametrize(
    ("finds", "at_least"),
    [(True, graceful_handover.FAREWELL_SECONDS), (False, graceful_handover.ELECT_SECONDS)],
)
async def test_an_agent_whose_addresses_nobody_takes_ends_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, finds: bool, at_least: float
) -> None:
    mine, gossip = agent(tmp_path, monkeypatch, Ending(node=CORDONED))
    gossip.finds, gossip.takes = finds, False
    assert (
        at_least <= await farewell(mine, gossip, monkeypatch) < at_least + 3 * graceful_handover.LOOK_SECONDS
    )
    assert (gossip.left, mine._facts.get(LocalAddress, IP)) == (1, LocalAddress(IP, "antrea-egress0"))


async def test_an_agent_without_gossip_and_without_ovs_just_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine, gossip = agent(tmp_path / "none", monkeypatch, Ending(node=CORDONED))
    mine.gossip = None
    await mine.farewell()
    assert gossip.left == 0


async def test_an_address_is_given_up_at_once_and_translated_for_another_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(graceful_handover, "LINGER_SECONDS", 0.05)
    mine, _ = agent(tmp_path, monkeypatch, Ending())
    mine._facts.put(Egress("web", "u", IP, "pool", node="n2"))
    seen: list[ReleasedAddress | None] = [mine._facts.get(ReleasedAddress, "web")]
    forgotten = asyncio.Event()

    def heard() -> None:
        seen.append(mine._facts.get(ReleasedAddress, "web"))
        if seen[-1] is None:
            forgotten.set()

    mine._facts.listeners.append(heard)
    async with asyncio.timeout(30):
        await mine.part(ReleaseAddress("web", (IP, "n2"), egress="web", ip=IP, to="n2"))
        await forgotten.wait()
    assert seen == [None, ReleasedAddress("web", IP, "n2"), None]


async def test_an_address_that_comes_back_is_not_parted_with_any_longer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine, _ = agent(tmp_path, monkeypatch, Ending())
    facts, part = mine._facts, ReleaseAddress("web", (IP, "n2"), egress="web", ip=IP, to="n2")
    await mine.part(part)
    assert facts.get(ReleasedAddress, "web")
    await mine.receive(ConfirmAnnounced("web", (IP, "n2"), egress="web", ip=IP, before="n2"))
    assert facts.get(ReleasedAddress, "web") is None


async def test_an_address_that_was_announced_is_known_so_until_late_answers_have_come_or_it_goes_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(graceful_handover, "ANNOUNCE_SECONDS", 0.05)
    monkeypatch.setattr(graceful_handover, "RELAY_SECONDS", 0.1)
    mine, _ = agent(tmp_path, monkeypatch, Ending())
    facts, row = mine._facts, AnnouncedAddress("web", IP, "n2")
    act = ConfirmAnnounced("web", (IP, "n2"), egress="web", ip=IP, before="n2")

    news = asyncio.Event()
    facts.listeners.append(news.set)

    async def until(stands: AnnouncedAddress | None) -> None:
        async with asyncio.timeout(30):
            while facts.get(AnnouncedAddress, "web") != stands:
                await news.wait()
                news.clear()

    for end in (Egress("web", "u", IP, "pool", node="n1"), Egress("web", "u", "203.0.113.10", "pool")):
        facts.put(Egress("web", "u", IP, "pool", node="n2"))
        await mine.receive(act)
        assert facts.get(AnnouncedAddress, "web") is None
        await until(row)
        await asyncio.sleep(
            3 * graceful_handover.LOOK_SECONDS
        )  # for as long as the status names the other Node
        assert facts.get(AnnouncedAddress, "web") == row
        facts.put(end)
        await until(None)


def test_while_the_api_server_says_nothing_looks_become_rare(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine, _ = agent(tmp_path, monkeypatch, Ending())
    mine._facts.put(Egress("web", "u", IP, "pool", node="n2"))
    due: list[tuple[float, Callable[..., None], tuple[Any, ...]]] = []

    class Loop:
        def call_later(self, seconds: float, do: Callable[..., None], *args: Any) -> None:
            due.append((seconds, do, args))

    monkeypatch.setattr(asyncio, "get_running_loop", Loop)
    mine._await_answers(AnnouncedAddress("web", IP, "n2"))
    for number in range(5):
        _, do, args = due[number]
        do(*args)
    assert [seconds for seconds, *_ in due] == [0.05, 0.1, 0.2, 0.4, 0.4, 0.4]


def test_the_event_of_a_takeover_says_how_long_ago_its_cause_was_known() -> None:
    facts = Facts()
    changes = ChangeTimes(facts, graceful_handover.TIMED_KINDS, clock=time.monotonic)
    facts.put(NODE)
    facts.put(Egress("other", "u"))
    act = RecordTakeover(
        "web", IP, egress="web", uid="u", ip=IP, pool="p", node="n2", before="n1", why=Cause("gone")
    )
    began = time.monotonic()
    time.sleep(0.05)
    facts.put(GossipMember("n1", alive=False))
    facts.put(Egress("other", "u", IP))
    known = changes.times[GossipMember]["n1"]
    assert began + 0.05 <= known <= time.monotonic()
    facts.put(GossipMember("n1", alive=False))
    assert changes.times[GossipMember]["n1"] == known
    named = msgspec.structs.replace(act, why=Cause("dead: gone", GossipMember, "n1"))
    for one, why in ((act, "gone"), (named, "dead: gone")):
        said, _, rest = graceful_handover.takeover_message(one, changes.times).partition(" in ")
        figure, _, words = rest.partition(" ms: ")
        assert (said, words) == (f"Node n2 took over {IP} from n1", why)
        assert 0 <= int(figure) < 1000 * (time.monotonic() - began) - 49
    assert graceful_handover.takeover_message(act, {}) == f"Node n2 took over {IP} from n1: gone"


@pytest.mark.parametrize("copied", [True, False], ids=["copied", "never copied"])
async def test_pods_are_sent_here_once_this_node_has_copies_of_the_connections_or_some_time_has_passed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, copied: bool
) -> None:
    monkeypatch.setattr(graceful_handover, "ANNOUNCE_SECONDS", 0.01)
    monkeypatch.setattr(graceful_handover, "COPY_SECONDS", 30.0 if copied else 0.3)
    mine, _ = agent(tmp_path, monkeypatch, Ending())
    facts = mine._facts
    facts.put(Egress("web", "u", IP, "pool", node="n2", copies=True))
    # copies of another Node than the one that hands over do not count
    facts.put(CopiedAddress(IP, "n3"))
    await mine.receive(ConfirmAnnounced("web", (IP, "n2"), egress="web", ip=IP, before="n2"))
    await asyncio.sleep(0.15)
    assert facts.get(AnnouncedAddress, "web") is None
    if copied:
        facts.put(CopiedAddress(IP, "n2"))
    async with asyncio.timeout(10):
        with facts.watch(AnnouncedAddress) as news:
            while facts.get(AnnouncedAddress, "web") is None:
                await news.wait()
                news.clear()
