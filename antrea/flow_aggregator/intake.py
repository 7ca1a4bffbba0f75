"""Intake of the aggregator: the collectors of agents' records, their certificates, and in mode Proxy the Pods of the cluster."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from antrea.flow_aggregator.certificates import Certificates
from antrea.flow_aggregator.object_uids import ObjectUids, add_uids
from antrea.flow_aggregator.pod_addresses import PodAddresses
from antrea.flow_aggregator.proxy import add_labels, add_names, complete
from antrea.outside.grpc.flow_collector import GrpcCollector
from antrea.outside.ipfix.collector import Collector
from antrea.outside.kube.client import Kube
from antrea.outside.kube.environment import own_namespace
from antrea.outside.log import klog

if TYPE_CHECKING:
    import ssl
    from collections.abc import Awaitable, Callable, Iterable

    from antrea.apis.flow import FlowRecord
    from antrea.config.flow_aggregator import FlowAggregatorConfig

log = klog.logger(__name__)


class Intake:
    """Gives each record to `take`, in mode Proxy once it is complete."""

    def __init__(
        self,
        config: FlowAggregatorConfig,
        kubeconfig: str,
        take: Callable[[FlowRecord], None],
        present: Callable[[ssl.SSLContext], Awaitable[None]],
    ) -> None:
        """`kubeconfig` empty: as this Pod; `present` is given the TLS of the aggregator for clients without a certificate."""
        self._present = present
        self._config, self._kubeconfig, self._take = config, kubeconfig, take
        self._proxies = config.mode == "Proxy"
        self._labels = config.record_contents.pod_labels
        self._names = self._labels or config.record_contents.pod_names
        self._pods = PodAddresses(labels=self._labels)
        has_uids = config.flow_collector.enable and config.flow_collector.include_k8s_uids
        self._uids = (ObjectUids("/api/v1/nodes"), ObjectUids("/api/v1/services")) if has_uids else ()
        to = self._complete if self._proxies else take
        self._ipfix, self._grpc = Collector(to), GrpcCollector(to)
        wanted = {
            config.aggregator_transport_protocol: config.aggregator_transport_protocol != "none",
            "grpc": config.grpc_collector.enable,
        }
        self._wanted = [protocol for protocol, is_wanted in wanted.items() if is_wanted]
        self._certificates: Certificates | None = None
        self.ports: dict[str, int] = {}
        """Where records are taken, by protocol."""
        self.listens = asyncio.Event()
        """Set once they are taken wherever they should be."""

    @property
    def port(self) -> int:
        """Where records are taken as IPFIX; 0: nowhere."""
        return self.ports.get(self._config.aggregator_transport_protocol, 0)

    @property
    def trouble(self) -> str:
        """Why records are not taken though they should be; empty: they are."""
        missing = [protocol for protocol in self._wanted if protocol not in self.ports]
        why = f": {self.certificates_trouble}" if self.certificates_trouble else ""
        return f"records are not taken yet over {' and '.join(missing)}{why}" if missing else ""

    @property
    def certificates_trouble(self) -> str:
        """Why the certificates are not as they should be; empty: they are, or none are needed."""
        return self._certificates.trouble if self._certificates else ""

    @property
    def received(self) -> int:
        """Records."""
        return self._ipfix.received + self._grpc.received

    @property
    def sessions(self) -> int:
        """Open ones, but for UDP, which has none."""
        return self._ipfix.sessions + self._grpc.sessions

    @property
    def refused(self) -> int:
        """Messages that were malformed."""
        return self._ipfix.refused + self._grpc.refused

    @property
    def rejected(self) -> int:
        """Connections that were no session."""
        return self._ipfix.rejected + self._grpc.rejected

    @property
    def interrupted(self) -> int:
        """Sessions that a reset, a time limit or an end within a message has ended."""
        return self._ipfix.interrupted + self._grpc.interrupted

    async def run(self) -> None:
        """Take records until cancelled, once there are certificates where they are needed. Raises Unavailable: a port is taken."""
        by_certificate = {"tls", "grpc"}.intersection(self._wanted)
        for protocol in set(self._wanted) - by_certificate:
            log.warning(
                "Taking records without certificates: any client that reaches the port can send them",
                protocol=protocol,
            )
        needs_pods = self._proxies or self._names
        needs_certificates = by_certificate or self._config.flow_stream_service.enable
        if not needs_certificates and not needs_pods and not self._uids:
            await self._serve(self._wanted)
            return
        async with Kube.connect(self._kubeconfig) as kube, asyncio.TaskGroup() as tasks:
            if needs_pods:
                tasks.create_task(self._pods.run(kube), name="Pods")
                await self._pods.listed.wait()
            for uids in self._uids:
                tasks.create_task(uids.run(kube), name="UIDs")
                await uids.listed.wait()
            open_ones = [protocol for protocol in self._wanted if protocol not in by_certificate]
            tasks.create_task(self._serve(open_ones), name="records without certificates")
            if needs_certificates:
                await self._certified(kube, tasks)
            await self._serve(by_certificate)

    async def _certified(self, kube: Kube, tasks: asyncio.TaskGroup) -> None:
        loaded = asyncio.Event()

        async def present(context: ssl.SSLContext, without_client: ssl.SSLContext) -> None:
            without_client.set_alpn_protocols(["h2"])
            context.set_alpn_protocols(["h2"])
            self._grpc.tls = context
            if "tls" in self._wanted:
                self._ipfix.tls = context
            loaded.set()
            await self._grpc.end_sessions()
            await self._ipfix.end_sessions()
            await self._present(without_client)

        address = self._config.flow_aggregator_address
        self._certificates = Certificates(kube, own_namespace(), address, present)
        tasks.create_task(self._certificates.run(), name="certificates")
        await loaded.wait()

    async def _serve(self, protocols: Iterable[str]) -> None:
        """Serve these protocols, if there are any, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for protocol in protocols:
                ready = partial(self._ready, protocol)
                if protocol == "grpc":
                    serving = self._grpc.serve_streams("", self._config.grpc_collector.port, ready)
                else:
                    serving = self._ipfix.serve("", self._config.collector_port, protocol, ready)
                tasks.create_task(serving, name=f"records over {protocol}")

    def _ready(self, protocol: str, port: int) -> None:
        self.ports[protocol] = port
        if not self.trouble:
            self.listens.set()
        log.info("Taking flow records", port=port, protocol=protocol)

    def add_asked(self, record: FlowRecord) -> None:
        """Labels of its Pods, the other end's Pod where one Node alone made a record, and UIDs that its agents did not have: what is asked for."""
        if self._names:
            add_names(record, self._pods)
        if self._labels:
            add_labels(record, self._pods)
        if self._uids:
            add_uids(record, *self._uids)

    def _complete(self, record: FlowRecord) -> None:
        complete(record, self._pods)
        self._take(record)
