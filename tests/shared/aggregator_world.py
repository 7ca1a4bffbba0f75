"""A flow aggregator in this process, over TLS, with a cluster's API server on loopback that keeps its certificates."""

from __future__ import annotations

import asyncio
import contextlib
import csv
import json
import re
import ssl
import urllib.request
from typing import TYPE_CHECKING, Any

from certificate_world import ApiServer, api_server
from free_port import free_port

from antrea.apis.flow import FlowRecord
from antrea.config.flow_aggregator import AggregatorApi, FlowAggregatorConfig, FlowLogger, GrpcCollector
from antrea.flow_aggregator.aggregator import Aggregator
from antrea.ipfix.message import MessageWriter
from antrea.outside.ipfix.exporter import CollectorSession
from antrea.outside.kube.secret import SecretData
from antrea.outside.kube.tls_secret import pair_of
from antrea.outside.tls.client_context import client_context
from antrea.outside.tls.server_context import Certificate, load_pair

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from antrea.outside.kube.client import Kube

NAME = "flow-aggregator.flow-aggregator.svc"
WHERE = "/api/v1/namespaces/flow-aggregator"
AUTHORITY, AGENTS = (f"{WHERE}/secrets/flow-aggregator-{name}" for name in ("ca-tls", "client-tls"))
PUBLISHED = f"{WHERE}/configmaps/flow-aggregator-ca"


async def until(true: Callable[[], object], what: str = "", state: Callable[[], object] = str) -> None:
    """Wait for `what` to be true; `state` is shown if it does not come."""
    try:
        async with asyncio.timeout(60):
            while not true():  # noqa: ASYNC110 (the network and other processes)
                await asyncio.sleep(0.02)
    except TimeoutError:
        raise AssertionError(f"not in time: {what or true}; {state()}") from None


def write_kubeconfig(folder: Path, kube: Kube) -> None:
    text = {
        "clusters": [{"name": "c", "cluster": {"server": kube.access.url}}],
        "contexts": [{"name": "x", "context": {"cluster": "c"}}],
        "current-context": "x",
    }
    (folder / "kubeconfig").write_text(json.dumps(text))


class World:
    """An aggregator in this process, on the cluster's API server; `config` changes its configuration."""

    def __init__(self, folder: Path, kube: Kube, **config: Any) -> None:
        self.folder, self.kube, self.api = folder, kube, free_port()
        write_kubeconfig(folder, kube)
        logger = FlowLogger(enable=True, path=str(folder / "flows.log"))
        shape: dict[str, Any] = {
            "collector_port": free_port(), "grpc_collector": GrpcCollector(port=free_port()),
            "api_server": AggregatorApi(api_port=self.api), "flow_logger": logger,
            **config,
        }  # fmt: skip
        self.aggregator = Aggregator(
            FlowAggregatorConfig(**shape), folder / "token", str(folder / "kubeconfig")
        )

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """While records are taken; an aggregator that ends before the block does fails it with its reason."""
        async with asyncio.TaskGroup() as tasks:
            run = tasks.create_task(self.aggregator.run(), name="aggregator")
            await until(self.aggregator.intake.listens.is_set, "records are taken", self.state)
            yield
            run.cancel()

    def state(self) -> str:
        """Where records are, for the message of a wait that fails."""
        taken, flows = self.aggregator.intake, self.aggregator.flows
        to = [
            (one.name, one.exported, one.waiting, one.dropped, one.trouble) for one in self.aggregator._to.all
        ]
        return (
            f"{taken.trouble or 'records are taken'}, {taken.received} received in {taken.sessions} sessions, "
            f"{taken.refused} messages refused, {taken.rejected} sessions rejected; {len(flows)} connections, "
            f"{flows.dropped} dropped; destinations (exported, waiting, dropped, trouble): {to}; ports: {self.ports}"
        )

    @property
    def ports(self) -> list[int]:
        """Source ports of the log's records."""
        path = self.folder / "flows.log"
        return [int(row[4]) for row in csv.reader(path.read_text().splitlines())] if path.exists() else []

    def rejected(self) -> int:
        token, context = (self.folder / "token").read_text(), ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        asked = urllib.request.Request(
            f"https://127.0.0.1:{self.api}/metrics", headers={"Authorization": f"Bearer {token}"}
        )
        with urllib.request.urlopen(asked, context=context, timeout=30) as answer:
            text = answer.read().decode()
        found = re.search(r"^antrea_flow_aggregator_rejected_session_count (\d+)", text, re.MULTILINE)
        assert found
        return int(found[1])

    async def send(self, port: int, pair: Certificate | None, root: str, *, host: str = "127.0.0.1") -> None:
        """One record with this source port, as a client with this certificate."""
        tls = client_context(cadata=root)
        if pair:
            load_pair(tls, pair)
        session = CollectorSession(MessageWriter(1))
        try:
            await session.open(host, self.aggregator.intake.port, "tls", tls, NAME)
            await session.export([record(port)])
            # until it is taken or refused
            await until(lambda: port in self.ports or session.trouble, f"a record of {port}", self.state)
            session.expect_open()
        finally:
            await session.close()


def record(port: int) -> FlowRecord:
    return FlowRecord(
        source_ip="10.1.0.5", destination_ip="10.2.0.7", source_transport_port=port, destination_transport_port=80,
        protocol_identifier=6, flow_type=1, source_pod_name="web", destination_pod_name="db",
        flow_start_seconds=100, flow_end_seconds=110,
    )  # fmt: skip


def held(server: ApiServer, path: str) -> Certificate:
    pair = pair_of(SecretData(data=server.objects[path]["data"]))
    assert pair
    return pair


@contextlib.asynccontextmanager
async def world(folder: Path) -> AsyncIterator[tuple[World, ApiServer]]:
    async with api_server({}) as (server, kube):
        found = World(folder, kube)
        async with found.running():
            yield found, server
