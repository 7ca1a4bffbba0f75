"""Rules for NodePorts: their flows, whom they close, and what a Node reports that does not judge NodePorts."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec
import pytest
from policy_world import ANY, NODE, applied, block, interface, member, native, peer, port, rule
from policy_world import CONFIG as BASE

from antrea.apis import controlplane as cp
from antrea.apis.annotation import AUDIT, ENFORCEMENT
from antrea.apis.crd.network_policy import AppliedTo, ClusterNetworkPolicySpec, Rule
from antrea.apis.crd.part import NamespacedName
from antrea.apis.policy_report import PolicyReport
from antrea.config.agent_sections import AntreaProxy
from antrea.engine import Engine, Facts, Unit
from antrea.facts.service import Service, ServicePort
from antrea.facts.unrealized import Unrealized
from antrea.features.framework.agent_feature import Families, RealizedPipeline
from antrea.features.framework.gate import EnabledGates
from antrea.features.network_policy.agent.feature import FEATURE
from antrea.features.network_policy.agent.node_port import NODE_PORTS
from antrea.features.network_policy.agent.received import SentAppliedMember, SentPolicy
from antrea.features.network_policy.agent.service_target import PROXY_ALL_OFF
from antrea.features.network_policy.audit_mode import AuditMode
from antrea.features.network_policy.controller.unbuilt import unjudged_parts
from antrea.features.pod_connectivity.agent import FEATURE as POD_CONNECTIVITY
from antrea.features.proxy.agent import FEATURE as PROXY
from antrea.features.proxy.service import service_ports
from antrea.openflow.flow import Flow
from antrea.openflow.pipeline import Pipeline

if TYPE_CHECKING:
    from antrea.config.agent import AgentConfig
    from antrea.facts.fact import Fact

CONFIG = msgspec.structs.replace(BASE, antrea_proxy=AntreaProxy(proxy_all=True))
WEB = Service(
    "shop", "web", ("10.96.0.10", "fd00:96::a"), (("TCP", 80),), port_names=("",), node_ports=(30080,)
)
MEMBER = SentAppliedMember("svc", cp.GroupMember(service=cp.ServiceReference(name="web", namespace="shop")))
OUTSIDE = peer(blocks=(block("203.0.113.0/24"), block("2001:db8::/32")))
DROP = native("p", "svc", rule("In", OUTSIDE, port(8080), action="Drop", name="deny"))


def world(*rows: Fact, config: AgentConfig = CONFIG) -> tuple[Facts, Engine]:
    facts = Facts()
    pipeline = Pipeline.realize(
        table
        for feature in (POD_CONNECTIVITY, PROXY, FEATURE)
        for table in feature.tables_of(config, Families.of(NODE.pod_cidrs))
    )
    for pool, low, high in FEATURE.ranks:
        facts.ids.between(pool, low, high)
    gates = EnabledGates("agent", frozenset({"AntreaProxy", "AntreaPolicy"}))
    for row in (config, NODE, gates, RealizedPipeline(pipeline), *rows):
        facts.put(row)
    return facts, Engine(facts, (*FEATURE.units, Unit(Service, service_ports, yields=(ServicePort,))))


def texts(facts: Facts, engine: Engine) -> list[str]:
    engine.plan()
    assert not engine.errors.standing
    pipeline = facts.get(RealizedPipeline)
    assert pipeline is not None
    return sorted(one.named(pipeline.pipeline) for one in engine.standing().values() if isinstance(one, Flow))


def test_a_rule_matches_the_node_port_by_mark_and_group_and_clients_by_the_connection() -> None:
    facts, engine = world(WEB, MEMBER, DROP)
    found = [line for line in texts(facts, engine) if "conj" in line]
    groups = [facts.ids.number("group", f"service shop/web:80/TCP {one} cluster") for one in ("IPv4", "IPv6")]
    wanted = [
        "reg4=0x80000/0x80000,reg7=" + f"{groups[0]:#x} actions=conjunction(2,2/3)",
        "reg4=0x80000/0x80000,reg7=" + f"{groups[1]:#x} actions=conjunction(2,2/3)",
        "ct_state=+new,ct_nw_src=203.0.113.0/24,ip actions=conjunction(2,1/3)",
        "ct_state=+new,ct_ipv6_src=2001:db8::/32,ipv6 actions=conjunction(2,1/3)",
        "tcp,tp_dst=8080 actions=conjunction(2,3/3)",
        "tcp6,tp_dst=8080 actions=conjunction(2,3/3)",
    ]
    clauses = [line for line in found if "actions=conjunction(" in line]
    assert all(line.startswith("table=AntreaPolicyIngressRule,") for line in clauses)
    assert sorted(re.sub(r"^.*?priority=\d+,", "", line) for line in clauses) == sorted(wanted)


def test_of_a_rule_that_names_a_port_the_numbers_count() -> None:
    """A Service gives no numbers to names; the rest of the rule was lost with them, and a Drop let everything in."""
    mixed = native("p", "svc", rule("In", OUTSIDE, port("http"), port(8080), action="Drop", name="deny"))
    found = [line for line in texts(*world(WEB, MEMBER, mixed)) if "conjunction(" in line]
    ports = [re.sub(r"^.*?priority=\d+,", "", line) for line in found if "tp_dst" in line]
    assert sorted(one.partition(" ")[0] for one in ports) == ["tcp,tp_dst=8080", "tcp6,tp_dst=8080"]
    assert any("ct_nw_src=203.0.113.0/24" in line for line in found)
    assert sum("reg7=" in line for line in found) == 2


def test_connections_to_node_ports_go_to_the_rules_before_they_leave_the_node() -> None:
    line = "table=IngressSecurityClassifier,priority=201,reg4=0x80000/0x80000 actions=goto_table:AntreaPolicyIngressRule"
    assert line in texts(*world())
    off = msgspec.structs.replace(CONFIG, antrea_proxy=AntreaProxy())
    assert not any("reg4=0x80000" in one for one in texts(*world(config=off)))


def reports(facts: Facts, engine: Engine) -> list[str]:
    engine.plan()
    return [one.failure for one in engine.standing().values() if isinstance(one, PolicyReport)]


def test_a_node_that_does_not_serve_the_node_ports_reports_that_the_policy_is_not_enforced() -> None:
    assert reports(*world(WEB, MEMBER, DROP)) == [""]
    off = msgspec.structs.replace(CONFIG, antrea_proxy=AntreaProxy())
    assert reports(*world(WEB, MEMBER, DROP, config=off)) == [f"deny: {PROXY_ALL_OFF}"]
    skipped = msgspec.structs.replace(
        CONFIG, antrea_proxy=AntreaProxy(proxy_all=True, skip_services=("shop/web",))
    )
    why = "deny: AntreaProxy leaves the NodePorts of Service shop/web to another proxy"
    assert reports(*world(WEB, MEMBER, DROP, config=skipped)) == [why]


@pytest.mark.parametrize(("action", "closes"), [("Drop", True), ("Reject", True), ("Allow", False)])
def test_node_ports_are_closed_where_the_switch_refuses_a_rule_that_forbids(
    action: str, closes: bool
) -> None:
    facts, engine = world(WEB, MEMBER, native("p", "svc", rule("In", OUTSIDE, action=action)))
    engine.plan()
    facts.put(Unrealized(NODE_PORTS.name, "shop/web", "too many"))
    drops = [line for line in texts(facts, engine) if "AntreaPolicyIngressRule,priority=64989" in line]
    assert len(drops) == (2 if closes else 0)
    assert all("reg4=0x80000/0x80000,reg7=" in line and line.endswith("actions=drop") for line in drops)
    assert reports(facts, engine) == ["too many"]


def test_a_rule_follows_the_service() -> None:
    facts, engine = world(MEMBER, DROP)
    assert not [line for line in texts(facts, engine) if "reg7=" in line]
    facts.put(WEB)
    assert len([line for line in texts(facts, engine) if "reg7=" in line]) == 2
    facts.put(msgspec.structs.replace(WEB, node_ports=(0,)))
    assert not [line for line in texts(facts, engine) if "reg7=" in line]
    facts.put(msgspec.structs.replace(WEB, external_local=True))
    assert len([line for line in texts(facts, engine) if "reg7=" in line]) == 4
    facts.drop(Service, WEB.key)
    assert not [line for line in texts(facts, engine) if "reg7=" in line]


def audited(found: SentPolicy) -> SentPolicy:
    metadata = msgspec.structs.replace(found.policy.metadata, annotations={ENFORCEMENT: AUDIT})
    return SentPolicy(msgspec.structs.replace(found.policy, metadata=metadata))


def test_an_audited_rule_for_a_service_is_absent() -> None:
    facts, engine = world(WEB, MEMBER, audited(DROP))
    assert not [line for line in texts(facts, engine) if "reg7=" in line or "conj_id=" in line]
    spec = ClusterNetworkPolicySpec(
        priority=5,
        applied_to=(AppliedTo(service=NamespacedName(name="web", namespace="shop")),),
        ingress=(Rule(action="Drop", name="deny"),),
    )
    assert list(unjudged_parts(spec, AuditMode(whole=True))) == [
        "spec.ingress[0] is for a Service: the rule is neither enforced nor audited"
    ]


@pytest.mark.parametrize("action", ["Allow", "Reject"])
def test_copies_for_audited_rules_of_a_pod_are_neither_committed_nor_answered(action: str) -> None:
    """Where an audited rule passed a copy on to a Reject of the baseline, the client was answered though it was let in."""
    logged = msgspec.structs.replace(rule("In", OUTSIDE, action=action), enable_logging=True)
    facts, engine = world(
        *(WEB, MEMBER, native("p", "svc", logged, tier=253)),
        *(interface("web", 7), *applied("g", member("web"))),
    )
    assert not any("reg0=0x8000/0x8000" in line for line in texts(facts, engine))
    facts.put(audited(native("q", "g", rule("In", ANY, action="Pass"))))
    (copies,) = (line for line in texts(facts, engine) if "conj_id=2,reg0=0x8000/0x8000" in line)
    assert copies.startswith("table=IngressDefaultRule,priority=")
    if action == "Allow":
        assert copies.endswith("actions=drop")
    else:
        assert ("userdata" in copies, "set_field:0x2000000/0xfe000000->reg0" in copies) == (False, True)
