"""Health checks by load balancers: of each Service at its healthCheckNodePort, and of the proxy at port 10256.

Answers have the words, status codes and headers of kube-proxy's, so that load balancers work unchanged.
parity: third_party/proxy/healthcheck
"""

from __future__ import annotations

import asyncio
import json
import time
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from antrea.errors import Unavailable
from antrea.facts.member import AgentNode
from antrea.facts.node import LocalAddress, ThisNode
from antrea.facts.service import HealthCheck, Service, ServiceEndpoint
from antrea.features.proxy.health_check import listening_addresses, local_endpoints
from antrea.openflow.flow import Flow
from antrea.outside.http.probe_server import Answer, serve, timestamp
from antrea.outside.listener.listening_socket import listen
from antrea.outside.log import klog

if TYPE_CHECKING:
    from collections.abc import Callable

    from antrea.config.agent import AgentConfig
    from antrea.engine import Engine, Facts

    Report = Callable[[str, HealthCheck | None], None]

log = klog.logger(__name__)

LATE_SECONDS: Final = 120.0
"""A change of Services that takes longer than this to apply makes the proxy unhealthy."""
RETRY_SECONDS: Final = 5.0
"""Seconds between tries to listen at a port that another program has."""
HEADERS: Final = {"Content-Type": "application/json", "X-Content-Type-Options": "nosniff"}
NOT_FOUND: Final = HEADERS | {"Content-Type": "text/plain; charset=utf-8"}
FAMILIES: Final = {False: "IPv4", True: "IPv6"}


class ProxyHealth:
    """Health of the proxy: whether changes of Services take effect in time, and whether new connections should come to this
    Node at all.
    """

    def __init__(self, facts: Facts, node: str, now: Callable[[], float] = time.monotonic) -> None:
        self._facts, self._node, self._now = facts, node, now
        self._updated = now()
        self._waits_since: float | None = None

    async def run(self, engine: Engine) -> None:
        """Follow changes, until cancelled."""
        with self._facts.watch(Service, ServiceEndpoint) as changed:
            while True:
                changed.clear()
                self._waits_since = self._now()
                await engine.stand(Flow)
                self._waits_since, self._updated = None, self._now()
                await changed.wait()

    @property
    def healthy(self) -> bool:
        """Whether no change has been waiting for too long."""
        return self._waits_since is None or self._now() - self._waits_since < LATE_SECONDS

    def answer(self, path: str) -> Answer:
        """Answer /healthz, which also depends on the Node, and /livez."""
        if path not in ("/healthz", "/livez"):
            return Answer(404, "404 page not found\n", NOT_FOUND)
        node = self._facts.get(ThisNode)
        row = self._facts.get(AgentNode, self._node)
        eligible = row is not None and not row.being_removed
        good = self.healthy and (eligible or path == "/livez")
        current, updated = timestamp(), timestamp(self._now() - self._updated)
        state: dict[str, Any] = {
            "lastUpdated": current if good else updated,
            "currentTime": current,
            **({"nodeEligible": eligible} if path == "/healthz" else {}),
            "healthy": self.healthy,
            "status": {
                FAMILIES[ipv6]: {"lastUpdated": updated, "healthy": self.healthy}
                for ipv6 in sorted(node.families if node else ())
            },
        }
        return Answer(200 if good else 503, json.dumps(state, separators=(",", ":")), HEADERS)


class HealthServers:
    """Servers at the ports that Services request, as they come and go, and at that of the proxy."""

    def __init__(self, facts: Facts, config: AgentConfig, health: ProxyHealth, report: Report) -> None:
        """`report` gets why a port cannot be listened at, and its Service; without one for the proxy's own port."""
        self._facts, self._config, self._health, self._report = facts, config, health, report
        self._open: dict[tuple[str, HealthCheck], asyncio.Task[None]] = {}
        self._reported: set[str] = set()

    async def run(self) -> None:
        """Run until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._proxy())
            with self._facts.watch(HealthCheck, LocalAddress) as changed:
                while True:
                    changed.clear()
                    await self._follow(tasks)
                    missing = len(self._open) < len(self._wanted())
                    try:
                        async with asyncio.timeout(RETRY_SECONDS if missing else None):
                            await changed.wait()
                    except TimeoutError:
                        continue

    async def _proxy(self) -> None:
        ip, _, port = self._config.antrea_proxy.service_health_check_server_bind_address.rpartition(":")
        while True:
            try:
                at = listen(int(port), ip.strip("[]"))
            except Unavailable as error:
                self._report_once(f"The health of AntreaProxy cannot be asked for: {error}", None)
                await asyncio.sleep(RETRY_SECONDS)
            else:
                await serve(at, self._health.answer)

    def _wanted(self) -> set[tuple[str, HealthCheck]]:
        addresses = listening_addresses(self._facts, self._config)
        return {(ip, check) for check in self._facts.all(HealthCheck) for ip in addresses}

    async def _follow(self, tasks: asyncio.TaskGroup) -> None:
        """Close what is no longer wanted, then open what is: it may be the same port."""
        wanted = self._wanted()
        gone = [key for key in self._open if key not in wanted]
        for key in gone:
            self._open.pop(key).cancel()
        if gone:
            await asyncio.sleep(0)  # they have their turn, and close their sockets
        for ip, check in sorted(wanted - set(self._open), key=str):
            try:
                at = listen(check.port, ip)
            except Unavailable as error:
                self._report_once(f"Health checks of Service {check.key} cannot be answered: {error}", check)
            else:
                work = serve(at, partial(self.answer, check))
                self._open[ip, check] = tasks.create_task(work)

    def _report_once(self, message: str, check: HealthCheck | None) -> None:
        if message not in self._reported:
            self._reported.add(message)
            log.error("Failed to listen for health checks", err=message)
            self._report(message, check)

    def answer(self, check: HealthCheck, _: str = "/") -> Answer:
        """Answer whether this Node should get packets for a Service; the same for each path."""
        count, healthy = local_endpoints(self._facts, check.key), self._health.healthy
        state = {
            "service": {"namespace": check.namespace, "name": check.name},
            "localEndpoints": count,
            "serviceProxyHealthy": healthy,
        }
        headers = HEADERS | {"X-Load-Balancing-Endpoint-Weight": str(count)}
        return Answer(200 if count and healthy else 503, json.dumps(state, indent="\t"), headers)
