"""The UUID of the cluster: given once, kept whatever it is."""

from __future__ import annotations

import asyncio
import uuid
from typing import TYPE_CHECKING, Any

import pytest
from certificate_world import api_server, until

from antrea.controller.managed import runtime
from antrea.controller.managed.runtime import keep_identity

if TYPE_CHECKING:
    from certificate_world import ApiServer

PATH = "/api/v1/namespaces/kube-system/configmaps/antrea-cluster-identity"


def given(server: ApiServer) -> str:
    return str(server.objects[PATH]["data"]["uuid"])


async def test_a_cluster_gets_an_identity_once_and_keeps_it() -> None:
    async with api_server({}) as (server, kube):
        await keep_identity(kube, "kube-system")
        first = given(server)
        assert str(uuid.UUID(first)) == first
        assert server.objects[PATH]["metadata"]["labels"] == {"app": "antrea"}
        await keep_identity(kube, "kube-system")
        assert (given(server), len(server.writes)) == (first, 1)


@pytest.mark.parametrize("data", [{}, {"uuid": ""}])
async def test_an_empty_config_map_is_filled(data: dict[str, Any]) -> None:
    async with api_server({PATH: {"data": data, "metadata": {"labels": {"mine": "yes"}}}}) as (server, kube):
        await keep_identity(kube, "kube-system")
        assert uuid.UUID(given(server)).version == 4
        assert server.objects[PATH]["metadata"]["labels"] == {"mine": "yes"}


async def test_an_identity_that_is_none_is_left_to_who_wrote_it() -> None:
    async with api_server({PATH: {"data": {"uuid": "ours"}}}) as (server, kube):
        await keep_identity(kube, "kube-system")
        assert (given(server), server.writes) == ("ours", [])


async def test_an_identity_is_given_as_soon_as_the_api_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime, "RETRY_SECONDS", 0.05)
    async with api_server({}) as (server, kube):
        server.refuse = "RBAC says no"
        giving = asyncio.create_task(keep_identity(kube, "kube-system"))
        await until(lambda: len(server.writes) > 1)
        server.refuse = ""
        await giving
        assert given(server)
