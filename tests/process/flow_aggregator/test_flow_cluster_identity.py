"""The UUID of the cluster is `clusterId` of records, also when antrea-controller makes it after the aggregator has started."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import TYPE_CHECKING

from certificate_world import api_server
from free_port import free_port
from test_flow_aggregator_change import collecting, log_of
from test_flow_aggregator_process import halves, running, sent, until

from antrea.config.flow_aggregator import FlowAggregatorConfig
from antrea.flow_aggregator import cluster_identity
from antrea.flow_aggregator.cluster_identity import CONFIG_MAP, ClusterIdentity

if TYPE_CHECKING:
    from pathlib import Path

    import pytest
    from test_flow_aggregator_process import Running

    from antrea.apis.flow import FlowRecord
    from antrea.outside.kube.client import Kube

PATH = f"/api/v1/namespaces/kube-system/configmaps/{CONFIG_MAP}"
UUID = "0b3e0c3a-2f0c-4a53-9a3d-0f2d5f0f6f01"
MAP = {"metadata": {"namespace": "kube-system"}, "data": {"uuid": UUID}}


def kubeconfig(folder: Path, kube: Kube) -> str:
    text = {
        "clusters": [{"name": "c", "cluster": {"server": kube.access.url}}],
        "contexts": [{"name": "x", "context": {"cluster": "c"}}],
        "current-context": "x",
    }
    (folder / "kubeconfig").write_text(json.dumps(text))
    return str(folder / "kubeconfig")


async def cluster_of_a_record(aggregator: Running, got: list[FlowRecord]) -> str:
    got.clear()
    for node, half in zip(("n1", "n2"), halves(), strict=True):
        session = await sent(aggregator.port, node, "tcp", half)
        await session.close()
    await until(lambda: got, "a record")
    return got[0].cluster_id


async def test_records_have_the_uuid_of_the_cluster_once_it_has_one(tmp_path: Path) -> None:
    port = free_port()
    to = {"enable": True, "address": f"127.0.0.1:{port}:tcp"}
    async with api_server({}) as (server, kube), collecting(port) as got:
        kubeconfig(tmp_path, kube)
        async with running(tmp_path, flowCollector=to) as aggregator:
            assert await cluster_of_a_record(aggregator, got) == ""
            server.put(PATH, MAP)
            await until(lambda: "Starting anew" in log_of(aggregator), "the identity is read")
            await until(lambda: log_of(aggregator).count("Taking flow records") == 2, "it listens again")
            assert await cluster_of_a_record(aggregator, got) == UUID


async def test_a_uuid_that_comes_later_is_taken_and_one_of_the_configuration_wins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_identity, "RETRY_SECONDS", 0.02)
    async with api_server({}) as (server, kube):
        found = ClusterIdentity(kubeconfig(tmp_path, kube))
        await found.settle(0.2)
        assert (found.is_settled, found.named(FlowAggregatorConfig()).cluster_id) == (False, "")
        reading = asyncio.create_task(found.read())
        server.put(PATH, MAP)
        async with asyncio.timeout(10):
            await reading
    assert found.is_settled
    assert found.named(FlowAggregatorConfig()).cluster_id == UUID
    assert found.named(FlowAggregatorConfig(cluster_id="east")).cluster_id == "east"


async def test_outside_of_a_cluster_nothing_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    found = ClusterIdentity("")
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(1):
            await found.read()
    assert found.is_settled
