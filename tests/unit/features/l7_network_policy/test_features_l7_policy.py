"""Flows of rules with application protocols: closed without an engine, through it with one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest
from policy_world import ANY, CONFIG, NODE, applied, interface, member, native, port, rule

from antrea.apis import controlplane as cp
from antrea.engine import Engine, Facts
from antrea.facts.ovs import OvsPort
from antrea.features.framework.agent_feature import Families, RealizedPipeline
from antrea.features.framework.gate import EnabledGates
from antrea.features.l7_network_policy import agent as l7
from antrea.features.l7_network_policy.agent import FEATURE as L7
from antrea.features.l7_network_policy.agent import fair_share
from antrea.features.network_policy.agent.feature import FEATURE as POLICY
from antrea.features.network_policy.agent.received import SentPolicy
from antrea.features.network_policy.agent.rule import PolicyRule
from antrea.features.network_policy.agent.unrealized import refused_entries, why_not
from antrea.features.network_policy.l7.configuration import LAST_TENANT, TAPS
from antrea.features.network_policy.l7.tenant import (
    GATE,
    MAX_OLD_VERSIONS,
    NAMESPACE_SHARE,
    POOL,
    L7Engine,
    LoadedTenant,
    Tenant,
    UsedVlan,
)
from antrea.features.pod_connectivity.agent import FEATURE as CONNECTIVITY
from antrea.openflow.flow import Flow
from antrea.openflow.pipeline import Pipeline

if TYPE_CHECKING:
    from antrea.facts.fact import Fact

FEATURES = (CONNECTIVITY, POLICY, L7)
PIPELINE = Pipeline.realize(
    table for one in FEATURES for table in one.tables_of(CONFIG, Families(ipv4=True, ipv6=True))
)
GATES = EnabledGates("agent", frozenset({GATE}))
PUBLIC = (cp.L7Protocol(http=cp.HTTPProtocol(path="/public")),)
PORTS = [
    OvsPort(name, "l7-network-policy", number, "0a:00:00:00:00:01") for number, name in enumerate(TAPS, 40)
]
RULE = rule("In", ANY, action="Allow", l7_protocols=PUBLIC, name="r")
ROWS: tuple[Fact, ...] = (
    NODE, CONFIG, RealizedPipeline(PIPELINE), *PORTS, interface("web", 5), *applied("g", member("web")),
)  # fmt: skip


class Agent:
    def __init__(self, *rows: Fact) -> None:
        self.facts = Facts()
        for feature in FEATURES:
            for pool, low, high in feature.ranks:
                self.facts.ids.between(pool, low, high)
            for pool, most in feature.limits:
                self.facts.ids.limit(pool, most)
        for row in (*ROWS, *rows):
            self.facts.put(row)
        self.engine = Engine(self.facts, [unit for one in (POLICY, L7) for unit in one.units])
        self.engine.plan()

    def put(self, *rows: Fact) -> None:
        for row in rows:
            self.facts.put(row)
        self.engine.plan()

    def flows(self, *words: str) -> list[str]:
        """Those with all of these words, without what every Node has."""
        found = [one.named(PIPELINE) for one in self.engine.standing().values() if isinstance(one, Flow)]
        return sorted(line for line in found if all(word in line for word in words))

    def load(self, vlan: int, since: int = 1, outdated: str = "") -> None:
        """As the engine does that a tenant is for."""
        (tenant,) = (one for one in self.tenants() if one.vlan == vlan)
        self.put(LoadedTenant(vlan, tenant.rule, tenant.version, since, outdated))

    def tenants(self) -> list[Tenant]:
        return [one for one in self.engine.standing().values() if isinstance(one, Tenant)]

    def why_not(self) -> str:
        (found,) = self.facts.all(PolicyRule)
        return why_not(self.facts, refused_entries(self.facts), found)


def test_a_rule_is_closed_until_its_tenant_is_loaded_and_again_when_the_engine_ends() -> None:
    agent = Agent(GATES, native("p", "g", RULE))
    (tenant,) = agent.tenants()
    assert (tenant.vlan, "http" in tenant.signatures) == (1, True)
    assert agent.flows("conj_id=", "ct(commit") == []
    assert "has not loaded the rule yet" in agent.why_not()
    agent.put(L7Engine("no container"))
    assert agent.why_not().startswith("no container: its requests are not judged")
    agent.put(L7Engine())
    agent.load(1)
    (v4, v6) = agent.flows("conj_id=", "ct(commit")
    for line in (v4, v6):
        assert "set_field:0x80/0x80->ct_mark" in line
        assert "set_field:0x10000000000000000/0xfff0000000000000000->ct_label" in line
    assert agent.why_not() == ""
    agent.load(1, outdated="refused: judged as before")
    assert agent.why_not() == "refused: judged as before"
    agent.facts.drop(LoadedTenant, "1")
    agent.engine.plan()
    assert agent.flows("conj_id=", "ct(commit") == []


def test_packets_are_tracked_twice_only_while_a_rule_needs_it() -> None:
    agent = Agent(GATES)
    assert agent.flows("antrea") == agent.flows("push_vlan") == agent.flows("table=ConntrackZone") == []
    agent.put(native("p", "g", RULE))
    to_engine = agent.flows("push_vlan")
    assert len(to_engine) == 6
    assert all("output:40" in line and "table=Output" in line for line in to_engine)
    assert len(agent.flows("pop_vlan")) == 3
    (again,) = agent.flows("dl_vlan_pcp=1")
    assert "in_port=41" in again, "what came back by the second port goes to the first once more"
    assert "output:40" in again
    assert len(agent.flows("table=ConntrackZone")) == 8


VLAN_1, VLAN_2 = ("set_field:0x10000000000000000/", "set_field:0x20000000000000000/")


def test_an_edited_rule_has_a_tenant_for_new_connections_and_keeps_that_of_others() -> None:
    agent = Agent(GATES, native("p", "g", RULE))
    agent.load(1)
    other = (cp.L7Protocol(tls=cp.TLSProtocol(sni="a.example")),)
    agent.put(native("p", "g", msgspec.structs.replace(RULE, l7_protocols=other)))
    before, new = sorted(agent.tenants(), key=lambda one: one.vlan)
    assert [(one.vlan, one.is_old, "tls" in one.signatures) for one in (before, new)] == [
        (1, True, True),
        (2, False, True),
    ]
    assert all(VLAN_1 in line for line in agent.flows("conj_id=", "ct(commit")), (
        "until the other one is loaded"
    )
    agent.load(2, since=2)
    assert [VLAN_2 in line for line in agent.flows("conj_id=", "ct(commit")] == [True, True]
    assert agent.why_not() == ""
    agent.facts.drop(LoadedTenant, "1")
    agent.engine.plan()
    assert [one.vlan for one in agent.tenants()] == [2]


def test_another_rule_has_a_tenant_of_its_own() -> None:
    agent = Agent(GATES, native("p", "g", RULE), native("q", "g", RULE))
    assert sorted(one.vlan for one in agent.tenants()) == [1, 2]


@pytest.mark.parametrize("is_used", [False, True])
def test_a_vlan_that_connections_have_is_given_to_no_other_rule(is_used: bool) -> None:
    first, second = native("p", "g", RULE), native("q", "g", rule("In", ANY, l7_protocols=PUBLIC, name="s"))
    agent = Agent(GATES, first)
    (tenant,) = agent.tenants()
    if is_used:
        agent.put(UsedVlan(tenant.vlan, tenant.version))
    agent.facts.drop(type(first), first.key)
    agent.put()
    agent.put(second)
    assert [one.vlan for one in agent.tenants()] == [2 if is_used else 1]


def test_a_rule_is_closed_and_says_why_without_the_gate_and_with_too_many_protocols() -> None:
    agent = Agent(EnabledGates("agent", frozenset()), native("p", "g", RULE))
    assert agent.tenants() == []
    assert agent.why_not() == f"feature gate {GATE} is off: all that the rule names is dropped"
    many = tuple(cp.L7Protocol(http=cp.HTTPProtocol(path=f"/{number}" * 50)) for number in range(99))
    agent = Agent(GATES, native("p", "g", msgspec.structs.replace(RULE, l7_protocols=many)))
    assert agent.tenants() == []
    assert "state fewer in one rule" in agent.why_not()
    assert agent.flows("conj_id=", "ct(commit") == []


def test_without_its_ports_nothing_passes_uninspected() -> None:
    agent = Agent(GATES, native("p", "g", RULE))
    agent.load(1)
    agent.facts.drop(OvsPort, TAPS[0])
    agent.engine.plan()
    assert agent.flows("push_vlan") == []
    assert len(agent.flows("table=Output", "ct_mark=0x80/0x80", "actions=drop")) == 6


def test_a_rule_that_is_sent_as_several_has_a_tenant_for_each() -> None:
    """As one with peers in relation to Namespaces is: all of them have its name."""
    tls = msgspec.structs.replace(RULE, l7_protocols=(cp.L7Protocol(tls=cp.TLSProtocol(sni="a.example")),))
    agent = Agent(GATES, native("p", "g", RULE, tls))
    assert not agent.engine.errors.standing
    assert sorted(one.vlan for one in agent.tenants()) == [1, 2]


@pytest.mark.parametrize("action", ["Drop", "Reject", "Pass"])
def test_with_another_action_than_allow_what_the_rule_names_is_dropped_and_nothing_else(action: str) -> None:
    """Admission refuses such rules; without it, the Pod is not closed to what they do not name."""
    drop = msgspec.structs.replace(RULE, action=action, services=(port(80),))
    agent = Agent(GATES, native("p", "g", drop))
    assert (agent.tenants(), agent.why_not()) == ([], "")
    assert not agent.flows("table=AntreaPolicyIngressRule", "priority=64989")
    (verdict,) = agent.flows("table=AntreaPolicyIngressRule", "conj_id=")
    assert "set_field:0x400/0x400->reg0" in verdict


def paths(*names: str) -> list[cp.NetworkPolicyRule]:
    """A rule for each path."""
    return [
        rule(
            "In",
            ANY,
            action="Allow",
            name=name,
            l7_protocols=(cp.L7Protocol(http=cp.HTTPProtocol(path=f"/{name}")),),
        )
        for name in names
    ]


def of_namespace(name: str, namespace: str, *names: str) -> SentPolicy:
    found = native(name, "g", *paths(*names)).policy
    source = cp.NetworkPolicyReference(type="AntreaNetworkPolicy", namespace=namespace, name=name, uid=name)
    return SentPolicy(msgspec.structs.replace(found, source_ref=source))


def reasons(agent: Agent) -> dict[str, str]:
    """Why rules are not inspected, by the path that they name."""
    return {
        one.l7_protocols[0].http.path or "": why_not(agent.facts, refused_entries(agent.facts), one)
        for one in agent.facts.all(PolicyRule)
        if one.l7_protocols[0].http
    }


def test_a_namespace_with_many_rules_takes_no_tenants_of_others() -> None:
    many = [f"n{number:04}" for number in range(NAMESPACE_SHARE)]
    agent = Agent(GATES, of_namespace("a", "shop", *many), of_namespace("z", "shop", "last"))
    assert len(agent.tenants()) == NAMESPACE_SHARE
    assert f"Namespace shop has {NAMESPACE_SHARE} rules with l7Protocols" in reasons(agent)["/last"]
    assert "the L7 engine has not loaded the rule yet" in reasons(agent)[f"/{many[-1]}"]
    # neither another Namespace nor an administrator has to wait for it
    agent.put(of_namespace("other", "db", "theirs"), native("admin", "g", *paths("all")))
    assert len(agent.tenants()) == NAMESPACE_SHARE + 2
    assert all("Namespace" not in reasons(agent)[path] for path in ("/theirs", "/all"))
    # a place that becomes free is that of the rule which waits
    agent.put(of_namespace("a", "shop", *many[:-1]))
    assert len(agent.tenants()) == NAMESPACE_SHARE + 2
    assert "Namespace" not in reasons(agent)["/last"]


@pytest.mark.parametrize(
    ("needs", "total", "most"),
    [
        ([], 5, 0),
        ([5], 5, 5),
        ([1, 2, 9, 9], 10, 3),
        ([4, 4, 4], 10, 3),
        ([1, 1, 1], 2, 0),
        ([1, 100], 10, 9),
    ],
)
def test_a_share_cuts_those_who_need_most(needs: list[int], total: int, most: int) -> None:
    assert fair_share(needs, total) == most
    assert sum(min(need, most) for need in needs) <= total


def test_a_user_with_many_namespaces_takes_no_tenants_of_a_namespace_with_few_rules_nor_of_administrators(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(l7, "ALL_NAMESPACES_SHARE", 9)
    greedy = [
        of_namespace(f"p{space}", f"mine{space}", *(f"{space}-{n}" for n in range(6))) for space in "abc"
    ]
    agent = Agent(GATES, *greedy)
    assert len(agent.tenants()) == 9
    agent.put(of_namespace("z", "victim", "theirs"), native("admin", "g", *paths("all")))
    told = reasons(agent)
    assert "has not loaded the rule yet" in told["/theirs"]
    assert "has not loaded the rule yet" in told["/all"]
    assert len(agent.tenants()) == 3 * 2 + 1 + 1
    closed = [why for path, why in told.items() if path.startswith("/a-") and "Namespace" in why]
    assert len(closed) == 4
    assert closed[0].startswith("Namespace minea has 2 rules with l7Protocols")
    assert "as many as one Namespace can have while all need more than" in closed[0]
    for space in "bc":
        agent.facts.drop(SentPolicy, f"p{space}")
    agent.engine.plan()
    assert len(agent.tenants()) == 6 + 1 + 1


def test_a_rule_for_which_no_tenant_is_left_is_closed_and_names_that() -> None:
    agent = Agent(GATES)
    agent.facts.ids.limit(POOL, 1)
    agent.put(native("p", "g", *paths("one")))
    agent.load(1)
    agent.put(native("q", "g", *paths("two")))
    assert f"all {LAST_TENANT} tenants of the L7 engine are in use" in reasons(agent)["/two"]
    assert agent.engine.errors.standing == {}
    agent.facts.drop(SentPolicy, "p")
    agent.engine.plan()
    agent.facts.drop(LoadedTenant, "1")
    agent.engine.plan()
    assert "has not loaded the rule yet" in reasons(agent)["/two"]


def test_a_rule_that_is_edited_on_and_on_has_a_bounded_number_of_tenants() -> None:
    agent = Agent(GATES)
    for number in range(MAX_OLD_VERSIONS + 5):
        [text] = paths("x")
        [protocol] = paths(f"edit{number}")
        agent.put(native("p", "g", msgspec.structs.replace(text, l7_protocols=protocol.l7_protocols)))
        for tenant in agent.tenants():
            if agent.facts.get(LoadedTenant, str(tenant.vlan)) is None:
                agent.put(LoadedTenant(tenant.vlan, tenant.rule, tenant.version, number))
    assert len(agent.tenants()) <= MAX_OLD_VERSIONS + 1
