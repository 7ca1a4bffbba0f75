"""Rules on Services: what they match, before kube-proxy has a packet, and how they follow the Services."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from policy_world import (
    CONFIG,
    NODE,
    addresses,
    applied,
    interface,
    member,
    native,
    peer,
    policy,
    port,
    rule,
)

from antrea.apis import controlplane as cp
from antrea.apis import core
from antrea.apis.policy_report import PolicyReport
from antrea.engine import Engine, Facts
from antrea.facts.ovs import OvsPort
from antrea.facts.service import Service
from antrea.facts.unrealized import Unrealized
from antrea.features.framework.agent_feature import Families, RealizedPipeline
from antrea.features.network_policy.agent.connection_flush import InspectConnections
from antrea.features.network_policy.agent.feature import FEATURE
from antrea.features.network_policy.agent.received import SentPolicy
from antrea.features.network_policy.agent.service import SERVICES, SaveState, lacking_services, named_services
from antrea.features.pod_connectivity.agent import FEATURE as POD_CONNECTIVITY
from antrea.features.proxy.agent import KUBE_PROXY as PROXY
from antrea.features.proxy.service import service_row
from antrea.openflow.flow import Flow
from antrea.openflow.group import Group
from antrea.openflow.pipeline import Pipeline

if TYPE_CHECKING:
    from antrea.facts.fact import Fact

PIPELINE = Pipeline.realize(
    table
    for feature in (POD_CONNECTIVITY, PROXY, FEATURE)
    for table in feature.tables_of(CONFIG, Families.of(NODE.pod_cidrs))
)
GATEWAY = OvsPort("antrea-gw0", "gateway", 2, "0a:00:00:00:00:02")
POD = (interface("web", 7), *applied("g", member("web")))
WEB = Service("a", "web", ("10.96.0.10", "fd00:96::a"), (("TCP", 80), ("UDP", 53)))
TWIN = Service("a", "twin", ("10.96.0.11",), (("TCP", 80),))


def to(*names: str) -> cp.NetworkPolicyPeer:
    return cp.NetworkPolicyPeer(
        to_services=tuple(cp.ServiceReference(name=name, namespace="a") for name in names)
    )


def world(*rows: Fact) -> tuple[Facts, Engine]:
    facts = Facts()
    for pool, low, high in FEATURE.ranks:
        facts.ids.between(pool, low, high)
    for row in (CONFIG, NODE, GATEWAY, RealizedPipeline(PIPELINE), *POD, *rows):
        facts.put(row)
    return facts, Engine(facts, FEATURE.units)


def texts(entries: Any) -> set[str]:
    """Flows, with N for each priority that is given by order."""
    named = (entry.named(PIPELINE) for entry in entries if isinstance(entry, Flow))
    return {re.sub(r"(?<=priority=)(?!1?[29][01]0[0,])\d+", "N", line) for line in named}


def made(*rows: Fact) -> set[str]:
    _, idle = world()
    idle.plan()
    _, engine = world(*rows)
    engine.plan()
    assert not engine.errors.standing
    return texts(engine.standing().values()) - texts(idle.standing().values())


SENDER = (
    "table=DNAT,priority=N,ip,reg4=0x0/0x80000000,nw_src=10.10.0.7 actions=conjunction(2,1/2)",
    "table=DNAT,priority=N,ipv6,reg4=0x0/0x80000000,ipv6_src=fd00:10::7 actions=conjunction(2,1/2)",
)
RECEIVERS = (
    "table=DNAT,priority=N,tcp,nw_dst=10.96.0.10,tp_dst=80 actions=conjunction(2,2/2)",
    "table=DNAT,priority=N,udp,nw_dst=10.96.0.10,tp_dst=53 actions=conjunction(2,2/2)",
    "table=DNAT,priority=N,tcp6,ipv6_dst=fd00:96::a,tp_dst=80 actions=conjunction(2,2/2)",
    "table=DNAT,priority=N,udp6,ipv6_dst=fd00:96::a,tp_dst=53 actions=conjunction(2,2/2)",
)
DROPPED = (
    "table=DNAT,priority=N,conj_id=2 actions=set_field:0x2->reg3,set_field:0x400/0x400->reg0,goto_table:EgressMetric",
    "table=EgressMetric,priority=200,reg0=0x400/0x400,reg3=0x2 actions=drop",
)


def test_a_service_is_its_addresses_each_with_its_ports_before_kube_proxy_has_the_packet() -> None:
    assert made(native("p", "g", rule("Out", to("web"), action="Drop")), WEB, TWIN) == {
        *SENDER,
        *RECEIVERS,
        *DROPPED,
    }


def test_a_service_that_is_not_there_is_matched_by_nothing() -> None:
    assert made(native("p", "g", rule("Out", to("gone"), action="Drop")), WEB) == {*SENDER, *DROPPED}


def test_what_is_allowed_leaves_by_the_gateway_at_once_where_all_packets_to_services_do() -> None:
    found = made(native("p", "g", rule("Out", to("web"), action="Allow")), WEB)
    label = "ct_label=0x200000000/0xffffffff00000000"
    by_gateway = "set_field:0x2->reg1,set_field:0x200000/0x600000->reg0,goto_table:ConntrackCommit"
    assert {line for line in found if line.startswith("table=EgressMetric")} == {
        f"table=EgressMetric,priority=210,ct_state=+new,{label},ip,nw_dst=10.96.0.0/12 actions={by_gateway}",
        *(
            f"table=EgressMetric,priority=200,ct_state={state},{label},{family} actions=goto_table:L3Forwarding"
            for state in ("+new", "-new")
            for family in ("ip", "ipv6")
        ),
    }


def test_what_is_passed_on_meets_the_rules_of_the_baseline_and_they_match_it() -> None:
    found = made(
        native("p", "g", rule("Out", to("web"), action="Pass")),
        native("b", "g", rule("Out", to("web"), action="Drop"), tier=253),
        WEB,
    )
    passed = "set_field:0x2->reg5,set_field:0x80000000/0x80000000->reg4,resubmit(,DNAT)"
    senders = {line for line in found if "src=" in line and "ipv6" not in line}
    assert f"table=DNAT,priority=N,conj_id=2 actions={passed}" in found
    assert senders == {SENDER[0], "table=DNAT,priority=N,ip,nw_src=10.10.0.7 actions=conjunction(3,1/2)"}


def test_a_pod_that_kubernetes_isolates_is_in_no_rule_on_services_of_the_baseline() -> None:
    late = native("b", "g", rule("Out", to("web"), action="Drop"), tier=253)
    closed = policy("closed", "g", rule("Out", peer()))
    assert any("nw_src=10.10.0.7" in line for line in made(late, WEB))
    assert not any(line.startswith("table=DNAT") and "_src=" in line for line in made(late, closed, WEB))
    entered = policy("entered", "g", rule("In", peer()))
    assert any(line.startswith("table=DNAT") and "_src=" in line for line in made(late, entered, WEB))


def test_the_log_names_the_table_of_the_tier() -> None:
    for tier, table in ((250, "AntreaPolicyEgressRule"), (253, "EgressDefaultRule")):
        for action in ("Allow", "Drop", "Reject", "Pass") if tier == 250 else ("Allow", "Drop", "Reject"):
            stated = msgspec.structs.replace(rule("Out", to("web"), action=action), enable_logging=True)
            found = made(native("p", "g", stated, tier=tier), WEB)
            (verdict,) = {line for line in found if "conj_id=" in line and ",ipv6" not in line}
            assert f"set_field:{PIPELINE.id(table):#x}/0xff->reg2" in verdict, action


def test_a_logged_pass_goes_on_among_rules_on_services_while_the_agent_gets_a_copy() -> None:
    stated = msgspec.structs.replace(rule("Out", to("web"), action="Pass"), enable_logging=True)
    _, engine = world(native("p", "g", stated), WEB)
    engine.plan()
    groups = {one.id: one for one in engine.standing().values() if isinstance(one, Group)}
    (verdict,) = {line for line in texts(engine.standing().values()) if "conj_id=" in line}
    last = groups[int(verdict.rpartition("group:")[2])]
    assert last.buckets[0].actions == ("resubmit(,{DNAT})",)


def test_a_change_of_a_service_costs_its_own_flows() -> None:
    facts, engine = world(native("p", "g", rule("Out", to("web", "twin"), action="Drop")), WEB, TWIN)
    engine.plan()
    facts.put(msgspec.structs.replace(WEB, ports=(("TCP", 81), ("UDP", 53))))
    plan = engine.plan()
    new = {re.sub("tp_dst=80", "tp_dst=81", line) for line in RECEIVERS if "tcp" in line}
    assert texts(plan.put) == new
    assert texts(plan.drop) == {line for line in RECEIVERS if "tcp" in line}
    facts.drop(Service, "a/web")
    plan = engine.plan()
    assert (len(texts(plan.put)), len(texts(plan.drop))) == (0, 4)
    facts.put(WEB)
    assert texts(engine.plan().put) == {*RECEIVERS}


def test_names_of_ports_stand_for_nothing_at_a_service() -> None:
    """No such rule is admitted; one that is there all the same is for the ports that it has in numbers."""
    stated = rule("Out", to("web"), port("http"), port(80), action="Drop")
    assert "table=DNAT,priority=N,tcp,tp_dst=80 actions=conjunction(2,3/3)" in made(
        native("p", "g", stated), WEB, *addresses("x")
    )
    assert not made(native("p", "g", rule("Out", to("web"), port("http"), action="Drop")), WEB)


def test_what_the_switch_refuses_of_a_service_closes_the_pods_of_rules_that_forbid_by_it() -> None:
    stated = native("p", "g", rule("Out", to("web"), action="Drop", name="no-web"))
    facts, engine = world(stated, WEB)
    engine.plan()
    facts.put(Unrealized(SERVICES.name, "a/web", "it has no room"))
    found = engine.plan()
    assert texts(found.put) == {
        f"table=DNAT,priority=N,{family} actions=drop"
        for family in ("ip,nw_src=10.10.0.7", "ipv6,ipv6_src=fd00:10::7")
    }
    assert [one.failure for one in found.put if isinstance(one, PolicyReport)] == ["no-web: it has no room"]


def test_a_policy_that_cuts_looks_again_when_a_service_changes() -> None:
    cutting = native("p", "g", rule("Out", to("web"), action="Drop"))
    meta = msgspec.structs.replace(cutting.policy.metadata, annotations={"antrea.io/on-deny": "flush"})
    facts, engine = world(SentPolicy(msgspec.structs.replace(cutting.policy, metadata=meta)), WEB)

    def looks() -> int:
        return sum(isinstance(act, InspectConnections) for act in engine.plan().acts)

    assert looks() == 1
    facts.put(TWIN)
    assert looks() == 0
    facts.put(msgspec.structs.replace(WEB, ports=(("TCP", 81),)))
    assert looks() == 1


def test_services_that_policies_name_are_kept_and_waited_for() -> None:
    facts, engine = world(WEB, TWIN)
    assert not [act for act in engine.plan().acts if isinstance(act, SaveState)]
    assert not lacking_services(facts)
    facts.put(native("p", "g", rule("Out", to("web", "gone"), action="Drop")))
    assert [act.key for act in engine.plan().acts if isinstance(act, SaveState)] == ["a/web"]
    assert named_services(facts) == [WEB]
    assert lacking_services(facts)
    facts.synced(Service)
    assert not lacking_services(facts)


PORTS = [{"port": 80, "protocol": "TCP"}]


@pytest.mark.parametrize(
    ("spec", "ingress", "ips"),
    [
        ({"clusterIPs": ["10.96.0.10", "fd00:96::a"]}, [], ("10.96.0.10", "fd00:96::a")),
        ({"clusterIPs": ["10.96.0.10"], "externalIPs": ["FD00::1", "::ffff:192.0.2.1", "010.0.0.1", "010.0.0.300"]}, [], ("10.96.0.10", "fd00::1", "192.0.2.1", "10.0.0.1")),
        ({"clusterIPs": ["10.96.0.10"]}, [{"ip": "192.0.2.7"}, {"hostname": "lb"}, {"ip": "192.0.2.8", "ipMode": "Proxy"}], ("10.96.0.10", "192.0.2.7")),
        ({"clusterIPs": ["None"], "externalIPs": ["192.0.2.1"]}, [], ()),
        ({"type": "ExternalName", "externalIPs": ["192.0.2.1"]}, [], ()),
        ({}, [], ()),
    ],
)  # fmt: skip
def test_a_service_has_the_addresses_at_which_kube_proxy_serves_it(
    spec: dict[str, Any], ingress: list[dict[str, str]], ips: tuple[str, ...]
) -> None:
    found = {
        "metadata": {"namespace": "a", "name": "web"},
        "spec": {"ports": PORTS, **spec},
        "status": {"loadBalancer": {"ingress": ingress}},
    }
    row = service_row(msgspec.convert(found, core.Service))
    external = tuple(ip for ip in ips if ip not in found["spec"].get("clusterIPs", ()))
    wanted = Service(
        "a",
        "web",
        ips,
        (("TCP", 80),),
        external_ips=external,
        port_names=("",),
        node_ports=(0,),
        load_balancer_ips=external if ingress else (),
    )
    assert row == (wanted if ips else None)
