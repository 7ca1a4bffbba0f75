"""Streams of records, asked for by grpcio: what is there, what comes, what filters take, and what a user may not see."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import grpc.aio  # type: ignore[import-untyped]
import msgspec
import pytest
from aggregator_world import AUTHORITY, NAME, World, held, record, until
from certificate_world import api_server
from free_port import free_port

from antrea.config.flow_aggregator import AggregatorApi, FlowStreamService
from antrea.flow_aggregator import certificates, flow_stream
from antrea.flow_protobuf.record import read
from antrea.flow_protobuf.schema import GET_FLOWS, GetFlowsRequest, GetFlowsResponse
from antrea.outside.apiserver import authorization

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

SEEN: dict[str, set[str]] = {"ann": {"shop", "db"}, "root": {""}, "eve": set()}
"""Namespaces by user, whose name is the token; the empty one is all."""


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POD_NAMESPACE", "flow-aggregator")
    monkeypatch.setattr(certificates, "RETRY_SECONDS", 0.02)
    monkeypatch.setattr(flow_stream, "RIGHTS_SECONDS", 0.2)
    monkeypatch.setattr(authorization, "TTL_SECONDS", 0.1)


def reviewed(path: str, question: Any) -> dict[str, Any]:
    """kube-apiserver's answer to a TokenReview or a SubjectAccessReview."""
    spec = question["spec"]
    if path.endswith("/tokenreviews"):
        known = spec["token"] in SEEN
        return {"status": {"authenticated": known, "user": {"username": spec["token"]} if known else {}}}
    asked = spec["resourceAttributes"]
    allowed = SEEN[spec["user"]] & {"", asked.get("namespace", "")} and asked["resource"] == "flows"
    return {"status": {"allowed": bool(allowed)}}


@contextlib.asynccontextmanager
async def streaming(folder: Path, **config: Any) -> AsyncIterator[tuple[World, Any]]:
    port = free_port()
    async with api_server({}) as (server, kube):
        server.reviewed = reviewed
        here = World(
            folder, kube,
            flow_stream_service=FlowStreamService(enable=True, port=port, **config),
            api_server=AggregatorApi(api_port=free_port(), authorize_users=True), record_buffer_size=100,
        )  # fmt: skip
        async with here.running():
            await until(
                lambda: here.aggregator.streams and here.aggregator.streams.tls,
                "streams are served",
                here.state,
            )
            given = grpc.ssl_channel_credentials(held(server, AUTHORITY).certificate_pem.encode())
            named = (("grpc.ssl_target_name_override", NAME),)
            async with grpc.aio.secure_channel(f"127.0.0.1:{port}", given, named) as client:
                yield here, client


def between(port: int, source: str, destination: str, **more: Any) -> Any:
    return msgspec.structs.replace(
        record(port), source_pod_namespace=source, destination_pod_namespace=destination, **more
    )


def call(client: Any, token: str, **asked: Any) -> Any:
    headers = (("authorization", f"Bearer {token}"),) if token else ()
    method = client.unary_stream(GET_FLOWS)
    return method(GetFlowsRequest(**asked).SerializeToString(), metadata=headers, timeout=60)


async def ports(client: Any, token: str, **asked: Any) -> list[int]:
    return [
        flow.transport.source_port
        async for message in call(client, token, **asked)
        for flow in GetFlowsResponse.FromString(message).flows
    ]


