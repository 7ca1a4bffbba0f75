"""Whose names a cache of DNS answers keeps, the servers that the agent asks for them, and those that it believes."""

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
    """Whose names a cache keeps."""

    patterns: type[FqdnPattern]
    """Rows of what rules name."""
    addresses: type[FqdnAddress]
    """Rows that are written."""
    keep: Path
    """File of the addresses."""
    servers: Callable[[], list[tuple[str, int]]]
    """Those that the agent asks, in their order."""
    trusts: Callable[[str], bool]
    """Whether answers count that come from an address."""
    own: Callable[[str, OwnAnswer], Fact]
    """Row for a pattern and an answer of a server that is not trusted."""
    name: str = "pods"
    """By which its addresses are asked for: `pods` or `node`."""


def pod_scope(facts: Facts, config: AgentConfig, keep: Path) -> NameScope:
    """Names in policies on Pods."""
    return NameScope(
        FqdnPattern,
        FqdnAddress,
        keep,
        partial(cluster_servers, facts, config),
        TrustedServers(facts, config, node_resolvers).trusts,
        lambda pattern, found: FqdnAddress(pattern, found.address, found.pod),
    )


def node_resolvers() -> list[tuple[str, int]]:
    """Those in the Node's resolv.conf."""
    from antrea.outside.name_server import configured_servers  # noqa: PLC0415 (3.4 MiB)

    return configured_servers()


def cluster_servers(facts: Facts, config: AgentConfig) -> list[tuple[str, int]]:
    """Address and port of `dnsServerOverride`, else of the cluster's DNS Service."""
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
