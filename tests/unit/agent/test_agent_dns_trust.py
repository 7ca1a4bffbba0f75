"""Which DNS servers are believed: those that the cluster or its administrator has chosen."""

from __future__ import annotations

import pytest

from antrea.apis.core import ObjectMeta
from antrea.apis.discovery import Endpoint, EndpointConditions, EndpointPort, EndpointSlice
from antrea.config.agent import AgentConfig
from antrea.engine import Facts
from antrea.facts.node import LocalAddress
from antrea.facts.service import Service
from antrea.features.network_policy.agent.dns_server import DnsEndpoint, dns_endpoints
from antrea.features.network_policy.agent_part.dns_trust import TrustedServers

KUBE_DNS = Service(
    "kube-system", "kube-dns", ("10.96.0.10", "fd00:96::a", "203.0.113.1"), (("UDP", 53),), ("203.0.113.1",)
)


def trusted(*rows: object, resolvers: tuple[str, ...] = (), **config: object) -> TrustedServers:
    facts = Facts()
    for row in (KUBE_DNS, *rows):
        facts.put(row)  # type: ignore[arg-type]
    return TrustedServers(facts, AgentConfig(**config), lambda: [(one, 53) for one in resolvers])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "server",
    [
        *("10.96.0.10", "fd00:96::a"),  # kube-dns
        *("10.10.1.2", "fd00:10::2"),  # its Endpoints
        *("192.0.2.53", "2001:db8::53"),  # the Node's resolvers
        "198.51.100.53",  # dnsServerOverride
        *("169.254.20.10", "fe80::1", "127.0.0.53", "::1", "fd00:90::10"),  # on the Node
        *("203.0.113.77", "2001:db8:77::1"),  # by the key
    ],
)
def test_servers_of_the_cluster_and_of_its_administrator_are_trusted(server: str) -> None:
    found = trusted(
        *(
            DnsEndpoint("kube-system/s", "10.10.1.2"),
            DnsEndpoint("kube-system/s", "fd00:10::2"),
            LocalAddress("fd00:90::10", "lo"),
        ),
        resolvers=("192.0.2.53", "2001:db8::53"),
        dns_server_override="198.51.100.53:5353",
        fqdn_trusted_dns_servers=("203.0.113.64/26", "2001:db8:77::1"),
    )
    assert found.trusts(server)


@pytest.mark.parametrize("server", ["198.51.100.66", "10.10.0.9", "2001:db8::66", "203.0.113.1"])
def test_other_servers_are_not(server: str) -> None:
    """Not Pods, hosts outside, or an address of kube-dns outside the cluster."""
    assert not trusted(resolvers=("192.0.2.53",)).trusts(server)


def test_an_address_that_a_service_takes_over_is_not_the_servers() -> None:
    """Whoever may create a Service with externalIPs chooses who answers there."""
    taken = Service(
        "shop", "dns", ("10.96.0.66", "192.0.2.53", "192.0.2.1"), (("UDP", 53),), ("192.0.2.53", "192.0.2.1")
    )
    found = trusted(
        taken, LocalAddress("192.0.2.1", "eth0"), LocalAddress("192.0.2.2", "eth0"), resolvers=("192.0.2.53",)
    )
    assert [found.trusts(one) for one in ("192.0.2.53", "192.0.2.1", "192.0.2.2")] == [False, False, True]


def test_every_server_is_trusted_where_the_key_says_so() -> None:
    found = trusted(fqdn_trusted_dns_servers=("0.0.0.0/0", "::/0"))
    assert found.trusts("198.51.100.66")
    assert found.trusts("2001:db8::66")


def test_endpoints_of_the_dns_service_alone_are_dns_servers() -> None:
    def made(service: str, *endpoints: Endpoint) -> tuple[DnsEndpoint, ...]:
        meta = ObjectMeta(name="s", namespace="kube-system", labels={"kubernetes.io/service-name": service})
        ports = (EndpointPort(name="dns", protocol="UDP", port=53), EndpointPort(name="dns-tcp", port=53))
        return dns_endpoints(EndpointSlice(metadata=meta, ports=ports, endpoints=endpoints))

    there, gone = (
        Endpoint(addresses=("10.10.1.2",)),
        Endpoint(addresses=("10.10.1.3",), conditions=EndpointConditions(serving=False)),
    )
    assert made("kube-dns", there, gone) == (DnsEndpoint("kube-system/s", "10.10.1.2"),)
    assert made("metrics-server", there) == ()
