"""What an Egress and its pool say of a router that does not answer in the pool's VLAN."""

from __future__ import annotations

from typing import Any

import msgspec
from wide_pool import wide_pool

from antrea.apis.annotation import NodeAnnotation
from antrea.apis.crd.egress import Egress as EgressObject
from antrea.apis.crd.part import Condition
from antrea.apis.crd.pool import ExternalIPPool
from antrea.apis.status import Status
from antrea.config.agent import AgentConfig
from antrea.engine import Engine, Facts, Unit
from antrea.facts.egress import Egress, EgressGateway, EgressMark, EgressOwner, EgressRow
from antrea.facts.external_ip import ExternalIPOwner, FencedLeadership
from antrea.facts.member import (
    AgentNode,
    GossipMember,
    PoolMembers,
    PoolSelector,
    SilenceReport,
    SilentNetwork,
)
from antrea.facts.node import LocalAddress, OnLink, ThisNode, Transport
from antrea.features.egress.agent import feature as agent
from antrea.features.egress.agent.gateway_reachability import (
    RecordSilentGateway,
    silent_subnets,
    wanted_gateways,
)
from antrea.features.egress.agent.takeover_event import cause
from antrea.features.egress.controller import feature as controller
from antrea.features.egress.controller.pool_gateway import MANAGER
from antrea.features.external_ip_pool.agent import FEATURE as POOL_MEMBERS
from antrea.features.external_ip_pool.pool import POOLS, PoolRow, pool_row
from antrea.features.external_ip_pool.silence import ReportSilence, found_silent, silence_report
from antrea.features.framework.gate import EnabledGates
from antrea.host.link import Link
from antrea.host.route import Route, RoutingRule

IP, DEV, ROUTER = "203.0.113.1", "antrea-ext.181", "203.0.113.254"
WHY = (
    "gateway 203.0.113.254 does not answer Node n1 on antrea-ext.181:"
    " the switch port of the Node has to carry VLAN 181, tagged"
)
SILENT = Condition("GatewayAnswers", "False", reason="NoAnswer", message=WHY)


def said(facts: Facts) -> tuple[Condition, ...]:
    """Of the Egress, by Node n1 that has its address."""
    engine = Engine(facts, agent.FEATURE.units)
    engine.plan()
    (found,) = (one for one in engine.standing().values() if isinstance(one, Status))
    return found.conditions[1:]


def node(*, answers: bool, unanswered: bool) -> Facts:
    facts = Facts()
    for row in (
        AgentConfig(),
        ThisNode("n1", ("10.10.0.0/24",), ("192.0.2.1",), ("192.0.2.1",)),
        Transport("eth1", "br-phy", "0a:00:00:00:00:02", 1500, ("192.0.2.1/24",)),
        wide_pool("p", (), ROUTER, 24, 181),
        Egress("a", "u", IP, pool="p", node="n1", held=IP, unanswered=unanswered),
        EgressOwner("a", "n1"),
        LocalAddress(IP, DEV, 24),
        EgressGateway(DEV, ROUTER, answers=answers),
    ):
        facts.put(row)
    return facts


def test_who_has_the_address_says_that_its_gateway_does_not_answer_and_when_it_does() -> None:
    assert said(node(answers=False, unanswered=False)) == (SILENT,)
    assert said(node(answers=True, unanswered=True)) == (Condition("GatewayAnswers"),)
    assert said(node(answers=True, unanswered=False)) == ()


def test_gateways_are_asked_in_vlans_where_this_node_has_addresses() -> None:
    facts = node(answers=True, unanswered=False)
    facts.put(Egress("b", "u2", "203.0.113.2", pool="p"))
    facts.put(wide_pool("plain", ()))
    facts.put(Egress("c", "u3", "203.0.113.3", pool="plain"))
    facts.put(LocalAddress("203.0.113.3", "antrea-egress0", 32))
    assert wanted_gateways(facts) == {EgressGateway(DEV, ROUTER, answers=True)}


def judged(egress: str, *conditions: dict[str, Any]) -> EgressRow:
    found = {"metadata": {"name": egress}, "spec": {"appliedTo": {}, "externalIPPool": "p"}}
    (row,) = controller.egress_rows(
        msgspec.convert(found | {"status": {"conditions": list(conditions)}}, EgressObject)
    )
    return row


