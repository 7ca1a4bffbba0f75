"""Session with one collector: resolves it, sends due records, and reconnects; waiting records stay in the stores meanwhile."""

from __future__ import annotations

import asyncio
import ssl
import time
from typing import TYPE_CHECKING, Final

from antrea.errors import AntreaError, Unavailable
from antrea.facts.service import Service
from antrea.ipfix.message import MessageWriter, domain_of
from antrea.ipfix.template import Contents
from antrea.outside.ipfix.exporter import CollectorSession
from antrea.outside.kube.config_map import ConfigMap
from antrea.outside.kube.secret import SecretData
from antrea.outside.kube.tls_secret import pair_of
from antrea.outside.log import klog
from antrea.outside.tls.client_context import client_context
from antrea.outside.tls.server_context import load_pair

if TYPE_CHECKING:
    from collections.abc import Callable

    from antrea.apis.flow import FlowRecord
    from antrea.config.shape import Collector
    from antrea.engine import Facts
    from antrea.features.flow_export.settings import Trust
    from antrea.outside.grpc.flow_export import GrpcSession
    from antrea.outside.kube.client import Kube
    from antrea.outside.tls.server_context import Certificate

log = klog.logger(__name__)

TICK: Final = 0.5
"""Seconds between checks for due records."""
MAX_RECORDS: Final = 500
"""Maximum number of records that are sent before other tasks may run."""
FIRST_PAUSE, MAX_PAUSE = 1.0, 30.0
"""Seconds between tries to connect."""


class _NoService(Unavailable):
    """Error for a missing Service, known from facts, so that it is checked each second: the collector gets records as soon as
    it exists.
    """


class Destination:
    """One collector."""

    def __init__(
        self,
        facts: Facts,
        kube: Kube,
        collector: Collector,
        trust: Trust,
        node: str,
        due: Callable[[float, int], list[FlowRecord]],
        *,
        requests: bool = False,
    ) -> None:
        """`node` names the exporter, `due` gives at most so many records that are due at a monotonic time.

        `requests`: with the elements of requests.
        """
        self._requests = requests
        self._facts, self._kube, self._node, self._due = facts, kube, node, due
        self._collector, self._trust = collector, trust
        self._session: CollectorSession | GrpcSession | None = None
        self._unsent: list[FlowRecord] = []
        self.trouble = "not connected yet"
        """Why nothing is exported now; empty while records are exported."""
        self.exported = 0
        self.connections = 0

    async def run(self) -> None:
        """Run until cancelled."""
        pause = FIRST_PAUSE
        try:
            while True:
                try:
                    await self._connected()
                    await self._export()
                    wait, pause = TICK, FIRST_PAUSE
                except AntreaError as error:
                    self._failed(str(error))
                    await self._close()
                    wait = FIRST_PAUSE if isinstance(error, _NoService) else pause
                    pause = min(2 * wait, MAX_PAUSE)
                await asyncio.sleep(wait)
        finally:
            await self._close()

    def _failed(self, why: str) -> None:
        if why != self.trouble:
            log.warning("Failed to export flow records", collector=self._collector.host, err=why)
        self.trouble = why

    async def _connected(self) -> None:
        if self._session is not None:
            self._session.expect_open()
            return
        _, port, protocol = self._collector
        self._session, self.trouble = await self._opened(self._host(), port, protocol), ""
        self.connections += 1
        log.info("Connected to the flow collector", host=self._collector.host, port=port, protocol=protocol)

    async def _opened(self, host: str, port: int, protocol: str) -> CollectorSession | GrpcSession:
        domain, name = domain_of(self._node), self._trust.server_name
        if protocol == "grpc":
            # HTTP/2 and protocol buffers take 8 MiB, which no other agent has to have
            from antrea.outside.grpc.flow_export import GrpcSession  # noqa: PLC0415

            by_grpc = GrpcSession(domain)
            await by_grpc.open(host, port, await self._tls(), name)
            return by_grpc
        session = CollectorSession(
            MessageWriter(domain, contents=Contents(requests=self._requests, direction=True))
        )
        tls = await self._tls() if protocol == "tls" else None
        await session.open(host, port, protocol, tls, name if tls else "")
        return session

    def _host(self) -> str:
        host = self._collector.host
        if "/" not in host:
            return host
        service = self._facts.get(Service, host)
        if service is None or not service.cluster_ips:
            raise _NoService(f"Service {host} of the flow collector has no ClusterIP")
        return service.cluster_ips[0]

    async def _tls(self) -> ssl.SSLContext:
        """Make the context from the current authority of the collector and certificate of agents. Raises Unavailable, Refused,
        Invalid.
        """
        trust = self._trust
        namespace, _, name = trust.authority.partition("/")
        authority = await self._kube.get(f"/api/v1/namespaces/{namespace}/configmaps/{name}", ConfigMap)
        pem = authority.data.get("ca.crt", "") if authority else ""
        if not pem:
            raise Unavailable(
                f"ca.crt of ConfigMap {trust.authority}, which the flow collector is verified by"
            )
        pair = await self._pair() if trust.identity else None
        return await asyncio.to_thread(_context, pem, pair, trust)

    async def _pair(self) -> Certificate:
        namespace, _, name = self._trust.identity.partition("/")
        secret = await self._kube.get(f"/api/v1/namespaces/{namespace}/secrets/{name}", SecretData)
        pair = pair_of(secret) if secret else None
        if pair is None:
            raise Unavailable(
                f"tls.crt and tls.key of Secret {self._trust.identity}, the certificate of agents"
            )
        return pair

    async def _export(self) -> None:
        while records := self._unsent or self._due(time.monotonic(), MAX_RECORDS):
            self._unsent = records
            if self._session is None:
                return
            self.exported += await self._session.export(records)
            self._unsent = []

    async def _close(self) -> None:
        if self._session:
            await self._session.close()
        self._session = None


def _context(authority: str, pair: Certificate | None, trust: Trust) -> ssl.SSLContext:
    try:
        context = client_context(cadata=authority)
    except (ssl.SSLError, ValueError) as error:
        raise Unavailable(f"ca.crt of ConfigMap {trust.authority}: {error}") from error
    context.minimum_version = ssl.TLSVersion.TLSv1_3 if trust.tls13 else ssl.TLSVersion.TLSv1_2
    if pair:
        load_pair(context, pair)
    return context
