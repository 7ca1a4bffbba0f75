"""Addresses that no host outside can have are refused wherever an object or the configuration asks for one, and said so."""

from __future__ import annotations

import msgspec
import pytest
from test_features_proxy_all import ALL, N1, WEB, elements, routes, said, standing, world

from antrea.apis import core
from antrea.config.agent import AgentConfig
from antrea.config.agent_sections import AntreaProxy
from antrea.facts.service import ServicePort
from antrea.features.framework.ip_range import unusable, unusable_network
from antrea.features.proxy.host import refused_node_port_addresses
from antrea.features.proxy.service import service_row

ODD = [
    ("0.0.0.0", "unspecified addresses (0.0.0.0/8)"),
    ("127.0.0.1", "loopback addresses (127.0.0.0/8)"),
    ("255.255.255.255", "broadcast addresses (255.255.255.255/32)"),
    ("224.0.0.5", "multicast addresses (224.0.0.0/4)"),
    ("169.254.169.254", "cloud metadata addresses (169.254.169.252/30)"),
    ("169.254.170.2", "cloud metadata addresses (169.254.170.0/24)"),
    ("169.254.0.252", "the host's and switch's own addresses (169.254.0.0/24)"),
    ("169.254.230.1", "the host's and switch's own addresses (169.254.224.0/20)"),
    ("::", "unspecified addresses (::/128)"),
    ("::1", "loopback addresses (::1/128)"),
    ("::ffff:127.0.0.1", "loopback addresses (127.0.0.0/8)"),
    ("ff02::5", "multicast addresses (ff00::/8)"),
    ("fe80::1", "link-local addresses (fe80::/10)"),
    ("fc01::aabb:ccdd:eeff", "the host's and switch's own addresses (fc01::aabb:ccdd:eef0/124)"),
]
USED = (
    *("198.51.100.60", "2001:db8::60", "10.0.0.1", "240.0.0.1", "fc01::1"),
    *("169.254.100.1", "169.254.169.1", "169.254.169.2"),  # upstream's test/e2e has these
)


def service(ingress: list[str], external: list[str], ranges: list[str]) -> core.Service:
    return msgspec.convert(
        {
            "metadata": {"namespace": "a", "name": "web"},
            "spec": {
                "type": "LoadBalancer", "clusterIPs": ["10.96.0.10", "fd00:96::a"], "externalIPs": external,
                "ports": [{"name": "http", "port": 80, "protocol": "TCP"}], "loadBalancerSourceRanges": ranges,
            },
            "status": {"loadBalancer": {"ingress": [{"ip": ip} for ip in ingress]}},
        },
        core.Service,
    )  # fmt: skip


@pytest.mark.parametrize(("ip", "kind"), ODD)
@pytest.mark.parametrize("balanced", [False, True], ids=["externalIPs", "load balancer"])
def test_an_address_of_no_host_is_not_served_and_an_event_says_so(ip: str, kind: str, balanced: bool) -> None:
    good = "198.51.100.60"
    row = service_row(service([ip, good], [], []) if balanced else service([], [ip, good], []))
    assert row is not None
    assert row.external_ips == (good,)
    field = "status.loadBalancer.ingress" if balanced else "spec.externalIPs"
    shown = ip.removeprefix("::ffff:")
    facts, engine = world(row)
    assert said(engine) == [f"{field}: {shown} is one of {kind}: it is not served"]
    found = list(engine.standing().values())
    assert {value for name, value in elements(found) if name.startswith("external-ip")} == {good}
    assert not {dst for dst, _ in routes(found)} & {f"{shown}/32", f"{shown}/128"} - {"169.254.0.252/32", "fc01::aabb:ccdd:eeff/128"}  # fmt: skip
    port = facts.get(ServicePort, "a/web:80/TCP")
    assert port is not None
    assert port.external_ips == (good,)


def test_a_service_is_told_of_ten_addresses_at_most_by_one_agent() -> None:
    row = service_row(service([f"127.0.0.{number}" for number in range(1, 100)], [], []))
    assert row is not None
    assert len(said(world(row)[1])) == 10
    assert said(world(row, msgspec.structs.replace(N1, name="n0"))[1]) == []


@pytest.mark.parametrize(
    ("text", "network", "why"),
    [
        ("127.0.0.0/8", "", "127.0.0.0/8 has nothing but loopback addresses (127.0.0.0/8)"),
        ("ff02::/16", "", "ff02::/16 has nothing but multicast addresses (ff00::/8)"),
        ("x" * 99, "", f"'{'x' * 60}' is not a network"),
        ("0.0.0.0/0", "0.0.0.0/0", ""),
        ("::/0", "::/0", ""),
        ("169.254.0.0/16", "169.254.0.0/16", ""),
        ("fe80::/10", "fe80::/10", ""),
    ],
)
def test_a_source_range_from_which_no_packet_comes_lets_nobody_in_and_an_event_says_so(
    text: str, network: str, why: str
) -> None:
    row = service_row(service(["198.51.100.60"], [], [text]))
    assert row is not None
    assert row.source_ranges == (network,)
    wanted = [f"spec.loadBalancerSourceRanges: {why}: it allows no client"] if why else []
    assert said(world(row)[1]) == wanted


def test_without_proxy_all_pods_are_not_sent_to_such_an_address_either() -> None:
    row = service_row(service(["127.0.0.1"], [], []))
    assert row is not None
    _, engine = world(row, proxy=AntreaProxy())
    assert len(said(engine)) == 1
    assert not [one for one in standing(engine) if "127.0.0.1" in str(one)]


def test_addresses_that_hosts_have_are_taken() -> None:
    assert [unusable(ip) for ip in USED] == [""] * len(USED)
    assert [unusable_network(cidr) for cidr in ("0.0.0.0/0", "10.0.0.0/8", "::/0", "240.0.0.0/4")] == [""] * 4
    assert WEB.refused == ()


def test_networks_of_node_ports_in_which_none_is_served_are_named() -> None:
    wanted = ("127.0.0.1/8", "10.0.0.0/8", "0.0.0.0/0", "fe80::/64")
    config = AgentConfig(antrea_proxy=msgspec.structs.replace(ALL, node_port_addresses=wanted))
    assert refused_node_port_addresses(config) == [
        "antreaProxy.nodePortAddresses: 127.0.0.1/8 has nothing but loopback addresses (127.0.0.0/8): no NodePort is served there",
        "antreaProxy.nodePortAddresses: fe80::/64 has nothing but link-local addresses (fe80::/10): no NodePort is served there",
    ]
