"""The packet that a Traceflow asks for, field by field, and what is wrong with one that cannot be made."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from policy_world import interface

from antrea.apis.core import Pod, Service
from antrea.apis.crd.traceflow import TraceflowSpec
from antrea.engine import Facts
from antrea.errors import Invalid
from antrea.features.traceflow.preparation import PreparedTrace, prepared
from antrea.features.traceflow.trace import RunningTrace
from antrea.openflow.frame import Headers

WEB, DB = interface("web", 7), interface("db", 8)
SOURCE = {"source": {"namespace": "a", "pod": "web"}}
V6: dict[str, Any] = {"packet": {"ipv6Header": {}}}
FAR = msgspec.convert({"status": {"podIPs": [{"ip": "10.10.1.9"}, {"ip": "fd00:10:1::9"}]}}, Pod)
SVC = msgspec.convert(
    {
        "spec": {
            "clusterIPs": ["10.96.0.9", "fd00:96::9"],
            "ports": [{"port": 53, "protocol": "UDP"}, {"port": 80}],
        }
    },
    Service,
)
LIVE = {"liveTraffic": True}


def made(spec: dict[str, Any], target: Pod | Service | None = None) -> PreparedTrace:
    facts = Facts()
    facts.put(WEB)
    facts.put(DB)
    trace = RunningTrace("t", "u", 7, msgspec.convert(spec, TraceflowSpec))
    return prepared(facts, trace, WEB, target)


def headers(spec: dict[str, Any], target: Pod | Service | None = None) -> Headers:
    return made(spec, target).headers


def to(**destination: str) -> dict[str, Any]:
    return SOURCE | {"destination": destination}


def test_by_default_it_is_an_echo_request_from_the_pod() -> None:
    row = made(to(ip="10.10.1.9"))
    wanted = Headers(source_mac=WEB.mac, source="10.10.0.7", destination="10.10.1.9", protocol=1)
    assert (row.headers, row.ofport, row.interface, row.nearby) == (wanted, 7, "web-0", False)
    row = made(to(ip="fd00:10:1::9") | V6)
    assert (row.headers.source, row.headers.protocol) == ("fd00:10::7", 58)


def test_a_pod_of_this_node_gets_the_frame_as_it_is_sent_and_at_once() -> None:
    row = made(to(ip="10.10.0.8"))
    assert (row.headers.destination_mac, row.nearby) == (DB.mac, True)
    itself = made(to(ip="10.10.0.7"))
    assert (itself.headers.destination_mac, itself.nearby) == (WEB.mac, True)


def test_a_pod_is_sent_to_at_its_address_of_the_family() -> None:
    assert headers(to(pod="far"), FAR).destination == "10.10.1.9"
    assert headers(to(pod="far") | V6, FAR).destination == "fd00:10:1::9"


def test_a_service_gives_address_protocol_and_port_unless_the_packet_has_its_own() -> None:
    found = headers(to(service="dns"), SVC)
    assert (found.destination, found.protocol, found.destination_port) == ("10.96.0.9", 17, 53)
    assert headers(to(service="dns") | V6, SVC).destination == "fd00:96::9"
    tcp = {"packet": {"transportHeader": {"tcp": {"dstPort": 80}}}}
    found = headers(to(service="dns") | tcp, SVC)
    assert (found.protocol, found.destination_port, found.tcp_flags) == (6, 80, 2)
    portless = {"packet": {"transportHeader": {"udp": {"srcPort": 5000}}}}
    found = headers(to(service="dns") | portless, SVC)
    assert (found.source_port, found.destination_port) == (5000, 53)


def test_tcp_counts_before_udp_and_that_before_icmp() -> None:
    every = {"tcp": {"dstPort": 80, "flags": 16}, "udp": {"dstPort": 53}, "icmp": {"id": 3, "sequence": 4}}
    ip = {"ipHeader": {"protocol": 89, "ttl": 9, "flags": 2}}

    def of(*names: str) -> Headers:
        transport = {name: every[name] for name in names}
        return headers(to(ip="10.10.1.9") | {"packet": {**ip, "transportHeader": transport}})

    assert (of("tcp", "udp", "icmp").protocol, of("tcp").tcp_flags) == (6, 16)
    assert (of("udp", "icmp").protocol, of("udp").destination_port) == (17, 53)
    found = of("icmp")
    assert (found.protocol, found.icmp_id, found.icmp_sequence) == (1, 3, 4)
    found = of()
    assert (found.protocol, found.hops, found.fragment_flags) == (89, 9, 2)


def test_live_traffic_is_compared_with_what_is_given_alone() -> None:
    assert headers(to() | LIVE) == Headers(tcp_flags=0)
    tcp = {"packet": {"ipHeader": {}, "transportHeader": {"tcp": {"dstPort": 80}}}}
    wanted = Headers(destination="10.96.0.9", protocol=6, destination_port=80, tcp_flags=0)
    assert headers(to(service="dns") | LIVE | tcp, SVC) == wanted
    receiver = {"source": {"ip": "192.0.2.7"}, "destination": {"namespace": "a", "pod": "web"}} | LIVE
    assert headers(receiver) == Headers(source="192.0.2.7", destination_mac=WEB.mac, tcp_flags=0)
    assert not made(receiver).nearby


@pytest.mark.parametrize(
    ("spec", "target", "why"),
    [
        (SOURCE, None, "destination is not specified"),
        (to(ip="fd00::9"), None, "destination IP does not match the IP header family"),
        (to(ip="10.0.0.1") | V6, None, "destination IP does not match the IP header family"),
        (to(pod="p"), Pod(), "destination Pod does not have an IPv4 address"),
        (to(pod="p") | V6, Pod(), "destination Pod does not have an IPv6 address"),
        (to(service="s"), Service(), "destination Service does not have a ClusterIP"),
        (to(service="s"), msgspec.convert({"spec": {"clusterIPs": ["None"]}}, Service), "destination Service does not have a ClusterIP"),
        (to(service="s"), msgspec.convert({"spec": {"clusterIPs": ["fd00::1"]}}, Service), "destination Service does not have an IPv4 ClusterIP"),
        (to(service="s"), msgspec.convert({"spec": {"clusterIPs": ["10.0.0.1"]}}, Service), "destination Service does not have any ports"),
        ({"source": {"ip": "fd00::1"}, "destination": {"pod": "web"}} | LIVE, None, "source IP does not match the IP header family"),
    ],
)  # fmt: skip
def test_what_cannot_be_made_says_why(spec: dict[str, Any], target: Pod | Service | None, why: str) -> None:
    with pytest.raises(Invalid) as no:
        made(spec, target)
    assert no.value.why == why


def test_a_pod_without_an_address_of_the_family_sends_nothing() -> None:
    facts = Facts()
    trace = RunningTrace("t", "u", 7, msgspec.convert(to(ip="fd00::1") | V6, TraceflowSpec))
    with pytest.raises(Invalid) as no:
        prepared(facts, trace, interface("web", 7, "10.10.0.7"), None)
    assert no.value.why == "source Pod does not have an IPv6 address"
