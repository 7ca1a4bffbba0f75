"""External addresses that are a Node's own: the Node with the address serves them, but for the ports that it needs itself."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from test_features_proxy_all import ALL, N2, WEB, elements, routes, said, standing, world

from antrea.facts.node import LocalAddress
from antrea.facts.service import ListeningPorts, Service, ServiceEndpoint, ServicePort
from antrea.host.nft import NftElement
from antrea.openflow.flow import Flow

OWN = msgspec.structs.replace(
    WEB, ips=("10.96.0.10", "192.0.2.1"), external_ips=("192.0.2.1",), load_balancer_ips=(), node_ports=(0, 0)
)
CARD = LocalAddress("192.0.2.1", "eth0")
NOTHING = ListeningPorts(frozenset())


def own(entries: list[Any]) -> set[str]:
    return {
        one.value for one in entries if isinstance(one, NftElement) and one.set.startswith("own-external-ip")
    }


def with_port(port: int, protocol: str = "TCP") -> Service:
    return msgspec.structs.replace(OWN, ports=((protocol, port),), port_names=("p",), node_ports=(0,))


def test_the_node_with_the_address_serves_its_ports() -> None:
    facts, engine = world(OWN, CARD, NOTHING)
    found = standing(engine)
    assert own(found) == {"192.0.2.1 . tcp . 80", "192.0.2.1 . udp . 53"}
    to = {one.data for one in found if isinstance(one, NftElement) and one.set == "own-external-ip"}
    assert len(to) == 2
    assert {one.partition(" . ")[0] for one in to} == {"169.254.0.248"}
    assert "192.0.2.1/32" not in {dst for dst, _ in routes(found)}
    assert ("external-ip", "192.0.2.1") not in elements(found)
    matches = {one.match for one in found if isinstance(one, Flow) and one.table == "ServiceLB"}
    number = next(data.rpartition(" ")[2] for data in to if data.endswith("1"))
    assert any("nw_dst=192.0.2.1" in match and "tp_dst=80" in match for match in matches)
    assert any("nw_dst=169.254.0.248" in match and f"tp_dst={number}" in match for match in matches)
    facts.drop(Service, OWN.key)
    found = standing(engine)
    assert own(found) == set()
    assert facts.ids.standing() == {}


def test_another_node_leaves_packets_to_the_one_with_the_address() -> None:
    far = msgspec.structs.replace(OWN, ips=("10.96.0.10", "192.0.2.2"), external_ips=("192.0.2.2",))
    facts, engine = world(far, CARD, NOTHING)
    found = standing(engine)
    assert own(found) == set()
    assert "192.0.2.2/32" not in {dst for dst, _ in routes(found)}
    assert not [one for one in found if isinstance(one, Flow) and "nw_dst=192.0.2.2" in one.match]
    assert facts.get(ServicePort, "a/web:80/TCP") is not None


@pytest.mark.parametrize(
    ("service", "rows", "purpose"),
    [
        (with_port(22), (), "SSH"),
        (with_port(10250), (), "kubelet"),
        (with_port(6443), (), "kube-apiserver"),
        (with_port(10350), (), "antrea-agent"),
        (with_port(10351, "UDP"), (), "antrea-agent"),
        (with_port(6081, "UDP"), (), "tunnels between Nodes"),
        (with_port(51820, "UDP"), (), "WireGuard"),
        (
            with_port(7443),
            (
                ServiceEndpoint(
                    "default/kubernetes", "default/kubernetes", "https", "TCP", "192.0.2.1", 7443, "", True, True, False
                ),
            ),
            "kube-apiserver",
        ),
        (
            with_port(30080),
            (msgspec.structs.replace(WEB, name="other", ips=("10.96.0.11",), external_ips=(), load_balancer_ips=()),),
            "the NodePort of Service a/other",
        ),
    ],
)  # fmt: skip
def test_a_port_that_the_node_needs_stays_its_own(
    service: Service, rows: tuple[Any, ...], purpose: str
) -> None:
    _, engine = world(service, CARD, NOTHING, *rows)
    ((protocol, port),) = service.ports
    assert said(engine) == [
        f"192.0.2.1, port {port}/{protocol} of Node n1 is for {purpose}: the Service is not served there"
    ]
    assert own(list(engine.standing().values())) == set()


@pytest.mark.parametrize(
    ("at", "served"),
    [("", False), ("0.0.0.0", False), ("192.0.2.1", False), ("127.0.0.1", True), ("::", True)],
)
def test_a_program_that_listens_keeps_its_port_at_its_addresses(at: str, served: bool) -> None:
    ports = ListeningPorts(frozenset({("TCP", at, 80), ("UDP", "", 80), ("TCP", "", 53)}))
    facts, engine = world(OWN, CARD)
    assert own(standing(engine)) == set(), "it is not known yet what listens"
    facts.put(ports)
    told = said(engine)
    program = "is for a program of the Node, which listens there: the Service is not served there"
    assert told == ([] if served else [f"192.0.2.1, port 80/TCP of Node n1 {program}"])
    expected = {"192.0.2.1 . udp . 53"} | ({"192.0.2.1 . tcp . 80"} if served else set())
    assert own(list(engine.standing().values())) == expected


def test_an_address_that_the_configuration_keeps_from_services_is_refused() -> None:
    proxy = msgspec.structs.replace(ALL, serve_node_external_ips=False)
    _, engine = world(OWN, CARD, NOTHING, proxy=proxy)
    assert said(engine) == ["192.0.2.1 is an address of Node n1: it is not served as an external IP"]
    assert own(list(engine.standing().values())) == set()


@pytest.mark.parametrize("dev", ["antrea-gw0", "antrea-egress0", "antrea-ext.7", "kube-ipvs0"])
def test_addresses_that_the_agent_or_kube_proxy_made_are_served_as_before(dev: str) -> None:
    balanced = msgspec.structs.replace(
        OWN, ips=("10.96.0.10", "198.51.100.9"), external_ips=("198.51.100.9",)
    )
    found = standing(world(balanced, LocalAddress("198.51.100.9", dev), NOTHING)[1])
    assert own(found) == set()
    assert ("external-ip", "198.51.100.9") in elements(found)


def test_an_address_beside_that_of_the_node_object_is_served_too() -> None:
    """As that of a second card, or one that kube-vip gives to a Node."""
    second = msgspec.structs.replace(
        WEB, ips=("10.96.0.10", "198.51.100.9"), external_ips=("198.51.100.9",), load_balancer_ips=("198.51.100.9",),
        source_ranges=("203.0.113.0/24",),
    )  # fmt: skip
    facts, engine = world(second, LocalAddress("198.51.100.9", "eth1"), NOTHING)
    found = standing(engine)
    assert own(found) == {"198.51.100.9 . tcp . 80", "198.51.100.9 . udp . 53"}
    lets_in = [
        one for one in found
        if isinstance(one, Flow) and one.table == "ServiceLB" and "nw_dst=169.254.0.248" in one.match and one.actions
    ]  # fmt: skip
    assert lets_in
    assert all("nw_src=203.0.113.0/24" in one.match for one in lets_in)
    facts.drop(LocalAddress, "198.51.100.9")
    assert ("external-ip", "198.51.100.9") in elements(standing(engine)), "it has moved to another Node"


def test_an_address_that_no_interface_of_its_node_has_is_refused() -> None:
    """As an ExternalIP of a cloud, which translates it on the way."""
    nat = msgspec.structs.replace(OWN, ips=("10.96.0.10", "203.0.113.1"), external_ips=("203.0.113.1",))
    facts, engine = world(nat, NOTHING, msgspec.structs.replace(N2, name="n1", ips=("192.0.2.1",), external_ips=("203.0.113.1",)))  # fmt: skip
    assert said(engine) == [], "its interfaces are not known yet"
    facts.put(CARD)
    assert said(engine) == [
        "203.0.113.1 is an address of Node n1, and none of its interfaces has it: it is not served as an external IP"
    ]
