"""Mode Proxy: several replicas with one authority pass each record on at once, with the other end's Pod."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from aggregator_world import AGENTS, AUTHORITY, World, held, record, until
from certificate_world import api_server
from free_port import free_port

from antrea.apis.flow import FlowRecord, FlowType
from antrea.config.flow_aggregator import FlowAggregatorConfig, FlowCollector, FlowLogger, RecordContents
from antrea.errors import Invalid
from antrea.flow_aggregator import certificates
from antrea.flow_aggregator.configuration import accept
from antrea.ipfix.decode import Decoder
from antrea.ipfix.message import MessageWriter
from antrea.ipfix.template import Contents
from antrea.outside.ipfix.exporter import CollectorSession
from antrea.outside.tls.client_context import client_context
from antrea.outside.tls.server_context import load_pair

if TYPE_CHECKING:
    from pathlib import Path

    from certificate_world import ApiServer

NAME = "flow-aggregator.flow-aggregator.svc"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POD_NAMESPACE", "flow-aggregator")
    monkeypatch.setattr(certificates, "RETRY_SECONDS", 0.02)


def pod(name: str, node: str, *ips: str, **spec: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "namespace": "shop"},
        "spec": {"nodeName": node, **spec},
        "status": {"phase": "Running", "podIPs": [{"ip": ip} for ip in ips]},
    }


def labelled(found: dict[str, Any], **labels: str) -> dict[str, Any]:
    return {**found, "metadata": {**found["metadata"], "labels": labels}}


PODS = {
    "/api/v1/namespaces/shop/pods/db": pod("db", "n2", "10.2.0.7", "fd00:2::7"),
    "/api/v1/namespaces/shop/pods/host": pod("host", "n3", "10.2.0.9", hostNetwork=True),
}


def proxied(folder: Path, kube: Any, port: int) -> World:
    folder.mkdir()
    to = FlowCollector(enable=True, address=f"127.0.0.1:{port}:tcp", observation_domain_id=9)
    return World(folder, kube, mode="Proxy", flow_logger=FlowLogger(), flow_collector=to, cluster_id="c1")


async def sent(
    to: World, server: ApiServer, host: str, domain: int, *records: FlowRecord
) -> CollectorSession:
    tls = client_context(cadata=held(server, AUTHORITY).certificate_pem)
    load_pair(tls, held(server, AGENTS))
    contents = Contents(requests=any(one.http_vals for one in records))
    session = CollectorSession(MessageWriter(domain, contents=contents))
    await session.open(host, to.aggregator.intake.port, "tls", tls, NAME)
    assert await session.export(records) == len(records)
    return session


async def collect(port: int, got: list[FlowRecord]) -> None:
    """A collector that changes nothing of what it reads."""

    writers: list[asyncio.StreamWriter] = []

    async def read(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        decoder = Decoder()
        while head := await reader.read(4):
            head += await reader.readexactly(4 - len(head))
            got.extend(decoder.read(head + await reader.readexactly(int.from_bytes(head[2:]) - 4))[1])

    server = await asyncio.start_server(read, "127.0.0.1", port)
    try:
        await asyncio.Event().wait()
    finally:
        server.close()
        for one in writers:
            one.close()
            await one.wait_closed()


async def test_replicas_pass_on_each_half_with_the_other_ends_pod(tmp_path: Path) -> None:
    between = msgspec.structs.replace(
        record(1000), flow_type=int(FlowType.INTER_NODE), source_node_name="n1", destination_pod_name=""
    )
    in_ipv6 = msgspec.structs.replace(
        between, source_ip="fd00:1::5", destination_ip="fd00:2::7", source_transport_port=1001
    )
    to_host = msgspec.structs.replace(between, destination_ip="10.2.0.9", source_transport_port=1002)
    got: list[FlowRecord] = []
    port = free_port()
    async with api_server(PODS) as (server, kube):
        replicas = [proxied(tmp_path / name, kube, port) for name in ("a", "b")]
        running = [asyncio.create_task(one.aggregator.run()) for one in replicas]
        running.append(asyncio.create_task(collect(port, got)))
        for one in replicas:
            await until(one.aggregator.intake.listens.is_set)
        sessions = [
            await sent(replicas[0], server, "127.0.0.1", 77, between, to_host),
            await sent(replicas[1], server, "::1", 78, in_ipv6),
        ]
        await until(lambda: len(got) == 3)
        by_port = {one.source_transport_port: one for one in got}
        for at, domain, exporter in ((1000, 77, ("127.0.0.1", "")), (1001, 78, ("", "::1"))):
            read = by_port[at]
            assert read.original_observation_domain_id == domain
            assert (read.original_exporter_ipv4, read.original_exporter_ipv6) == exporter
            assert (read.source_pod_name, read.source_node_name) == ("web", "n1")
            assert (read.destination_pod_namespace, read.destination_pod_name) == ("shop", "db")
            assert (read.destination_node_name, read.cluster_id, read.flow_direction) == ("n2", "c1", 1)
        assert by_port[1002].destination_pod_name == ""
        for session in sessions:
            await session.close()
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


async def test_joined_records_have_labels_of_both_pods_and_requests_if_they_are_asked_for(
    tmp_path: Path,
) -> None:
    got: list[FlowRecord] = []
    port = free_port()
    sent_one = msgspec.structs.replace(
        record(1000), app_protocol_name="http", http_vals='{"0":{"url":"/"}}', source_ip="10.2.0.8"
    )
    pods = {
        **PODS,
        "/api/v1/namespaces/shop/pods/db": labelled(pod("db", "n2", "10.2.0.7"), tier="b", app="db"),
        "/api/v1/namespaces/shop/pods/web": pod("web", "n1", "10.2.0.8"),
    }
    async with api_server(pods) as (server, kube):
        to = FlowCollector(enable=True, address=f"127.0.0.1:{port}:tcp")
        contents = RecordContents(pod_labels=True, requests=True)
        here = World(tmp_path, kube, flow_collector=to, record_contents=contents)
        running = [asyncio.create_task(one) for one in (here.aggregator.run(), collect(port, got))]
        await until(here.aggregator.intake.listens.is_set, "records are taken", here.state)
        session = await sent(here, server, "127.0.0.1", 77, sent_one)
        await until(lambda: got, "a record at the collector", here.state)
        assert (got[0].source_pod_labels, got[0].destination_pod_labels) == ("{}", '{"app":"db","tier":"b"}')
        assert (got[0].app_protocol_name, got[0].http_vals) == ("http", '{"0":{"url":"/"}}')
        await session.close()
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


OF = {
    name: f"0b4f2f6c-5b5e-4c39-9d0f-{at:012x}"
    for at, name in enumerate(("db", "n1", "n2", "n3", "sql"), start=1)
}
"""UIDs by the names of objects."""


@pytest.mark.parametrize("mode", ["Aggregate", "Proxy"])
async def test_uids_that_agents_do_not_have_are_those_of_the_cluster(mode: str, tmp_path: Path) -> None:
    """Of both Nodes, of the Egress's Node and of the Service; in mode Proxy of the other end's Pod, too."""
    db = pod("db", "n2", "10.2.0.7")
    objects = {
        "/api/v1/namespaces/shop/pods/db": {**db, "metadata": {**db["metadata"], "uid": OF["db"]}},
        "/api/v1/namespaces/shop/services/sql": {
            "metadata": {"namespace": "shop", "name": "sql", "uid": OF["sql"]}
        },
        **{
            f"/api/v1/nodes/{name}": {"metadata": {"name": name, "uid": OF[name]}}
            for name in ("n1", "n2", "n3")
        },
    }
    half = msgspec.structs.replace(
        record(1000), flow_type=int(FlowType.INTER_NODE), source_node_name="n1", destination_pod_name="",
        destination_service_port_name="shop/sql:main", egress_node_name="n3",
    )  # fmt: skip
    other = msgspec.structs.replace(
        half, source_pod_name="", source_node_name="", destination_pod_name="db", destination_node_name="n2"
    )
    got: list[FlowRecord] = []
    port = free_port()
    async with api_server(objects) as (server, kube):
        to = FlowCollector(enable=True, address=f"127.0.0.1:{port}:tcp", include_k8s_uids=True)
        here = World(tmp_path, kube, mode=mode, flow_collector=to, flow_logger=FlowLogger())
        collecting = asyncio.create_task(collect(port, got))
        async with here.running():
            halves = (half,) if mode == "Proxy" else (half, other)
            sessions = [await sent(here, server, "127.0.0.1", 70 + at, one) for at, one in enumerate(halves)]
            await until(lambda: got, "a record at the collector", here.state)
            for session in sessions:
                await session.close()
        collecting.cancel()
        await asyncio.gather(collecting, return_exceptions=True)
    [read] = got
    assert (read.source_node_uid, read.destination_node_uid) == (OF["n1"], OF["n2"])
    assert (read.egress_node_uid, read.destination_service_uid) == (OF["n3"], OF["sql"])
    assert read.destination_pod_uid == (OF["db"] if mode == "Proxy" else "")


def test_outputs_that_take_joined_records_alone_are_refused() -> None:
    with pytest.raises(Invalid, match=r"flowLogger\.enable: must be false in mode Proxy"):
        accept(FlowAggregatorConfig(mode="Proxy", flow_logger=FlowLogger(enable=True)))