def pool(*conditions: dict[str, Any]) -> PoolRow:
    found = {"metadata": {"name": "p"}, "spec": {"ipRanges": [], "nodeSelector": {}}}
    return pool_row(msgspec.convert(found | {"status": {"conditions": list(conditions)}}, ExternalIPPool))


def test_a_pool_says_what_its_egresses_do_and_when_none_says_it_any_more() -> None:
    facts = Facts()
    engine = Engine(facts, controller.FEATURE.units)

    def told() -> list[Condition]:
        engine.plan()
        found = [
            one for one in engine.standing().values() if isinstance(one, Status) and one.manager == MANAGER
        ]
        assert {one.path for one in found} <= {f"{POOLS}/p"}
        return [condition for one in found for condition in one.conditions]

    silent = {"type": "GatewayAnswers", "status": "False", "reason": "NoAnswer", "message": WHY}
    fine = {"type": "IPAssigned", "status": "True"}
    for row in (pool(), judged("a", fine), judged("b", fine, silent)):
        facts.put(row)
    assert told() == []  # another replica leads
    facts.put(FencedLeadership())
    assert told() == [SILENT]
    facts.put(pool(silent))
    facts.put(judged("b", fine))
    assert told() == [Condition("GatewayAnswers")]
    facts.put(pool())
    assert told() == []


def test_pools_of_one_subnet_share_its_table_unless_their_gateways_differ() -> None:
    gateways = {"p": ROUTER, "q": ROUTER, "r": "203.0.113.253"}
    ips = {name: f"203.0.113.{number}" for number, name in enumerate(gateways, 1)}
    facts = node(answers=True, unanswered=False)
    facts.put(EnabledGates("agent", frozenset({"Egress", "EgressSeparateSubnet"})))
    for name, ip in ips.items():
        facts.put(wide_pool(name, (), gateways[name], 24, 181))
        facts.put(Egress(name, f"u{name}", ip, pool=name, node="n1", held=ip))
        facts.put(EgressOwner(name, "n1"))
        facts.put(LocalAddress(ip, DEV, 24))
    engine = Engine(facts, agent.FEATURE.units)
    engine.plan()
    assert not engine.errors.standing
    standing = list(engine.standing().values())
    ways = {route.table: route.via for route in standing if isinstance(route, Route) and route.via}
    marks = {mark.mark: mark.ip for mark in facts.all(EgressMark)}
    found = {marks[rule.mark]: ways[rule.table] for rule in standing if isinstance(rule, RoutingRule)}
    assert found == {ips[name]: gateways[name] for name in ips}
    assert sorted(ways) == [101, 102]


SUBNET = f"{ROUTER}/24@181"


def own(facts: Facts, *silent: str) -> None:
    facts.put(AgentNode("n1", ("192.0.2.1",), ("192.0.2.1",), silent=silent))


UNITS = [Unit(ThisNode, silent_subnets, yields=(SilentNetwork,)), Unit(ThisNode, silence_report)]


def reported(facts: Facts) -> tuple[str, bool]:
    """The annotation, and whether the device of the VLAN is wanted."""
    facts.put(EnabledGates("agent", frozenset({"Egress", "EgressSeparateSubnet"})))
    facts.synced(PoolSelector)
    engine = Engine(facts, UNITS)
    engine.plan()
    found = [*engine.standing().values()]
    (text,) = (one.value for one in found if isinstance(one, NodeAnnotation))
    return text, any(isinstance(one, Link) and one.name == DEV for one in found)


def test_a_node_names_the_subnets_whose_gateway_does_not_answer_it_until_it_does() -> None:
    facts = node(answers=False, unanswered=False)
    own(facts)
    assert reported(facts) == (SUBNET, True)
    own(facts, SUBNET)
    for row in facts.all(Egress):
        facts.drop(Egress, row.key)
    # the address is elsewhere by now, and it goes on to ask
    assert wanted_gateways(facts) == {EgressGateway(DEV, ROUTER, answers=True)}
    facts.drop(EgressGateway, f"{DEV} {ROUTER}")
    assert reported(facts) == (SUBNET, True)
    facts.put(EgressGateway(DEV, ROUTER, answers=True))
    assert reported(facts) == ("", False)
    facts.drop(PoolSelector, "p")
    own(facts, SUBNET, "junk")
    assert reported(facts) == ("", False)


