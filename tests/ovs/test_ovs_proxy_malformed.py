"""EndpointSlices that nobody should write, in a real switch: it takes all that becomes of them, and good Endpoints are served."""

from __future__ import annotations

import re
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from policy_switch import ports
from proxy_switch import CLUSTER, HOST, OUTSIDE, POD, REMOTE, WEB, install, trace

from antrea.apis.discovery import EndpointSlice
from antrea.features.proxy.service import endpoint_rows

if TYPE_CHECKING:
    from ovs_bridge import OvsBridge

    from antrea.facts.service import ServiceEndpoint

TEXTS = (
    "", " ", "10.10.0.300", "010.10.0.0300", "10.10.0.7/32", "10.10.0.7:80", "fe80::1%eth0", "web.example", "10.10.0.8,", "::g",
    "10.10.0.9\nflow add table=0,actions=drop", "0x0a0a0007", "１０.１０.０.７", "-1", "[fd00::1]",
)  # fmt: skip
PORTS: tuple[dict[str, Any], ...] = (
    {"name": "http", "port": 0}, {"name": "http", "port": -1}, {"name": "http", "port": 65_536},
    {"name": "http", "port": None}, {"name": "http", "port": 8080, "protocol": "HTTP"}, {"name": "http", "port": 8080, "protocol": ""},
    {"name": "http", "port": 8080}, {"name": "http", "port": 8080, "protocol": "TCP"},
)  # fmt: skip


@pytest.fixture(scope="module")
def bridge(ovs: OvsBridge) -> OvsBridge:
    ovs.add_ports(ports())
    return ovs


def rows(name: str, **changes: Any) -> tuple[ServiceEndpoint, ...]:
    meta = {"namespace": "a", "name": name, "labels": {"kubernetes.io/service-name": "web"}}
    return endpoint_rows(msgspec.convert({"metadata": meta, **changes}, EndpointSlice))


def chosen(bridge: OvsBridge, six: bool) -> set[str]:
    """Addresses to which the switch translates."""
    texts = re.findall(r"nat\(dst=\[?([^\]\)]*?)\]?:8080\)", "\n".join(bridge.dump()))
    return {text for text in texts if (":" in text) == six}


@pytest.mark.parametrize("six", [False, True], ids=["IPv4", "IPv6"])
def test_what_cannot_be_read_is_left_out_and_the_rest_is_served(bridge: OvsBridge, six: bool) -> None:
    bad = [{"addresses": [text, POD.ips[six]], "nodeName": "n1"} for text in TEXTS]
    good = [
        {"addresses": [POD.ips[six]], "nodeName": "n1"},
        {"addresses": [REMOTE[six]], "nodeName": "n-that-does-not-exist"},
        {"addresses": [HOST[six]], "nodeName": None},
        {"addresses": [OUTSIDE[six]], "nodeName": "x" * 300, "hints": {"forZones": [{"name": ""}]}},
    ]
    family = "IPv6" if six else "IPv4"
    found = rows("mixed", addressType=family, endpoints=[*bad, *good], ports=list(PORTS))
    # the same again, under a family that is none, and as if it were of the other one
    found += rows("unknown", addressType="FQDN", endpoints=good, ports=list(PORTS))
    found += rows("other", addressType="IPv4" if six else "IPv6", endpoints=good, ports=list(PORTS))
    found += rows("empty", addressType=family, endpoints=None, ports=None)
    install(bridge, WEB, *found)
    assert chosen(bridge, six) == {POD.ips[six], REMOTE[six], HOST[six], OUTSIDE[six]}
    assert chosen(bridge, not six) == set()
    assert trace(bridge, POD.ips[six], CLUSTER[six]).to in chosen(bridge, six)


def test_a_service_of_5000_slices_has_an_endpoint_of_each(bridge: OvsBridge) -> None:
    first = int(ip_address("10.20.0.0"))
    wanted = {str(ip_address(first + number)) for number in range(5000)}
    port = [{"name": "http", "port": 8080, "protocol": "TCP"}]
    found = [
        row
        for number, ip in enumerate(sorted(wanted))
        for row in rows(
            f"web-{number}", addressType="IPv4", endpoints=[{"addresses": [ip], "nodeName": "n2"}], ports=port
        )
    ]
    install(bridge, WEB, *found)
    assert chosen(bridge, six=False) == wanted
    assert trace(bridge, POD.ips[0], CLUSTER[0]).to in wanted
