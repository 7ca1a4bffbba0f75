"""When a Node waits for its neighbours before it uses an Egress IP, and what it says of another host that has it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest
from wide_pool import wide_pool

from antrea.apis.crd.part import Condition
from antrea.apis.status import Items, Status
from antrea.config.agent import AgentConfig
from antrea.engine import Engine, Facts
from antrea.facts.egress import Egress, EgressOwner, ProbedAddress
from antrea.facts.member import GossipMember, Quorum
from antrea.facts.node import LocalAddress, OnLink, ThisNode, Transport
from antrea.facts.unrealized import Unrealized
from antrea.features.egress.agent.address import HELD_ADDRESSES
from antrea.features.egress.agent.duplicate_address import RecordConflict
from antrea.features.egress.agent.feature import FEATURE
from antrea.features.egress.agent.subnet import subnet_of
from antrea.features.external_ip_pool.duplicate import ProbeAddress, strangers
from antrea.features.framework.gate import EnabledGates
from antrea.host.address import Address

if TYPE_CHECKING:
    from antrea.engine import Act
    from antrea.facts.fact import Fact

IP, OTHER, MAC = "203.0.113.1", "203.0.113.2", "0a:00:00:00:00:99"
SAID = f"another host of the network has {IP}: MAC address {MAC} answers for it"
NEW = Egress("a", "u", IP, pool="p")


class Agent:
    """The units of Node n1, which is to hold the address."""

    def __init__(self, *rows: Fact) -> None:
        self.facts = Facts()
        node = ThisNode("n1", ("10.10.0.0/24",), ("192.0.2.1",), ("192.0.2.1",))
        card = Transport("eth1", "br-phy", "0a:00:00:00:00:02", 1500, ("192.0.2.1/24",))
        quorum = Quorum(has=True, alive=1, of=1)
        for row in (AgentConfig(), node, card, quorum, wide_pool("p"), EgressOwner("a", "n1"), *rows):
            self.facts.put(row)
        self.engine = Engine(self.facts, FEATURE.units)

    def acts(self) -> list[Act]:
        """What is to be done about neighbours, by name: a pass has no order of its acts."""
        found = (act for act in self.engine.plan().acts if isinstance(act, (ProbeAddress, RecordConflict)))
        return sorted(found, key=lambda act: type(act).__name__)

    @property
    def holds(self) -> set[str]:
        standing = self.engine.standing().values()
        return {entry.cidr for entry in standing if isinstance(entry, Address)}

    @property
    def said(self) -> Status:
        (found,) = (one for one in self.engine.standing().values() if isinstance(one, Status))
        return found


def asked(*, before: bool, named: str = "") -> ProbeAddress:
    """`named`: another Node, which the status says has an address without a pool."""
    return ProbeAddress("a", (IP, "br-phy", named), holder="a", dev="br-phy", ip=IP, before=before)


def test_a_new_address_waits_for_its_neighbours() -> None:
    agent = Agent(NEW)
    assert (agent.acts(), agent.holds) == ([asked(before=True)], set())
    agent.facts.put(ProbedAddress("a", OTHER))  # of the address before
    assert (agent.acts(), agent.holds) == ([], set())
    agent.facts.put(ProbedAddress("a", IP))
    assert (agent.acts(), agent.holds) == ([], {f"{IP}/32"})


def test_an_address_that_some_node_had_or_that_is_here_does_not_wait() -> None:
    moved = Agent(Egress("a", "u", IP, pool="p", node="n2", held=IP))
    assert (moved.acts(), moved.holds) == ([asked(before=False)], {f"{IP}/32"})
    # an agent that starts anew, before the status says that its Node has it
    kept = Agent(NEW, LocalAddress(IP, "antrea-egress0", 32))
    assert (kept.acts(), kept.holds) == ([asked(before=False)], {f"{IP}/32"})
    # the status tells of the address that the Egress had before
    other = Agent(Egress("a", "u", IP, pool="p", node="n2", held=OTHER))
    assert (other.acts(), other.holds) == ([asked(before=True)], set())


def test_an_address_that_another_host_has_is_not_taken_and_its_host_is_named() -> None:
    agent = Agent(NEW, ProbedAddress("a", IP, MAC))
    assert agent.acts() == [
        asked(before=True),
        RecordConflict("a", (IP, MAC), egress="a", uid="u", node="n1", message=SAID),
    ]
    assert agent.holds == set()
    told = Condition("AddressConflict", "True", reason="OtherHost", message=SAID)
    why = f"Failed to assign the IP to EgressNode: {SAID}"
    failed = Condition("IPAssigned", "False", reason="AssignmentError", message=why)
    assert (agent.said.fields, agent.said.conditions) == (
        (("egressNode", ""), ("egressIP", "")),
        (failed, told),
    )
    agent.facts.put(EgressOwner("a", "n2"))
    assert agent.acts() == []


def test_an_address_that_the_host_does_not_take_says_why_until_it_does() -> None:
    refused = Unrealized(HELD_ADDRESSES.name, "a", "Cannot assign requested address")
    agent = Agent(NEW, ProbedAddress("a", IP), refused)
    agent.acts()
    why = f"Failed to assign the IP to EgressNode: Node n1 cannot take {IP}: Cannot assign requested address"
    failed = Condition("IPAssigned", "False", reason="AssignmentError", message=why)
    assert agent.said.conditions == (failed,)
    agent.facts.drop(Unrealized, refused.key)
    agent.facts.put(LocalAddress(IP, "antrea-egress0", 32))
    agent.acts()
    assert [one.status for one in agent.said.conditions] == ["True"]


def test_an_address_in_use_is_kept_though_another_host_has_it_and_the_end_of_that_is_told() -> None:
    used = Egress("a", "u", IP, pool="p", node="n1", held=IP, conflicts="told")
    agent = Agent(used, LocalAddress(IP, "antrea-egress0", 32), ProbedAddress("a", IP, MAC))
    agent.engine.plan()
    assert agent.holds == {f"{IP}/32"}
    states = [(one.type, one.status) for one in agent.said.conditions]
    assert states == [("IPAssigned", "True"), ("AddressConflict", "True")]
    agent.facts.put(ProbedAddress("a", IP))
    agent.engine.plan()
    assert agent.said.conditions[1:] == (Condition("AddressConflict"),)


def test_of_several_addresses_the_one_that_another_host_has_is_nowhere() -> None:
    rows = [Egress("a", "u", ip, pool="p", slot=slot, of=2) for slot, ip in enumerate((IP, OTHER))]
    agent = Agent(*rows, EgressOwner("a 1", "n2"), ProbedAddress("a", IP, MAC))
    agent.engine.plan()
    (failed,) = agent.said.conditions
    assert failed.message == f"Failed to assign the IP to EgressNode: {IP}: {SAID}"
    entry = (("egressIP", IP), ("egressNode", ""), ("conflict", SAID))
    assert agent.said.items == Items("addresses", "egressIP", (entry,), (IP, OTHER))


STATIC, CARD = Egress("a", "u", IP), LocalAddress(IP, "br-phy", 32)
AT_N1 = (("egressNode", "n1"), ("egressIP", IP))


def test_an_address_without_a_pool_is_asked_for_by_who_has_it_and_used_whatever_neighbours_say() -> None:
    agent = Agent(STATIC)
    assert agent.acts() == []
    agent.facts.put(CARD)
    assert agent.acts() == [asked(before=False)]
    assert (agent.said.fields, agent.said.conditions) == (AT_N1, ())
    agent.facts.put(ProbedAddress("a", IP, MAC))
    assert agent.acts() == [RecordConflict("a", (IP, MAC), egress="a", uid="u", node="n1", message=SAID)]
    told = Condition("AddressConflict", "True", reason="OtherHost", message=SAID)
    assert (agent.said.fields, agent.said.conditions) == (AT_N1, (told,))


def test_of_two_nodes_that_have_an_address_who_keeps_it_writes_itself_into_the_status_and_they_do_not_take_turns() -> (
    None
):
    agent = Agent(STATIC, CARD, ProbedAddress("a", IP))
    agent.engine.plan()
    mine = agent.said
    # the other one has written itself
    agent.facts.put(Egress("a", "u", IP, node="n2", held=IP))
    assert (agent.acts(), agent.said) == ([asked(before=False, named="n2")], mine)
    agent.facts.put(ProbedAddress("a", IP, MAC))
    agent.acts()
    both = agent.said
    agent.facts.put(Egress("a", "u", IP, node="n2", held=IP, conflicts="told"))
    assert (agent.acts(), agent.said) == ([], both)
    # and gives it up: another status is written, that of this Node
    agent.facts.put(ProbedAddress("a", IP))
    agent.acts()
    assert (agent.said.fields, agent.said.conditions) == (AT_N1, (Condition("AddressConflict"),))


def test_who_has_the_address_of_a_node_that_died_writes_itself_into_the_status() -> None:
    agent = Agent(Egress("a", "u", IP, node="n2", held=IP), CARD, GossipMember("n2", alive=True))
    agent.engine.plan()
    before = agent.said
    agent.facts.put(GossipMember("n2", alive=False))
    agent.engine.plan()
    assert agent.said.fields == AT_N1
    assert agent.said != before


def test_a_conflict_that_the_status_tells_of_stands_until_neighbours_were_asked() -> None:
    agent = Agent(Egress("a", "u", IP, node="n1", held=IP, conflicts="told"), CARD)
    agent.engine.plan()
    before = agent.said.conditions
    agent.facts.put(ProbedAddress("a", IP))
    agent.engine.plan()
    assert (before, agent.said.conditions) == ((), (Condition("AddressConflict"),))


@pytest.mark.parametrize(
    ("network", "ip", "others"),
    [
        ("192.0.2.0/24", "192.0.2.50", ("192.0.2.178", "192.0.2.114", "192.0.2.18")),
        # neither the network nor its broadcast address
        ("192.0.2.0/24", "192.0.2.128", ("192.0.2.192", "192.0.2.160", "192.0.2.144")),
        ("192.0.2.48/28", "192.0.2.50", ("192.0.2.58", "192.0.2.54", "192.0.2.51")),
        ("192.0.2.48/29", "192.0.2.50", ()),
        ("192.0.2.0/24", "203.0.113.50", ()),
        (
            "2001:db8:2::/64",
            "2001:db8:2::50",
            ("2001:db8:2:0:8000::50", "2001:db8:2:0:4000::50", "2001:db8:2:0:2000::50"),
        ),
    ],
)
def test_a_router_that_answers_for_all_is_known_by_addresses_far_from_each_other(
    network: str, ip: str, others: tuple[str, ...]
) -> None:
    facts = Facts()
    for row in (OnLink("eth0", "198.51.100.0/24"), OnLink("eth1", "203.0.113.0/24"), OnLink("eth0", network)):
        facts.put(row)
    assert strangers(facts, ip, "eth0") == others


def test_a_router_of_a_pools_subnet_is_known_by_addresses_of_that() -> None:
    facts = Facts()
    gates = EnabledGates("agent", frozenset({"EgressSeparateSubnet"}))
    for row in (gates, wide_pool("p", (), "203.0.113.254", 26, 181), OnLink("eth0", "203.0.113.0/24")):
        facts.put(row)
    subnet = subnet_of(facts, Egress("a", "u", IP, pool="p"))
    assert subnet is not None
    found = strangers(facts, IP, subnet.device, subnet.network)
    assert found == ("203.0.113.33", "203.0.113.17", "203.0.113.9")


def test_an_agent_that_starts_anew_does_not_repeat_which_host_has_an_address() -> None:
    used = Egress("a", "u", IP, pool="p", node="n1", held=IP)
    here, found = LocalAddress(IP, "antrea-egress0", 32), ProbedAddress("a", IP, MAC)
    for told, expected in (("", [RecordConflict]), ("another MAC", [RecordConflict]), (SAID, [])):
        agent = Agent(msgspec.structs.replace(used, conflicts=told), here, found)
        assert [type(act) for act in agent.acts() if isinstance(act, RecordConflict)] == expected