def test_a_node_reports_of_pools_that_were_listed_after_itself() -> None:
    facts = node(answers=False, unanswered=False)
    pool = facts.get(PoolSelector, "p")
    assert pool is not None
    facts.drop(PoolSelector, "p")
    facts.put(EnabledGates("agent", frozenset({"Egress", "EgressSeparateSubnet"})))
    own(facts)
    engine = Engine(facts, UNITS)
    engine.plan()
    facts.synced(PoolSelector)
    facts.put(pool)
    assert any(isinstance(one, ReportSilence) for one in engine.plan().acts)
    assert found_silent(facts) == (SUBNET,)


def test_of_a_subnet_without_vlan_the_gateway_is_asked_where_its_network_is_and_no_device_is_made() -> None:
    facts = node(answers=True, unanswered=False)
    for row in (wide_pool("p", (), ROUTER, 24), OnLink("eth0", "203.0.113.0/24")):
        facts.put(row)
    own(facts)
    facts.put(LocalAddress(IP, "antrea-egress0", 32))
    assert wanted_gateways(facts) == set()  # of Egresses those in VLANs alone are asked for
    facts.put(ExternalIPOwner("shop/web", "203.0.113.9", "p", "n1"))
    assert wanted_gateways(facts) == set()  # the gate of subnets is off
    assert reported(facts) == ("", False)
    asked = EgressGateway("eth0", ROUTER, answers=True)
    assert wanted_gateways(facts) == {asked}
    facts.put(msgspec.structs.replace(asked, answers=False))
    engine = Engine(facts, UNITS)
    acts = engine.plan().acts
    (act,) = (one for one in acts if isinstance(one, RecordSilentGateway))
    assert any(isinstance(one, ReportSilence) for one in acts)
    assert found_silent(facts) == (f"{ROUTER}/24@0",)
    assert not [one for one in engine.standing().values() if isinstance(one, Link)]
    assert act.message.startswith(
        f"gateway {ROUTER} does not answer Node n1 on eth0: the switch port of the Node has to have a cable"
    )
    assert reported(facts) == (f"{ROUTER}/24@0", False)


def test_a_node_that_the_gateway_does_not_answer_comes_last_for_pools_of_that_subnet_alone() -> None:
    facts = Facts()
    for row in (
        ThisNode("n1"),
        wide_pool("p", (), ROUTER, 24, 181), wide_pool("other", (), ROUTER, 24, 182), wide_pool("flat", (), ROUTER, 24),
        wide_pool("untagged", (), ROUTER, 25),
        AgentNode("n1", (), (), silent=(SUBNET, f"{ROUTER}/25@0")), AgentNode("n2", (), ()), GossipMember("n2", alive=True),
    ):  # fmt: skip
        facts.put(row)
    engine = Engine(facts, POOL_MEMBERS.units)
    engine.plan()
    found = {row.pool: (row.nodes, row.cordoned) for row in facts.all(PoolMembers)}
    both = (("n1", "n2"), ())
    assert found == {"p": (("n2",), ("n1",)), "other": both, "flat": both, "untagged": (("n2",), ("n1",))}
    assert cause(facts, "p", (), "n2", "n1").why == "dead: never heard"
    facts.put(GossipMember("n1", alive=True))
    engine.plan()
    assert cause(facts, "p", (), "n2", "n1").why == f"gateway: {ROUTER} does not answer it in VLAN 181"
    assert cause(facts, "untagged", (), "n2", "n1").why == f"gateway: {ROUTER} does not answer it"
    # what the Node sends by gossip is newer, whatever its annotation says
    facts.put(SilenceReport("n1", (f"{ROUTER}/24@182",)))
    engine.plan()
    found = {row.pool: (row.nodes, row.cordoned) for row in facts.all(PoolMembers)}
    assert found == {"p": both, "other": (("n2",), ("n1",)), "flat": both, "untagged": both}
