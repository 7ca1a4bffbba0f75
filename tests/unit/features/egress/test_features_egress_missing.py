"""An Egress without an address to use: nothing of its Pods leaves, and one Node says why in the status and by an Event."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
import pytest
from wide_pool import wide_pool

from antrea.agent.feature_set import active, pipeline_of
from antrea.apis.crd import egress as crd
from antrea.apis.crd.part import AppliedToPods, Condition, Metadata
from antrea.apis.status import Status
from antrea.config.agent import AgentConfig
from antrea.engine import Engine, Facts
from antrea.facts.egress import AssignedAddress, Egress, EgressLimit, EgressOwner, EgressPod, MissingAddress
from antrea.facts.member import AgentNode, GossipMember, PoolSelector, Quorum
from antrea.facts.node import LocalAddress, ThisNode, Transport
from antrea.facts.ovs import OvsPort, PodInterface
from antrea.features.egress.agent.address import RecordAssigned
from antrea.features.egress.agent.address_report import ReportMissing
from antrea.features.egress.agent.feature import FEATURE, egress_row, egress_rows
from antrea.features.egress.agent.handover import RecordUnassigned
from antrea.features.egress.agent.owner import FEATURE as PLACEMENT
from antrea.features.egress.agent.status import RecordAssignmentFailed
from antrea.features.external_ip_pool.agent import FEATURE as POOL_MEMBERS
from antrea.openflow.flow import Flow

if TYPE_CHECKING:
    from antrea.engine import Act
    from antrea.facts.fact import Fact

A = TypeVar("A", bound="Act")
IP, OTHER, IP6 = "203.0.113.1", "203.0.113.2", "fd00:9::1"
NODE = ThisNode("n1", ("10.10.0.0/24", "fd00:10::/80"), ("192.0.2.1", "fd00:2::1"), ("192.0.2.1",))
WEB = PodInterface("web", "c1", "shop", "web", "0a:00:00:00:00:07", ("10.10.0.7", "fd00:10::7"), 7, "u1")
CARD = Transport("eth1", "br-phy", "0a:00:00:00:00:02", 1500, ("198.51.100.1/24",))
SMALL = PoolSelector("p", (), ranges=((4, 0xCB007101, 0xCB007101),))
"""Of IP alone."""
DROP4 = "table=EgressMark,priority=200,ct_state=+trk,ip,in_port=7 actions=drop"
DROP6 = "table=EgressMark,priority=200,ct_state=+trk,ipv6,in_port=7 actions=drop"
NOT_THERE = "ExternalIPPool p does not exist"


def egress(name: str = "a", ip: str = IP, pool: str = "p", created: str = "1", **more: Any) -> Egress:
    return Egress(name, f"uid-{name}", ip, pool, created, **more)


class Agent:
    """All units of Egress on Node n1, the only one."""

    def __init__(self, *rows: Fact, config: AgentConfig | None = None) -> None:
        self.facts = Facts()
        config = config or AgentConfig()
        self.engine = Engine(self.facts, (*FEATURE.units, *PLACEMENT.units, *POOL_MEMBERS.units))
        self.pipeline = pipeline_of(active({"Egress"}), config, NODE)
        gateway = OvsPort("antrea-gw0", "gateway", 2, "0a:00:00:00:00:01")
        alone = AgentNode("n1", ("192.0.2.1",), ("192.0.2.1",)), Quorum(has=True, alive=1, of=1)
        for row in (config, NODE, CARD, gateway, WEB, *alone, *rows):
            self.facts.put(row)
        self.acts: list[Act] = []

    def put(self, *rows: Fact) -> None:
        for row in rows:
            self.facts.put(row)

    def work(self) -> None:
        """One pass; its acts are those that appeared in it."""
        self.acts = list(self.engine.plan().acts)

    def flows(self) -> set[str]:
        """Of the Pod."""
        self.work()
        found = (e.named(self.pipeline) for e in self.engine.standing().values() if isinstance(e, Flow))
        return {line for line in found if "in_port=7" in line}

    def did(self, *kinds: type[A]) -> list[A]:
        self.work()
        return [act for act in self.acts if isinstance(act, kinds)]

    @property
    def said(self) -> dict[str, Status]:
        standing = self.engine.standing().values()
        return {one.path.rpartition("/")[2]: one for one in standing if isinstance(one, Status)}


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([egress(ip="")], {DROP4, DROP6}),
        ([egress()], {DROP4}),
        ([egress(ip=""), SMALL], {DROP4}),
        ([egress(ip=""), PoolSelector("p", ())], {DROP4, DROP6}),
        ([egress(ip=OTHER), SMALL], {DROP4}),
        ([egress(ip=IP6), SMALL], {DROP6}),
        ([egress(ip="", pool="", invalid="010.0.0.1")], {DROP4}),
        ([egress(ip="", pool="")], set()),
    ],
    ids=[
        "pool deleted", "pool deleted, address not yet taken back", "not given yet", "empty pool",
        "not of its pool", "of another family", "no address", "asks for nothing",
    ],
)  # fmt: skip
def test_pods_of_an_egress_without_an_address_to_use_send_nothing_in_its_family(
    rows: list[Fact], expected: set[str]
) -> None:
    agent = Agent(*rows, EgressPod("a", "shop/web"), LocalAddress(OTHER, "eth0"))
    assert agent.flows() == expected


def test_without_tunnels_no_egress_has_an_address_and_its_status_names_the_key() -> None:
    agent = Agent(
        egress(), SMALL, EgressPod("a", "shop/web"), config=AgentConfig(traffic_encap_mode="noEncap")
    )
    assert agent.flows() == {DROP4}
    (missing,) = (act for act in agent.acts if isinstance(act, ReportMissing))
    why = "Egress needs tunnels between Nodes, which trafficEncapMode noEncap does not have: set it to encap in antrea-agent.conf"
    assert missing.why == why
    agent.put(MissingAddress("a", why))
    assert agent.did(RecordAssignmentFailed)
    (condition,) = (one for one in agent.said["a"].conditions if one.type == "IPAssigned")
    assert (condition.status, condition.message) == ("False", f"Failed to assign the IP to EgressNode: {why}")


def test_only_what_the_egress_is_for_is_closed_and_it_opens_with_an_address() -> None:
    mine = egress(ip="", cidrs=("192.0.2.0/25",), excepts=("192.0.2.9/32",))
    agent = Agent(mine, SMALL, EgressPod("a", "shop/web"))
    beside = "table=EgressMark,priority=201,ip,in_port=7,nw_dst=192.0.2.9 actions=set_field:0x20/0xf0->reg0,goto_table:L2ForwardingCalc"
    assert agent.flows() == {
        "table=EgressMark,priority=200,ct_state=+trk,ip,in_port=7,nw_dst=192.0.2.0/25 actions=drop",
        beside,
    }
    agent.put(msgspec.structs.replace(mine, ip=IP))
    (to,) = agent.flows() - {beside}
    assert "tun_dst" in to
    agent.put(LocalAddress(IP, "antrea-egress0"))
    (here,) = agent.flows() - {beside}
    assert "pkt_mark" in here
    # the pool goes while the address is still on the Node
    agent.facts.drop(PoolSelector, "p")
    (gone,) = agent.flows() - {beside}
    assert gone.endswith("actions=drop")


def test_an_address_of_a_pool_is_the_oldest_egress_s_and_the_other_one_gets_nothing_of_it() -> None:
    """Neither the translation, nor the meter; its Node is none, and when the older one goes it has the address."""
    old = egress("old")
    young = egress("young", created="2", limit=EgressLimit(1, 1), resets=True)
    here = LocalAddress(IP, "antrea-egress0")
    agent = Agent(old, young, SMALL, here, EgressPod("young", "shop/web"))
    assert agent.flows() == {DROP4}
    assert agent.facts.all(EgressOwner) == [EgressOwner("old", "n1")]
    assert set(agent.said) == {"old"}
    agent.facts.drop(Egress, "old")
    (mine,) = agent.flows()
    assert "pkt_mark" in mine
    assert set(agent.said) == {"young"}


def test_of_an_egress_with_lists_one_family_alone_is_closed() -> None:
    spec = crd.EgressSpec(AppliedToPods(), egress_ips=(IP, ""), external_ip_pools=("p", "six"))
    rows = egress_rows(crd.Egress(spec, Metadata(name="a", creation_timestamp="1")))
    six = PoolSelector("six", (), ranges=((6, 1, 2),))
    agent = Agent(*rows, SMALL, six, LocalAddress(IP, "antrea-egress0"), EgressPod("a", "shop/web"))
    flows = agent.flows()
    assert DROP6 in flows
    assert len(flows) == 2
    assert DROP4 not in flows
    # without the pool nobody can tell what the second address is to be: IPv4 has one all the same
    agent.facts.drop(PoolSelector, "six")
    assert agent.flows() == flows


def failed(why: str) -> Condition:
    message = f"Failed to assign the IP to EgressNode: {why}"
    return Condition("IPAssigned", "False", reason="AssignmentError", message=message)


MISSING: list[tuple[list[Fact], str]] = [
    ([egress(ip="")], NOT_THERE),
    ([egress(ip=""), SMALL], "ExternalIPPool p has given it no address"),
    ([egress(ip=OTHER), SMALL], f"{OTHER} is not an address of ExternalIPPool p"),
    ([egress(created="2"), egress("old"), SMALL], f"Egress old has {IP} of ExternalIPPool p"),
    ([egress(pool="")], f"no Node has {IP} on an interface"),
    (
        [egress(pool="", node="n2", held=IP), GossipMember("n2", alive=False)],
        f"no Node has {IP} on an interface",
    ),
    ([egress(pool="", node="n1", held=IP)], f"no Node has {IP} on an interface"),
]


@pytest.mark.parametrize(("rows", "why"), MISSING)
def test_an_address_that_stays_missing_is_told_of_once_and_the_row_names_no_node(
    rows: list[Fact], why: str
) -> None:
    agent = Agent(*rows)
    slow = isinstance(rows[-1], GossipMember)
    assert agent.did(ReportMissing, RecordAssignmentFailed) == [
        ReportMissing("a", why, egress="a", why=why, slow=slow)
    ]
    assert "a" not in agent.said
    agent.put(MissingAddress("a", why))
    event = RecordAssignmentFailed(
        "a", why, egress="a", uid="uid-a", node="n1", message=f"Failed to assign the IP to EgressNode: {why}"
    )
    assert agent.did(ReportMissing, RecordAssignmentFailed) == [event]
    found: Any = rows[0]
    nobody = (("egressNode", ""), ("egressIP", "")) if found.node else ()
    assert (agent.said["a"].fields, agent.said["a"].conditions) == (nobody, (failed(why),))
    # an agent that starts anew finds it in the status, and does not repeat it
    known = msgspec.structs.replace(found, node="", held="", failed=event.message)
    assert Agent(known, *rows[1:], MissingAddress("a", why)).did(RecordAssignmentFailed) == []
    # who wrote another Node late is answered
    if found.pool:
        agent.put(msgspec.structs.replace(known, node="n3", held=IP))
        agent.work()
        assert agent.said["a"].fields == (("egressNode", ""), ("egressIP", ""))


def test_who_has_an_address_again_says_so_and_what_was_said_is_taken_back() -> None:
    agent = Agent(egress(pool="", failed="nobody has it"), LocalAddress(IP, "eth0"))
    agent.work()
    assert agent.said["a"].conditions == (Condition("IPAssigned"),)
    agent = Agent(egress(failed="no pool"), SMALL, LocalAddress(IP, "antrea-egress0"))
    agent.work()
    assert [one.status for one in agent.said["a"].conditions if one.type == "IPAssigned"] == ["True"]


@pytest.mark.parametrize("alive", [True, False])
def test_an_address_without_a_pool_is_not_missing_while_its_node_lives(*, alive: bool) -> None:
    agent = Agent(egress(pool="", node="n2", held=IP), GossipMember("n2", alive=alive))
    assert bool(agent.did(ReportMissing)) is not alive


def test_one_node_says_it_and_none_of_a_minority() -> None:
    nodes = ("n1", "n2", "n3")
    for rows, _ in MISSING[:5]:
        told = []
        for name in nodes:
            others = [GossipMember(other, alive=True) for other in nodes if other != name]
            agent = Agent(*rows, *others, msgspec.structs.replace(NODE, name=name))
            told += agent.did(ReportMissing)
            assert Agent(*rows, *others, Quorum(has=False, alive=1, of=3)).did(ReportMissing) == []
        assert len(told) == 1


def test_of_an_egress_with_lists_one_node_says_which_address_is_missing() -> None:
    spec = crd.EgressSpec(AppliedToPods(), egress_ips=(IP, "", OTHER), external_ip_pools=("p", "q", ""))
    rows = egress_rows(crd.Egress(spec, Metadata(name="a", uid="u", creation_timestamp="1")))
    agent = Agent(*rows, SMALL, LocalAddress(IP, "antrea-egress0"))
    whys = {"a 1": "ExternalIPPool q does not exist", "a 2": f"no Node has {OTHER} on an interface"}
    assert {act.key: act.cause for act in agent.did(ReportMissing)} == whys
    agent.put(*(MissingAddress(key, why) for key, why in whys.items()))
    both = f"q: {whys['a 1']}, {OTHER}: {whys['a 2']}"
    assert [act.cause for act in agent.did(RecordAssignmentFailed)] == [both]
    assert agent.said["a"].conditions == (failed(both),)
    assert agent.said["a"].items
    assert agent.said["a"].items.items == (
        (("egressIP", IP), ("egressNode", "n1")),
        (("egressIP", OTHER), ("egressNode", "")),
    )
    assert agent.said["a"].fields == (("egressNode", "n1"), ("egressIP", IP))


def test_an_agent_that_starts_anew_does_not_repeat_where_an_address_is() -> None:
    pool, here = wide_pool("p"), LocalAddress(IP, "antrea-egress0")
    for status, recorded in (
        ({}, False),
        ({"node": "n1", "held": IP}, True),
        ({"node": "n1", "held": OTHER}, False),
    ):
        acts = Agent(egress(**status), pool, here).did(RecordAssigned)
        assert [(act.key, act.recorded) for act in acts] == [("a", recorded)]


def test_what_is_no_address_is_read_as_such() -> None:
    """The API server's own check takes leading zeros."""
    spec = crd.EgressSpec(AppliedToPods(), egress_ip="010.0.0.1")
    row = egress_row(crd.Egress(spec, Metadata(name="a")))
    assert (row.ip, row.invalid) == ("", "010.0.0.1")
    spec = crd.EgressSpec(AppliedToPods(), egress_ips=("010.0.0.1", IP))
    rows = egress_rows(crd.Egress(spec, Metadata(name="a")))
    assert [(row.ip, row.invalid) for row in rows] == [("", "010.0.0.1"), (IP, "")]


def test_an_address_that_its_egress_no_longer_has_here_is_said_to_be_gone_once() -> None:
    pool, row, here = (
        wide_pool("p"),
        AssignedAddress("a", "a", "uid-a", IP),
        LocalAddress(IP, "antrea-egress0"),
    )
    agent = Agent(egress(ip=OTHER, node="n1", held=IP), pool, row, here)
    assert agent.did(RecordUnassigned) == []
    agent.facts.drop(LocalAddress, IP)
    assert [(act.egress, act.uid, act.ip, act.address) for act in agent.did(RecordUnassigned)] == [
        ("a", "uid-a", IP, row.key)
    ]
    agent.put(egress())  # it is put again
    assert agent.did(RecordUnassigned) == []