async def test_a_stream_has_what_is_there_and_then_what_comes(tmp_path: Path) -> None:
    async with streaming(tmp_path) as (here, client):
        own = (tmp_path / "token").read_text()
        for port in range(250):
            here.aggregator._offer(
                between(
                    port,
                    "shop",
                    "db",
                    throughput=8,
                    flow_end_seconds_from_source_node=5,
                    source_pod_labels='{"app":"web"}',
                    destination_pod_labels="{}",
                )
            )
        assert await ports(client, own) == list(range(150, 250))
        assert await ports(client, own, max_count=3) == [150, 151, 152]
        following = call(client, own, follow=True, max_count=101)
        first = GetFlowsResponse.FromString(await following.read())
        assert (len(first.flows), first.dropped_count) == (100, 150)
        assert (
            first.flows[0].aggregation.throughput,
            first.flows[0].aggregation.end_ts_from_source.seconds,
        ) == (8, 5)
        assert read(first.flows[0]).source_pod_name == "web"
        [label] = first.flows[0].k8s.source_pod_labels.labels
        assert (label.key, label.value) == ("app", "web")
        assert first.flows[0].k8s.HasField("destination_pod_labels")
        here.aggregator._offer(record(9))
        more = GetFlowsResponse.FromString(await following.read())
        assert [flow.transport.source_port for flow in more.flows] == [9]
        assert await following.code() == grpc.StatusCode.OK


async def test_filters_take_what_upstreams_take(tmp_path: Path) -> None:
    async with streaming(tmp_path, anonymous=True) as (here, client):
        for one in (
            between(
                1, "shop", "db", source_pod_labels='{"app":"web"}', destination_service_port_name="db/sql:x"
            ),
            between(2, "db", "shop", source_ip="10.9.0.1", flow_type=3, flow_end_seconds=200),
            between(3, "other", "", destination_pod_name="z"),
        ):
            here.aggregator._offer(one)
        for wanted, found in (
            ([{"namespaces": ["shop"]}], [1, 2]),
            ([{"namespaces": ["shop"], "direction": 1}], [1]),
            ([{"namespaces": ["shop"], "direction": 2}], [2]),
            ([{"namespaces": ["shop"]}, {"ips": ["10.9.0.0/16"]}], [2]),
            ([{"ips": ["10.2.0.7", "fd00::/8"], "direction": 1}], []),
            ([{"pod_names": ["z"]}], [3]),
            ([{"pod_label_selector": "app in (web, x),!tier", "direction": 1}], [1]),
            ([{"service_names": ["sql"]}], [1]),
            ([{"flow_types": [3]}], [2]),
        ):  # fmt: skip
            assert await ports(client, "", filters=wanted) == found, wanted
        assert await ports(client, "", since={"seconds": 150}) == [2]
        for wrong in (
            {"ips": ["10.0.0.0/33"]}, {"pod_label_selector": "a b"}, {"service_names": ["s"], "direction": 1},
            {"direction": 9}, {"namespaces": ["n"] * 65},
        ):  # fmt: skip
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await ports(client, "", filters=[wrong])
            assert refused.value.code() == grpc.StatusCode.INVALID_ARGUMENT, wrong


async def test_a_user_gets_records_of_namespaces_that_the_user_may_see(tmp_path: Path) -> None:
    async with streaming(tmp_path) as (here, client):
        for one in (between(1, "shop", "db"), between(2, "shop", "other"), between(3, "", "db")):
            here.aggregator._offer(one)
        assert await ports(client, "root") == [1, 2, 3]
        shop = [{"namespaces": ["shop", "db"]}]
        assert await ports(client, "ann", filters=shop) == [1, 3]
        denied, unknown = grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.UNAUTHENTICATED
        for token, filters, code in (
            ("ann", [], denied), ("ann", [{"namespaces": ["other"]}], denied), ("eve", shop, denied),
            ("nobody", shop, unknown), ("", shop, unknown),
        ):  # fmt: skip
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await ports(client, token, filters=filters)
            assert refused.value.code() == code, token


async def test_a_stream_ends_when_its_user_may_see_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with streaming(tmp_path) as (here, client):
        monkeypatch.setitem(SEEN, "root", {""})
        following = call(client, "root", follow=True)
        here.aggregator._offer(between(1, "shop", "db"))
        assert await following.read()
        monkeypatch.setitem(SEEN, "root", set())
        with pytest.raises(grpc.aio.AioRpcError) as ended:
            await following.read()
        assert ended.value.code() == grpc.StatusCode.PERMISSION_DENIED
