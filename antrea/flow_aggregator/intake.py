"""What the aggregator takes in: the collector of agents' records, its certificates, and in mode Proxy the Pods of the cluster."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from antrea.flow_aggregator.certificates import Certificates
from antrea.flow_aggregator.pod_addresses import PodAddresses
from antrea.flow_aggregator.proxy import complete
from antrea.outside.ipfix.collector import Collector
from antrea.outside.kube.client import Kube
from antrea.outside.kube.environment import own_namespace
from antrea.outside.log import klog

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

    from antrea.apis.flow import FlowRecord
    from antrea.config.flow_aggregator import FlowAggregatorConfig

log = klog.logger(__name__)


class Intake:
    """Gives each record to `take`, in mode Proxy once it is complete."""

    def __init__(
        self, config: FlowAggregatorConfig, kubeconfig: str, take: Callable[[FlowRecord], None]
    ) -> None:
        """`kubeconfig` empty: as this Pod."""
        self._config, self._kubeconfig, self._take = config, kubeconfig, take
        self._proxies = config.mode == "Proxy"
        self._pods = PodAddresses()
        self.collector = Collector(self._complete if self._proxies else take)
        self.listens = asyncio.Event()
        """Set once records are taken, at `port`."""
        self.port = 0

    @property
    def trouble(self) -> str:
        """Why records are not taken though they should be; empty: they are."""
        needed = self._config.aggregator_transport_protocol != "none"
        return "records are not taken yet" if needed and not self.listens.is_set() else ""

    async def run(self) -> None:
        """Take records until cancelled, over TLS once there are certificates. Raises Unavailable: the port is taken."""
        protocol = self._config.aggregator_transport_protocol
        if protocol == "none":
            return
        if protocol != "tls":
            log.warning(
                "Taking records without certificates: any client that reaches the port can send them",
                protocol=protocol,
            )
        if protocol != "tls" and not self._proxies:
            await self._serve(protocol)
            return
        async with Kube.connect(self._kubeconfig) as kube, asyncio.TaskGroup() as tasks:
            if self._proxies:
                tasks.create_task(self._pods.run(kube), name="Pods")
                await self._pods.listed.wait()
            if protocol == "tls":
                await self._certified(kube, tasks)
            await self._serve(protocol)

    async def _certified(self, kube: Kube, tasks: asyncio.TaskGroup) -> None:
        loaded = asyncio.Event()

        async def present(context: ssl.SSLContext) -> None:
            self.collector.tls = context
            loaded.set()
            await self.collector.end_sessions()

        certificates = Certificates(kube, own_namespace(), self._config.flow_aggregator_address, present)
        tasks.create_task(certificates.run(), name="certificates")
        await loaded.wait()

    async def _serve(self, protocol: str) -> None:
        await self.collector.serve("", self._config.collector_port, protocol, self._ready)

    def _ready(self, port: int) -> None:
        self.port = port
        self.listens.set()
        log.info(
            "Taking records of connections", port=port, protocol=self._config.aggregator_transport_protocol
        )

    def _complete(self, record: FlowRecord) -> None:
        complete(record, self._pods)
        self._take(record)
