"""NodePortLocal, row by row: which ports are asked for, what leads to them, and what a Pod's annotation becomes."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from antrea.apis import core
from antrea.apis.annotation import PodAnnotation
from antrea.config.agent import AgentConfig
from antrea.config.agent_sections import NodePortLocal
from antrea.engine import Engine, Facts
from antrea.facts.member import AgentNode
from antrea.facts.node import ThisNode
from antrea.features.node_port_local.agent import FEATURE
from antrea.features.node_port_local.mapping import (
    MAX_TEXT,
    PortMapping,
    mappings_of,
    sorted_mappings,
    text_of,
)
from antrea.features.node_port_local.request import RecordPortMessage
from antrea.features.node_port_local.row import (
    HeldPort,
    PortLocalPod,
    PortLocalService,
    PortRequest,
    PortsDecided,
    port_local_pod,
    port_local_service,
)
from antrea.host.nft import NftElement, NftRule

CONFIG = AgentConfig(node_port_local=NodePortLocal(enable=True))
NODE = ThisNode("n1", ("10.10.0.0/24", "fd00:10::/64"), ("192.0.2.1", "2001:db8::1"))
PEER = AgentNode("n1", ("192.0.2.1", "2001:db8::1"), ())


def service(name: str = "web", **changes: Any) -> dict[str, Any]:
    """As the API has it."""
    spec = {
        "selector": {"app": "web"},
        "type": "ClusterIP",
        "ipFamilies": ["IPv4", "IPv6"],
        "ports": [{"port": 80, "protocol": "TCP", "targetPort": 8080}],
    } | changes
    meta = {"name": name, "namespace": "shop", "annotations": {"nodeportlocal.antrea.io/enabled": "true"}}
    return {"metadata": meta, "spec": spec}


def row_of(found: dict[str, Any]) -> PortLocalService | None:
    return port_local_service(msgspec.convert(found, core.Service))


def pod(
    name: str = "a", ports: Any = (), phase: str = "Running", sidecars: Any = (), **changes: Any
) -> PortLocalPod:
    found = {
        "metadata": {"name": name, "namespace": "shop", "uid": f"u-{name}", "labels": {"app": "web"}}
        | changes,
        "spec": {"containers": [{"ports": list(ports)}], "initContainers": list(sidecars)},
        "status": {"phase": phase, "podIPs": [{"ip": "10.10.0.7"}, {"ip": "fd00:10::7"}]},
    }
    return port_local_pod(msgspec.convert(found, core.Pod))


def world(*rows: Any, config: AgentConfig = CONFIG) -> tuple[Facts, Engine]:
    facts = Facts()
    for row in (config, NODE, PEER, PortsDecided(), *rows):
        if row is not None:
            facts.put(row)
    return facts, Engine(facts, FEATURE.units)


def standing(engine: Engine, kind: type[Any]) -> list[Any]:
    engine.plan()
    assert not engine.errors.standing, engine.errors.standing
    return [one for one in engine.standing().values() if isinstance(one, kind)]


def requests(facts: Facts, engine: Engine) -> list[str]:
    engine.plan()
    assert not engine.errors.standing, engine.errors.standing
    return [row.key for row in facts.all(PortRequest)]


def held(key: str, port: int, message: str = "") -> HeldPort:
    return HeldPort(f"shop/{key}", port, message)


@pytest.mark.parametrize(
    "changes",
    [
        {"type": "NodePort"},
        {"type": "ExternalName"},
        {"selector": {}},
        {"metadata": {"annotations": {}}},
        {"metadata": {"annotations": {"nodeportlocal.antrea.io/enabled": "True"}}},
    ],
)
def test_a_service_without_effect_gives_no_row(changes: dict[str, Any]) -> None:
    found = service(**{key: value for key, value in changes.items() if key != "metadata"})
    found["metadata"] |= changes.get("metadata", {})
    assert row_of(service()) is not None
    assert row_of(service(type="LoadBalancer")) is not None
    assert row_of(found) is None


def test_each_target_port_protocol_and_family_is_asked_for_once() -> None:
    ports = [
        {"port": 80, "protocol": "TCP", "targetPort": 8080},
        {"port": 81, "protocol": "TCP", "targetPort": "http"},
        {"port": 53, "protocol": "UDP", "targetPort": "dns"},
        {"port": 9, "protocol": "SCTP"},
        {"port": 82, "protocol": "TCP", "targetPort": "dns"},
    ]
    declared = [
        {"name": "http", "containerPort": 8080, "protocol": "TCP"},
        {"name": "dns", "containerPort": 5353, "protocol": "UDP"},
    ]
    facts, engine = world(row_of(service(ports=ports)), row_of(service("again")), pod(ports=declared))
    assert requests(facts, engine) == [
        f"shop/a:{port}/{family}"
        for port in ("5353/udp", "8080/tcp", "9/sctp")
        for family in ("IPv4", "IPv6")
    ]


def test_a_native_sidecar_names_ports_of_its_pod_and_another_init_container_does_not() -> None:
    ports = [{"port": 9100, "targetPort": "metrics"}]
    sidecar = {"ports": [{"name": "metrics", "containerPort": 9100}], "restartPolicy": "Always"}
    ended = {"ports": [{"name": "metrics", "containerPort": 9200}]}
    facts, engine = world(row_of(service(ports=ports, ipFamilies=["IPv4"])), pod(sidecars=[ended, sidecar]))
    assert requests(facts, engine) == ["shop/a:9100/tcp/IPv4"]


def test_families_are_those_that_service_pod_and_node_share() -> None:
    facts, engine = world(row_of(service(ipFamilies=["IPv6"])), pod())
    assert requests(facts, engine) == ["shop/a:8080/tcp/IPv6"]
    facts.put(ThisNode("n1", ("10.10.0.0/24",), ("192.0.2.1",)))
    assert requests(facts, engine) == []


@pytest.mark.parametrize(
    "other",
    [
        pod(labels={"app": "db"}),
        pod(namespace="other"),
        pod(phase="Succeeded"),
        pod(phase="Failed"),
    ],
)
def test_a_pod_that_is_not_selected_or_has_ended_asks_for_nothing(other: PortLocalPod) -> None:
    assert requests(*world(row_of(service()), other)) == []


def test_elements_lead_to_the_pod_and_go_with_the_port() -> None:
    facts, engine = world(
        row_of(service()), pod(), held("a:8080/tcp/IPv4", 61000), held("a:8080/tcp/IPv6", 61001)
    )
    assert {(one.set, one.value, one.data) for one in standing(engine, NftElement)} == {
        ("node-port-local", "tcp . 61000", "10.10.0.7 . 8080"),
        ("node-port-local6", "tcp . 61001", "fd00:10::7 . 8080"),
        ("node-port-local-own", "10.10.0.7 . 10.10.0.7", ""),
        ("node-port-local-own6", "fd00:10::7 . fd00:10::7", ""),
    }
    facts.put(held("a:8080/tcp/IPv4", 0, "none is free"))
    assert [one.set for one in standing(engine, NftElement) if "6" not in one.set] == []


def test_rules_are_there_while_it_is_enabled_alone() -> None:
    rules = {(one.chain, one.name): one.text for one in standing(world()[1], NftRule)}
    assert rules["prerouting-nat", "NodePortLocal, ip"] == (
        "meta nfproto ipv4 fib daddr type local dnat ip to meta l4proto . th dport map @node-port-local"
    )
    assert set(rules) == {
        (chain, f"NodePortLocal, {ip}") for chain in ("prerouting-nat", "output-nat") for ip in ("ip", "ip6")
    } | {("postrouting", f"own NodePortLocal, {ip}") for ip in ("ip", "ip6")}
    assert standing(world(config=AgentConfig())[1], NftRule) == []


def test_the_annotation_is_upstreams_text() -> None:
    mappings = [PortMapping(80, "192.0.2.1", 61002, "tcp", "IPv4"), PortMapping(80, "2001:db8::1", 61000, "udp", "IPv6")]  # fmt: skip
    text = text_of(sorted_mappings(mappings))
    assert text == (
        '[{"podPort":80,"nodeIP":"2001:db8::1","nodePort":61000,"protocol":"udp","ipFamily":"IPv6"},'
        '{"podPort":80,"nodeIP":"192.0.2.1","nodePort":61002,"protocol":"tcp","ipFamily":"IPv4"}]'
    )
    assert mappings_of(text) == tuple(reversed(mappings))
    assert text_of(()) == ""
    assert mappings_of("not JSON") == mappings_of('{"podPort":1}') == mappings_of("") == ()


@pytest.mark.parametrize(
    "text",
    [
        '[{"podPort":1,"nodeIP":"a","nodePort":2,"protocol":"tcp","x":' + "[" * 3000 + "]" * 3000 + "}]",
        '["\ud800"]',
        '[{"podPort":0,"nodeIP":"a","nodePort":2,"protocol":"tcp"}]',
        '[{"podPort":1,"nodeIP":"a","nodePort":65536,"protocol":"tcp"}]',
        "[" + " " * MAX_TEXT + "]",
    ],
    ids=["nested", "surrogate", "no port", "no node port", "long"],
)
def test_an_annotation_that_a_tenant_wrote_is_a_value_of_its_row_and_is_replaced(text: str) -> None:
    """It was text in the row and decoded in a task of the agent, which 3,000 brackets in an unknown field ended."""
    found = pod(annotations={"nodeportlocal.antrea.io": text})
    assert (found.mappings, found.annotated) == ((), True)
    _, engine = world(found)
    assert [one.value for one in standing(engine, PodAnnotation)] == [""]


def test_the_annotation_is_written_when_all_is_decided_and_the_pod_does_not_have_it() -> None:
    facts, engine = world(row_of(service()), pod(), held("a:8080/tcp/IPv4", 61000))
    assert standing(engine, PodAnnotation) == []  # a request has no answer yet
    facts.put(held("a:8080/tcp/IPv6", 61000))
    (entry,) = standing(engine, PodAnnotation)
    assert (entry.namespace, entry.pod, entry.uid, entry.name) == (
        "shop", "a", "u-a", "nodeportlocal.antrea.io",
    )  # fmt: skip
    assert json.loads(entry.value) == [
        {"podPort": 8080, "nodeIP": "192.0.2.1", "nodePort": 61000, "protocol": "tcp", "ipFamily": "IPv4"},
        {"podPort": 8080, "nodeIP": "2001:db8::1", "nodePort": 61000, "protocol": "tcp", "ipFamily": "IPv6"},
    ]
    # equal in another order and with blanks: nothing is written
    as_it_is = json.dumps(list(reversed(json.loads(entry.value))))
    facts.put(pod(annotations={"nodeportlocal.antrea.io": as_it_is}))
    assert standing(engine, PodAnnotation) == []
    facts.put(pod(annotations={"nodeportlocal.antrea.io": "[]"}))
    assert [one.value for one in standing(engine, PodAnnotation)] == [entry.value]


def test_an_external_address_of_the_node_is_the_one_that_is_named() -> None:
    facts, engine = world(row_of(service(ipFamilies=["IPv4"])), pod(), held("a:8080/tcp/IPv4", 61000))
    facts.put(msgspec.structs.replace(PEER, external_ips=("203.0.113.5",)))
    (entry,) = standing(engine, PodAnnotation)
    assert [one.node_ip for one in mappings_of(entry.value)] == ["203.0.113.5"]


def test_a_host_port_is_named_and_needs_no_other() -> None:
    ports = [{"containerPort": 8080, "protocol": "TCP", "hostPort": 8888}]
    facts, engine = world(row_of(service(ipFamilies=["IPv4"])), pod(ports=ports))
    (entry,) = standing(engine, PodAnnotation)
    assert mappings_of(entry.value) == (PortMapping(8080, "192.0.2.1", 8888, "tcp", "IPv4"),)
    assert requests(facts, engine) == []


def test_an_annotation_that_nothing_calls_for_goes_once_all_services_are_known() -> None:
    stale = pod(annotations={"nodeportlocal.antrea.io": "[]"})
    facts, engine = world(stale)
    facts.drop(PortsDecided, "self")
    assert standing(engine, PodAnnotation) == []
    facts.put(PortsDecided())
    assert [one.value for one in standing(engine, PodAnnotation)] == [""]
    facts.put(pod())
    assert standing(engine, PodAnnotation) == []


def test_who_lacks_a_port_is_told_once_and_keeps_those_that_it_has() -> None:
    facts, engine = world(
        row_of(service()), pod(), held("a:8080/tcp/IPv4", 61000), held("a:8080/tcp/IPv6", 0, "none is free")
    )
    (said,) = [one for one in engine.plan().acts if isinstance(one, RecordPortMessage)]
    assert (said.namespace, said.pod, said.uid, said.message, said.lacks) == (
        "shop", "a", "u-a", "none is free", True,
    )  # fmt: skip
    (entry,) = standing(engine, PodAnnotation)
    assert [one.ip_family for one in mappings_of(entry.value)] == ["IPv4"]
    facts.put(held("a:8080/tcp/IPv6", 61000))
    assert [one for one in engine.plan().acts if isinstance(one, RecordPortMessage)] == []
