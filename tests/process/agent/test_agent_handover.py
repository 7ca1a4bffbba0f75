"""When an agent says goodbye at its end and when not, how long that takes, and how an address is given up."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, Literal

import msgspec
import pytest

from antrea.agent import handover
from antrea.agent.handover import Handover
from antrea.apis.core import ObjectMeta
from antrea.config.agent import AgentConfig
from antrea.engine import Facts
from antrea.errors import Unavailable
from antrea.facts.egress import Egress, EgressOwner, Parted
from antrea.facts.member import ClusterNode, Leaving, Member
from antrea.facts.node import LocalAddress
from antrea.features.egress.handover import Part
from antrea.features.egress.takeover import Cause, TookOver

if TYPE_CHECKING:
    from pathlib import Path

NODE = ClusterNode("n1", ("192.0.2.1",), ("192.0.2.1",))
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


class Gossip:
    """Stands where gossip stands: it counts goodbyes, after which another Node takes the address over."""

    def __init__(self, facts: Facts, file: Path) -> None:
        self.facts, self.file = facts, file
        self.left = 0

    def leave(self) -> None:
        assert self.facts.get(Leaving)
        assert self.file.exists()
        self.left += 1
        loop = asyncio.get_running_loop()
        loop.call_later(0.1, self.facts.put, EgressOwner("web", "n2"))
        loop.call_later(0.5, self.facts.drop, LocalAddress, IP)


STAYS, ENDS = (
    ObjectMeta("antrea-agent-x"),
    ObjectMeta("antrea-agent-x", deletion_timestamp="2026-01-01T00:00:00Z"),
)


class Ending(msgspec.Struct, frozen=True):
    """What an agent that is told to end may know."""

    pod: ObjectMeta | None = STAYS
    away: bool = False
    node: ClusterNode | None = NODE
    datapath: Literal["system", "netdev"] = "netdev"


def agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: Ending) -> tuple[Handover, Gossip]:
    monkeypatch.setenv("POD_NAMESPACE", "kube-system")
    monkeypatch.setenv("POD_NAME", "antrea-agent-x")
    facts = Facts()
    rows = (Egress("web", "u", IP, "pool"), LocalAddress(IP, "antrea-egress0"), EgressOwner("web", "n1"))
    for row in (*rows, *([end.node] if end.node else [])):
        facts.put(row)
    facts.synced(ClusterNode)
    config = AgentConfig(ovs_run_dir=str(tmp_path), ovs_datapath_type=end.datapath)
    kube: Any = Api(end.pod, away=end.away)
    mine = Handover(facts, kube, config, "n1")
    gossip: Any = Gossip(facts, tmp_path / handover.ENDING)
    mine.gossip = gossip
    return mine, gossip


CORDONED = msgspec.structs.replace(NODE, cordoned=True)


@pytest.mark.parametrize(
    ("end", "goodbyes"),
    [
        (Ending(), 0),
        (Ending(away=True), 0),
        (Ending(pod=ENDS, datapath="system"), 0),
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
    began = time.monotonic()
    await mine.farewell()
    taken = time.monotonic() - began
    assert (gossip.left, gossip.file.exists()) == (goodbyes, False)
    assert taken < 0.4 if not goodbyes else 0.5 <= taken < handover.FAREWELL_SECONDS
    assert (mine._facts.get(LocalAddress, IP) is None) == bool(goodbyes)


async def test_an_agent_whose_addresses_nobody_takes_ends_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handover, "FAREWELL_SECONDS", 0.45)
    mine, gossip = agent(tmp_path, monkeypatch, Ending(node=CORDONED))
    await mine.farewell()
    assert (gossip.left, mine._facts.get(LocalAddress, IP)) == (1, LocalAddress(IP, "antrea-egress0"))


async def test_an_agent_without_gossip_and_without_ovs_just_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine, gossip = agent(tmp_path / "none", monkeypatch, Ending(node=CORDONED))
    mine.gossip = None
    await mine.farewell()
    assert gossip.left == 0


async def test_an_address_is_given_up_after_a_moment_that_is_forgotten_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handover, "LINGER_SECONDS", 0.05)
    monkeypatch.setattr(handover, "FORGET_SECONDS", 0.2)
    mine, _ = agent(tmp_path, monkeypatch, Ending())
    heard = asyncio.Event()
    mine._facts.listeners.append(heard.set)
    seen: list[Parted | None] = [mine._facts.get(Parted, "web")]
    async with asyncio.timeout(10):
        await mine.part(Part("web", (IP, "n2"), egress="web", ip=IP, to="n2"))
        for _ in "ab":
            await heard.wait()
            heard.clear()
            seen.append(mine._facts.get(Parted, "web"))
    assert seen == [None, Parted("web", IP, "n2"), None]


def test_the_event_of_a_takeover_says_how_long_ago_its_cause_was_known() -> None:
    facts = Facts()
    facts.timed |= {kind: {} for kind in handover.NEWS}
    facts.put(NODE)
    facts.put(Egress("other", "u"))
    act = TookOver(
        "web", IP, egress="web", uid="u", ip=IP, pool="p", node="n2", before="n1", why=Cause("gone")
    )
    began = time.monotonic()
    time.sleep(0.05)
    facts.put(Member("n1", alive=False))
    facts.put(Egress("other", "u", IP))
    known = facts.timed[Member]["n1"]
    assert began + 0.05 <= known <= time.monotonic()
    facts.put(Member("n1", alive=False))
    assert facts.timed[Member]["n1"] == known
    named = msgspec.structs.replace(act, why=Cause("dead: gone", Member, "n1"))
    for one, why in ((act, "gone"), (named, "dead: gone")):
        said, _, rest = handover.sentence(one, facts.timed).partition(" in ")
        figure, _, words = rest.partition(" ms: ")
        assert (said, words) == (f"Node n2 took over {IP} from n1", why)
        assert 0 <= int(figure) < 1000 * (time.monotonic() - began) - 49
    assert handover.sentence(act, {}) == f"Node n2 took over {IP} from n1: gone"
