"""The names of the Internet that upstream's suite asks for: which addresses they have in a lab, and what CoreDNS is told."""

from __future__ import annotations

from ipaddress import ip_interface, ip_network

import pytest
import yaml

from lab import dns
from lab.topology import EXTERNAL_HOST, OUTSIDE, Family, standard
from lab.upstream_e2e_names import addresses, corefile


def committed() -> str:
    manifest = dns.manifest(standard(1, "ipv4"), cluster_ips=True)
    return next(str(o["data"]["Corefile"]) for o in yaml.safe_load_all(manifest) if o["kind"] == "ConfigMap")


@pytest.mark.parametrize("family", ["ipv4", "ipv6", "dual"])
def test_names_that_different_rules_are_for_have_different_addresses(family: Family) -> None:
    """Each is one of the network of `outside`, and not that host's own."""
    found = addresses(family)
    networks = [ip_network(prefix) for prefix in OUTSIDE.prefixes(family)]
    assert all(ip_interface(one).network in networks for one in found)
    assert not found.keys() & set(OUTSIDE.pick(EXTERNAL_HOST, family))
    for network in networks:
        named = [names for one, names in found.items() if ip_interface(one).network == network]
        assert sorted(named) == [
            ("docs.amazon.com",),
            ("docs.google.com",),
            ("facebook.com",),
            ("github.com", "docs.github.com", "api.github.com"),
            ("stackoverflow.com",),
            ("wayfair.com",),
        ]


def test_coredns_gets_the_names_once_and_keeps_what_it_had() -> None:
    before = committed()
    after = corefile(before, "ipv4")
    block = after[after.index("    hosts {") : after.index("    kubernetes ")]
    assert block.splitlines() == [
        "    hosts {",
        "        192.0.2.20 github.com docs.github.com api.github.com",
        "        192.0.2.21 wayfair.com",
        "        192.0.2.22 stackoverflow.com",
        "        192.0.2.23 facebook.com",
        "        192.0.2.24 docs.amazon.com",
        "        192.0.2.25 docs.google.com",
        "        fallthrough",
        "    }",
    ]
    assert after.replace(block, "") == before
    assert corefile(after, "ipv4") == after
