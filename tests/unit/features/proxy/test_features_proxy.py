"""Services and EndpointSlices as rows, and what AntreaProxy makes of them: text of flows and groups, family by family."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Literal

import msgspec
import pytest

from antrea.apis import core
from antrea.apis.discovery import EndpointSlice
from antrea.config.agent import AgentConfig
from antrea.config.agent_sections import AntreaProxy
from antrea.engine import Engine, Facts, Unit
from antrea.facts.member import AgentNode
from antrea.facts.node import ThisNode
from antrea.facts.ovs import OvsPort
from antrea.facts.service import Service, ServiceEndpoint
from antrea.features.framework.agent_feature import Families, RealizedPipeline
from antrea.features.framework.gate import EnabledGates
from antrea.features.network_policy.agent.feature import FEATURE as POLICY
from antrea.features.pod_connectivity.agent import FEATURE as POD_CONNECTIVITY
from antrea.features.proxy.agent import FEATURE
from antrea.features.proxy.endpoint import endpoint_entries
from antrea.features.proxy.service import endpoint_rows, service_row
from antrea.openflow.flow import Flow
from antrea.openflow.group import Group
from antrea.openflow.pipeline import Pipeline

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

NODE = ThisNode("n1", ("10.10.0.0/24",), ("192.0.2.1",), ("192.0.2.1",))
PIPELINE = Pipeline.realize(
    table
    for one in (POD_CONNECTIVITY, POLICY, FEATURE)
    for table in one.tables_of(AgentConfig(), Families.of(NODE.pod_cidrs))
)
WEB = Service("a", "web", ("10.96.0.10",), (("TCP", 80),), port_names=("http",), node_ports=(0,))


def endpoint(ip: str, node: str = "n1", ready: bool = True) -> ServiceEndpoint:
    return ServiceEndpoint("a/web-1", "a/web", "http", "TCP", ip, 8080, node, ready, ready, not ready)


def world(
    *rows: Any, proxy: AntreaProxy | None = None, units: Iterable[Unit] = FEATURE.units
) -> tuple[Facts, Engine]:
    facts = Facts()
    config = AgentConfig(antrea_proxy=proxy or AntreaProxy())
    gateway = OvsPort("antrea-gw0", "gateway", 2, "0a:00:00:00:00:02")
    gates = EnabledGates("agent", frozenset({"AntreaProxy", "AntreaPolicy"}))
    for row in (config, NODE, gateway, gates, RealizedPipeline(PIPELINE), *rows):
        facts.put(row)
    return facts, Engine(facts, tuple(units))


def of_services(engine: Engine) -> list[str]:
    """Groups, and flows of single Services."""
    engine.plan()
    assert not engine.errors.standing, engine.errors.standing
    single = ("ServiceLB", "EndpointDNAT")
    return sorted(
        entry.named(PIPELINE)
        for entry in engine.standing().values()
        if isinstance(entry, Group)
        or (isinstance(entry, Flow) and entry.table in single and any("tcp" in one for one in entry.match))
    )


def test_a_service_is_a_flow_a_group_of_its_endpoints_and_a_translation_for_each() -> None:
    _, engine = world(WEB, endpoint("10.10.0.7"), endpoint("10.10.1.7", "n2"))
    assert of_services(engine) == [
        (
            "group_id=1,type=select,"
            "bucket=bucket_id:1,weight:100,actions=set_field:0xa0a0007->reg3,set_field:0x1f90/0xffff->reg4,resubmit(,EndpointDNAT),"
            "bucket=bucket_id:2,weight:100,actions=set_field:0x4000000/0x4000000->reg4,set_field:0xa0a0107->reg3,"
            "set_field:0x1f90/0xffff->reg4,resubmit(,EndpointDNAT)"
        ),
        (
            "table=EndpointDNAT,priority=200,tcp,reg3=0xa0a0007,reg4=0x21f90/0x7ffff actions="
            "ct(commit,table=AntreaPolicyEgressRule,zone=65520,nat(dst=10.10.0.7:8080),exec(set_field:0x10/0x10->ct_mark))"
        ),
        (
            "table=EndpointDNAT,priority=200,tcp,reg3=0xa0a0107,reg4=0x21f90/0x7ffff actions="
            "ct(commit,table=AntreaPolicyEgressRule,zone=65520,nat(dst=10.10.1.7:8080),exec(set_field:0x10/0x10->ct_mark))"
        ),
        (
            "table=ServiceLB,priority=200,tcp,reg4=0x10000/0x70000,nw_dst=10.96.0.10,tp_dst=80 actions=set_field:0x200/0x200->reg0,"
            "set_field:0x20000/0x70000->reg4,set_field:0x1->reg7,group:1"
        ),
    ]


def test_a_service_of_ipv6_has_upstreams_forms_with_affinity_too() -> None:
    """But for the Service's number, which learned flows keep here for rules on Services, and by which their Endpoint is looked up.

    Source: pkg/agent/openflow/client_test.go
    """
    six = msgspec.structs.replace(WEB, ips=("fd00:96::a",), affinity_seconds=100)
    dual = msgspec.structs.replace(NODE, pod_cidrs=(*NODE.pod_cidrs, "fd00:10::/64"))
    _, engine = world(dual, six, endpoint("fd00:10::7"))
    assert of_services(engine) == [
        (
            "group_id=1,type=select,bucket=bucket_id:1,weight:100,actions="
            "set_field:0xfd000010000000000000000000000007->xxreg3,set_field:0x1f90/0xffff->reg4,resubmit(,ServiceLB)"
        ),
        (
            "table=EndpointDNAT,priority=200,tcp6,reg4=0x21f90/0x7ffff,xxreg3=0xfd000010000000000000000000000007 actions="
            "ct(commit,table=AntreaPolicyEgressRule,zone=65510,nat(dst=[fd00:10::7]:8080),exec(set_field:0x10/0x10->ct_mark))"
        ),
        (
            "table=ServiceLB,priority=190,tcp6,reg4=0x30000/0x70000,ipv6_dst=fd00:96::a,tp_dst=80 actions="
            "learn(table=SessionAffinity,hard_timeout=100,priority=200,delete_learned,cookie=0x30000000001,eth_type=0x86dd,nw_proto=6,"
            "OXM_OF_TCP_DST[],NXM_NX_IPV6_DST[],NXM_NX_IPV6_SRC[],load:NXM_NX_REG4[0..15]->NXM_NX_REG4[0..15],"
            "load:NXM_NX_REG4[26]->NXM_NX_REG4[26],load:NXM_NX_XXREG3[]->NXM_NX_XXREG3[],load:0x4->NXM_NX_REG4[16..18],"
            "load:0x1->NXM_NX_REG0[9],load:NXM_NX_REG7[]->NXM_NX_REG7[]),set_field:0x20000/0x70000->reg4,goto_table:EndpointDNAT"
        ),
        (
            "table=ServiceLB,priority=200,tcp6,reg4=0x10000/0x70000,ipv6_dst=fd00:96::a,tp_dst=80 actions=set_field:0x200/0x200->reg0,"
            "set_field:0x30000/0x70000->reg4,set_field:0x1->reg7,group:1"
        ),
        (
            "table=ServiceLB,priority=200,tcp6,reg4=0x41f90/0x7ffff,reg7=0x1,xxreg3=0xfd000010000000000000000000000007 actions="
            "set_field:0x20000/0x70000->reg4,resubmit(,ServiceLB)"
        ),
    ]


def test_an_endpoint_of_two_services_stays_with_the_one_that_is_left() -> None:
    other = msgspec.structs.replace(WEB, name="other", ips=("10.96.0.11",))
    mine = endpoint("10.10.0.7")
    both = (mine, msgspec.structs.replace(mine, slice="a/other-1", service="a/other"))
    facts, engine = world(WEB, other, *both)
    found = of_services(engine)
    assert [sum(one.startswith(kind) for one in found) for kind in ("group_id", "table=EndpointDNAT")] == [
        2,
        1,
    ]
    facts.drop(ServiceEndpoint, mine.key)
    left = of_services(engine)
    assert [one for one in left if "EndpointDNAT,priority" in one] == [
        one for one in found if "EndpointDNAT,priority" in one
    ]
    assert sum("10.10.0.7" in one or "0xa0a0007->reg3" in one for one in left) == 2
    facts.drop(Service, "a/other")
    assert translated(engine) == set()


@pytest.mark.parametrize(
    ("datapath", "changes", "count"),
    [
        ("netdev", {}, 1),
        ("system", {}, 0),
        ("netdev", {"affinity_seconds": 100}, 0),
        ("netdev", {"consistent": True}, 0),
        ("netdev", {"ports": (("TCP", 80),)}, 0),
    ],
)
def test_fragments_of_udp_are_known_by_the_port_of_their_connection_where_they_have_none(
    datapath: Literal["system", "netdev"], changes: dict[str, Any], count: int
) -> None:
    service = msgspec.structs.replace(WEB, **{"ports": (("UDP", 80),), **changes})
    facts, engine = world(service, msgspec.structs.replace(endpoint("10.10.0.7"), protocol="UDP"))
    facts.put(AgentConfig(ovs_datapath_type=datapath))
    engine.plan()
    assert not engine.errors.standing
    found = [one for one in engine.standing().values() if isinstance(one, Flow) and "tp_dst=0" in one.match]
    assert [one.named(PIPELINE) for one in found] == [
        (
            "table=ServiceLB,priority=200,ct_state=+new+trk,ct_nw_proto=17,ct_tp_dst=80,udp,reg4=0x10000/0x70000,nw_dst=10.96.0.10,"
            "tp_dst=0 actions=set_field:0x200/0x200->reg0,set_field:0x20000/0x70000->reg4,set_field:0x1->reg7,group:1"
        )
    ] * count


def test_later_fragments_of_ipv6_are_translated_though_their_protocol_is_not_seen() -> None:
    six = msgspec.structs.replace(WEB, ips=("fd00:96::a",), ports=(("UDP", 80),))
    dual = msgspec.structs.replace(NODE, pod_cidrs=(*NODE.pod_cidrs, "fd00:10::/64"))
    facts, engine = world(dual, six, msgspec.structs.replace(endpoint("fd00:10::7"), protocol="UDP"))
    facts.put(AgentConfig(ovs_datapath_type="netdev"))
    engine.plan()
    found = [
        one for one in engine.standing().values() if isinstance(one, Flow) and "nw_proto=44" in one.match
    ]
    assert sorted(one.named(PIPELINE).partition(" actions")[0] for one in found) == [
        "table=EndpointDNAT,priority=200,ipv6,reg4=0x21f90/0x7ffff,xxreg3=0xfd000010000000000000000000000007,nw_proto=44",
        "table=ServiceLB,priority=200,ct_state=+new+trk,ct_nw_proto=17,ct_tp_dst=80,ipv6,reg4=0x10000/0x70000,ipv6_dst=fd00:96::a,nw_proto=44",
    ]


ZONED = AgentNode("n1", ("192.0.2.1",), ("192.0.2.1",), labels=(("topology.kubernetes.io/zone", "z1"),))


@pytest.mark.parametrize(
    ("zones", "used"),
    [
        ((("z1",), ("z2",)), {"10.10.0.7"}),
        ((("z1", "z2"), ("z2",)), {"10.10.0.7"}),
        ((("z2",), ("z3",)), {"10.10.0.7", "10.10.1.7"}),
        ((("z1",), ()), {"10.10.0.7", "10.10.1.7"}),
    ],
    ids=["one here", "one for both", "none here", "one without"],
)
def test_hints_choose_the_zone_of_the_node_where_all_have_them(
    zones: tuple[tuple[str, ...], tuple[str, ...]], used: set[str]
) -> None:
    here = msgspec.structs.replace(endpoint("10.10.0.7"), zones=zones[0])
    far = msgspec.structs.replace(endpoint("10.10.1.7", "n2"), zones=zones[1])
    _, engine = world(WEB, ZONED, here, far)
    assert translated(engine) == used


def test_an_unready_endpoint_without_hints_counts_for_nothing() -> None:
    here = msgspec.structs.replace(endpoint("10.10.0.7"), zones=("z1",))
    far = msgspec.structs.replace(endpoint("10.10.1.7", "n2"), zones=("z2",))
    _, engine = world(WEB, ZONED, here, far, endpoint("10.10.1.8", "n2", ready=False))
    assert translated(engine) == {"10.10.0.7"}


@pytest.mark.parametrize("gated", [False, True])
def test_hints_for_nodes_count_where_their_gate_is_on(gated: bool) -> None:
    here = msgspec.structs.replace(endpoint("10.10.0.7"), nodes=("n1",))
    far = msgspec.structs.replace(endpoint("10.10.1.7", "n2"), nodes=("n2",))
    facts, engine = world(WEB, ZONED, here, far)
    names = {"AntreaProxy", *(["PreferSameTrafficDistribution"] if gated else [])}
    facts.put(EnabledGates("agent", frozenset(names)))
    assert translated(engine) == ({"10.10.0.7"} if gated else {"10.10.0.7", "10.10.1.7"})


def translated(engine: Engine) -> set[str]:
    return set(re.findall(r"nat\(dst=([^:]*):", " ".join(of_services(engine))))


def test_the_last_endpoint_that_goes_leaves_a_group_that_rejects() -> None:
    facts, engine = world(WEB, one := endpoint("10.10.0.7"))
    of_services(engine)
    facts.drop(ServiceEndpoint, one.key)
    assert of_services(engine)[0] == (
        "group_id=1,type=select,bucket=bucket_id:0,weight:100,actions=set_field:0x4000/0x4000->reg0,resubmit(,EndpointDNAT)"
    )


@pytest.mark.parametrize(
    "skipped",
    [{"skip_services": ("a/web",)}, {"skip_services": ("10.96.0.10",)}, {"service_proxy_name": "x"}],
)
def test_services_that_are_left_to_others_have_no_flows(skipped: dict[str, Any]) -> None:
    _, engine = world(WEB, endpoint("10.10.0.7"), proxy=AntreaProxy(**skipped))
    assert of_services(engine) == []


def test_services_that_name_another_proxy_are_its_own() -> None:
    other = msgspec.structs.replace(WEB, proxy_name="other")
    assert of_services(world(other, endpoint("10.10.0.7"))[1]) == []
    named = AntreaProxy(service_proxy_name="other")
    assert len(of_services(world(other, endpoint("10.10.0.7"), proxy=named)[1])) == 3


def test_an_endpoint_of_another_protocol_is_none() -> None:
    other = msgspec.structs.replace(endpoint("10.10.0.7"), protocol="UDP")
    found = of_services(world(WEB, other)[1])
    assert [one.partition(",weight")[0] for one in found if one.startswith("group")] == [
        "group_id=1,type=select,bucket=bucket_id:0"
    ]


def test_an_endpoint_that_two_slices_place_on_two_nodes_has_a_bucket_for_each() -> None:
    here = endpoint("10.10.0.7")
    there = msgspec.structs.replace(endpoint("10.10.0.7", "n2"), slice="a/web-2")
    _, engine = world(WEB, here, there)
    engine.plan()
    (group,) = (one for one in engine.standing().values() if isinstance(one, Group))
    assert [bucket.id for bucket in group.buckets] == [1, 2]
    assert len(list(group.lines(PIPELINE))) == 1


def test_one_endpoint_more_is_one_bucket_and_one_flow_more() -> None:
    facts, engine = world(WEB, *(endpoint(f"10.10.1.{number}", "n2") for number in range(2, 100)))
    engine.plan()
    facts.put(endpoint("10.10.0.7"))
    put = engine.plan().put
    assert sorted(type(one).__name__ for one in put) == ["Flow", "Group"]


def test_the_first_endpoint_that_is_not_ready_is_looked_at_alone() -> None:
    """With 5,000 Endpoints a change of one took the agent 0.25 s, since all others were computed anew."""
    computed: list[str] = []

    def counted_entries(facts: Facts, row: ServiceEndpoint) -> Iterator[Group | Flow]:
        computed.append(row.ip)
        yield from endpoint_entries(facts, row)

    counted, looked_at = Unit(ServiceEndpoint, counted_entries), Unit(ServiceEndpoint, endpoint_entries)
    units = [counted if one.name == looked_at.name else one for one in FEATURE.units]
    rows = (endpoint(f"10.10.1.{number}", "n2") for number in range(2, 100))
    facts, engine = world(WEB, *rows, units=units)
    engine.plan()
    for ready in (False, True):
        computed.clear()
        facts.put(endpoint("10.10.1.7", "n2", ready=ready))
        engine.plan()
        assert computed == ["10.10.1.7"]


SLICE = {
    "metadata": {"namespace": "a", "name": "web-1", "labels": {"kubernetes.io/service-name": "web"}},
    "addressType": "IPv4",
    "ports": [{"name": "http", "protocol": "TCP", "port": 8080}],
    "endpoints": [
        {
            "addresses": ["10.10.0.7", "10.10.0.8"],
            "conditions": {"ready": True, "serving": True, "terminating": False},
            "nodeName": "n1",
        }
    ],
}


def test_hints_of_an_endpoint_are_names_of_zones_and_nodes() -> None:
    hints = {"forZones": [{"name": "z2"}, {"name": "z1"}], "forNodes": [{"name": "n1"}]}
    one = {"addresses": ["10.10.0.7"], "hints": hints}
    (row,) = endpoint_rows(msgspec.convert({**SLICE, "endpoints": [one]}, EndpointSlice))
    assert (row.zones, row.nodes) == (("z1", "z2"), ("n1",))


def rows(**changes: Any) -> list[tuple[str, int, str, str]]:
    found = msgspec.convert({**SLICE, **changes}, EndpointSlice)
    return [(row.ip, row.port, row.node, row.state) for row in endpoint_rows(found)]


def test_an_endpoint_is_its_first_address() -> None:
    assert rows() == [("10.10.0.7", 8080, "n1", "ready")]


@pytest.mark.parametrize(
    ("conditions", "state"),
    [
        ({}, "ready"),
        ({"ready": False}, "unavailable"),
        ({"ready": False, "serving": True, "terminating": True}, "draining"),
        ({"ready": False, "serving": False, "terminating": True}, "unavailable"),
        ({"ready": None, "serving": None, "terminating": None}, "ready"),
        ({"ready": False, "terminating": True}, "draining"),
        ({"ready": False, "serving": None, "terminating": True}, "draining"),
    ],
)
def test_conditions_of_an_endpoint_have_the_defaults_of_the_api(
    conditions: dict[str, Any], state: str
) -> None:
    one = {"addresses": ["10.10.0.7"], "conditions": conditions, "nodeName": "n1"}
    assert rows(endpoints=[one]) == [("10.10.0.7", 8080, "n1", state)]


@pytest.mark.parametrize(
    "changes",
    [
        {"ports": None, "endpoints": None},
        {"ports": [{"name": "http"}]},
        {"ports": [{"port": 0}]},
        {"ports": [{"port": 65536}]},
        {"endpoints": [{"addresses": ["010.0.0.0300"]}]},
        {"endpoints": [{"addresses": ["name.example"]}]},
        {"endpoints": [{"addresses": []}]},
        {"metadata": {"namespace": "a", "name": "web-1"}},
    ],
)
def test_what_cannot_be_an_endpoint_gives_no_row(changes: dict[str, Any]) -> None:
    assert rows(**changes) == []


@pytest.mark.parametrize("order", [1, -1])
def test_of_two_pods_with_the_address_of_their_node_the_one_that_is_ready_counts(order: int) -> None:
    """As while one takes over from the other: the slice has both, in any order."""
    ends = [
        {"addresses": ["192.0.2.1"], "conditions": conditions, "nodeName": "n1"}
        for conditions in (
            {"ready": False, "serving": True, "terminating": True},
            {"ready": True},
            {"ready": False, "serving": False},
        )
    ]
    assert rows(endpoints=ends[::order]) == [("192.0.2.1", 8080, "n1", "ready")]


def test_numbers_of_addresses_may_begin_with_zeros() -> None:
    """As in objects that the API took long ago, and takes still: kube-proxy reads them as decimal."""
    assert rows(endpoints=[{"addresses": ["010.010.0.07"]}]) == [("10.10.0.7", 8080, "", "ready")]
    spec = {
        "clusterIPs": ["010.096.0.010", "fd00:96::0a"],
        "externalIPs": ["198.051.100.009", "2001:0db8::9"],
        "loadBalancerSourceRanges": ["010.0.0.0/08", " 2001:db8::/032 ", "010.0.0.0300/8"],
        "ports": [{"port": 80}],
    }
    ingress = [{"ip": "198.051.100.08"}, {"ip": "::ffff:198.051.100.07"}]
    found = {"metadata": {"name": "web"}, "spec": spec, "status": {"loadBalancer": {"ingress": ingress}}}
    row = service_row(msgspec.convert(found, core.Service))
    assert row is not None
    assert row.cluster_ips == ("10.96.0.10", "fd00:96::a")
    balanced = ("198.51.100.8", "198.51.100.7")
    assert (row.external_ips, row.load_balancer_ips) == (
        ("198.51.100.9", "2001:db8::9", *balanced),
        balanced,
    )
    assert row.source_ranges == ("10.0.0.0/8", "2001:db8::/32", "")


def test_a_service_with_the_label_of_headless_ones_is_served_by_no_proxy() -> None:
    metadata = {"namespace": "a", "name": "web", "labels": {"service.kubernetes.io/headless": ""}}
    spec = {"clusterIPs": ["10.96.0.10"], "ports": [{"port": 80}]}
    assert service_row(msgspec.convert({"metadata": metadata, "spec": spec}, core.Service)) is None


def test_a_service_keeps_affinity_policies_ports_and_the_name_of_its_proxy() -> None:
    found = {
        "metadata": {
            "namespace": "a",
            "name": "web",
            "labels": {"service.kubernetes.io/service-proxy-name": "x"},
        },
        "spec": {
            "clusterIPs": ["10.96.0.10"],
            "type": "LoadBalancer",
            "externalIPs": ["203.0.113.5"],
            "ports": [{"name": "http", "port": 80, "protocol": "TCP", "nodePort": 30080}],
            "sessionAffinity": "ClientIP",
            "internalTrafficPolicy": "Local",
            "externalTrafficPolicy": "Local",
        },
        "status": {"loadBalancer": {"ingress": [{"ip": "203.0.113.9"}]}},
    }
    assert service_row(msgspec.convert(found, core.Service)) == Service(
        "a",
        "web",
        ("10.96.0.10", "203.0.113.5", "203.0.113.9"),
        (("TCP", 80),),
        external_ips=("203.0.113.5", "203.0.113.9"),
        port_names=("http",),
        node_ports=(30080,),
        affinity_seconds=10800,
        internal_local=True,
        external_local=True,
        proxy_name="x",
        load_balancer_ips=("203.0.113.9",),
    )
