"""Scope of a cache of DNS answers: its names, the servers that the agent queries, and those that it trusts."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from antrea.config.shape import host_and_port
from antrea.facts.family import is_ipv6
from antrea.facts.node import ThisNode
from antrea.facts.service import Service
from antrea.features.network_policy.agent.dns_server import KUBE_DNS
from antrea.features.network_policy.agent.fqdn import FqdnAddress, FqdnPattern
from antrea.features.network_policy.agent_part.dns_trust import TrustedServers

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from antrea.config.agent import AgentConfig
    from antrea.engine import Facts
    from antrea.facts.fact import Fact
    from antrea.features.network_policy.agent.own_answer import OwnAnswer


class NameScope(NamedTuple):
    """Scope of the names in a cache."""

    patterns: type[FqdnPattern]
    """Kind of the rows with patterns of rules."""
    addresses: type[FqdnAddress]
    """Kind of the rows that are written."""
    keep: Path
    """File of the addresses."""
    servers: Callable[[], list[tuple[str, int]]]
    """Servers that the agent queries, in their order."""
    trusts: Callable[[str], bool]
    """Whether answers from an address count."""
    untrusted_row: Callable[[str, OwnAnswer], Fact]
    """Row for a pattern and an answer of an untrusted server."""
    name: str = "pods"
    """Name in the query for its addresses: `pods` or `node`."""


def pod_scope(facts: Facts, config: AgentConfig, keep: Path) -> NameScope:
    """Make the scope of names in policies on Pods."""
    return NameScope(
        FqdnPattern,
        FqdnAddress,
        keep,
        partial(cluster_servers, facts, config),
        TrustedServers(facts, config, node_resolvers).trusts,
        lambda pattern, answer: FqdnAddress(pattern, answer.address, answer.pod),
    )


def node_resolvers() -> list[tuple[str, int]]:
    """Return the servers in the Node's resolv.conf."""
    from antrea.outside.name_server import configured_servers  # noqa: PLC0415 (3.4 MiB)

    return configured_servers()


def cluster_servers(facts: Facts, config: AgentConfig) -> list[tuple[str, int]]:
    """Return address and port of `dnsServerOverride`, else of the cluster's DNS Service."""
    if config.dns_server_override:
        return [host_and_port(config.dns_server_override, 53)]
    service = facts.get(Service, KUBE_DNS)
    if service is None:
        return []
    known = families(facts)
    return [(ip, 53) for ip in service.ips if ip not in service.external_ips and is_ipv6(ip) in known]


def families(facts: Facts) -> list[bool]:
    """Return the IP families of this Node, True for IPv6; IPv4 alone while they are unknown."""
    node = facts.get(ThisNode)
    return sorted(node.families) if node else [False]
