"""DNS servers whose answers count for rules on names.

A Pod may query any server that policies let it reach, and this server may give any address any name: only answers of servers
that the cluster or its administrator has chosen count.
"""

from __future__ import annotations

import time
from ipaddress import ip_address, ip_network
from typing import TYPE_CHECKING

from antrea.config.shape import host_and_port
from antrea.facts.node import LocalAddress
from antrea.facts.service import Service
from antrea.features.network_policy.agent.dns_server import KUBE_DNS, DnsEndpoint

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from antrea.config.agent import AgentConfig
    from antrea.engine import Facts

READ_SECONDS = 30.0
"""Seconds for which the Node's resolvers are cached."""


class TrustedServers:
    """Trusted servers; `resolvers` reads those of the Node."""

    def __init__(
        self, facts: Facts, config: AgentConfig, resolvers: Callable[[], Sequence[tuple[str, int]]]
    ) -> None:
        self._facts, self._resolvers = facts, resolvers
        self._networks = [ip_network(text, strict=False) for text in config.fqdn_trusted_dns_servers]
        self._override = (
            host_and_port(config.dns_server_override, 53)[0] if config.dns_server_override else ""
        )
        self._read: frozenset[str] = frozenset()
        self._read_until = 0.0

    def trusts(self, server: str) -> bool:
        """Whether answers from this address, in Python's format, count."""
        address = ip_address(server)
        if any(address in network for network in self._networks):
            return True
        if self._is_of_kube_dns(server):
            return True
        # a Service may take over addresses outside the cluster, and a tenant chooses its Endpoints
        if any(row.key != KUBE_DNS for row in self._facts.by(Service, "external_ip", server)):
            return False
        if server == self._override or server in self._node_resolvers():
            return True
        is_local = address.is_loopback or address.is_link_local
        return is_local or self._facts.get(LocalAddress, server) is not None

    def _is_of_kube_dns(self, server: str) -> bool:
        service = self._facts.get(Service, KUBE_DNS)
        if service is not None and server in service.cluster_ips:
            return True
        return bool(self._facts.by(DnsEndpoint, "ip", server))

    def _node_resolvers(self) -> frozenset[str]:
        now = time.monotonic()
        if now >= self._read_until:
            self._read = frozenset(server for server, _ in self._resolvers())
            self._read_until = now + READ_SECONDS
        return self._read
