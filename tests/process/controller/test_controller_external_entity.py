"""ExternalEntities of ExternalNodes, as an API server on loopback has them."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from certificate_world import api_server

from antrea.apis.generated_entity import GeneratedEntity
from antrea.errors import Refused
from antrea.features.external_node.controller_part import REASON, ExternalEntitySink

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from certificate_world import ApiServer

ENTITIES = "/apis/crd.antrea.io/v1alpha2/namespaces/vms/externalentities"


def entity(name: str = "vm1", uid: str = "u1", ip: str = "192.0.2.7", **labels: str) -> GeneratedEntity:
    return GeneratedEntity(
        namespace="vms", name=name, owner="vm1", uid=uid, labels=tuple(labels.items()), endpoints=((ip, ""),)
    )


def stored(uid: str = "u1", kind: str = "ExternalNode", **labels: str) -> dict[str, Any]:
    owner = {"apiVersion": "crd.antrea.io/v1alpha1", "kind": kind, "name": "vm1", "uid": uid}
    meta = {"namespace": "vms", "uid": "e", "labels": labels, "ownerReferences": [owner]}
    return {"metadata": meta, "spec": {"endpoints": [{"ip": "192.0.2.7"}], "externalNode": "vm1"}}


@asynccontextmanager
async def served(
    objects: dict[str, dict[str, Any]] | None = None,
) -> AsyncIterator[tuple[ExternalEntitySink, ApiServer]]:
    async with api_server(objects or {}) as (server, kube):
        yield ExternalEntitySink(kube), server


def events(server: ApiServer) -> list[str]:
    return [
        one["message"]
        for path, one in server.objects.items()
        if "/events/" in path and one["reason"] == REASON
    ]


async def test_an_entity_is_created_changed_and_deleted() -> None:
    async with served() as (sink, server):
        await sink.apply([entity(role="db", tier="a")], [])
        made = server.objects[f"{ENTITIES}/vm1"]
        owner = {"apiVersion": "crd.antrea.io/v1alpha1", "kind": "ExternalNode", "name": "vm1", "uid": "u1"}
        assert made["metadata"]["ownerReferences"] == [owner]
        assert made["metadata"]["labels"] == {"role": "db", "tier": "a"}
        assert made["spec"] == {"endpoints": [{"ip": "192.0.2.7"}], "externalNode": "vm1"}
        await sink.apply([entity(ip="192.0.2.8", role="web")], [])
        made = server.objects[f"{ENTITIES}/vm1"]
        assert made["metadata"]["labels"] == {"role": "web"}
        assert made["spec"]["endpoints"] == [{"ip": "192.0.2.8"}]
        await sink.apply([], [entity()])
        assert f"{ENTITIES}/vm1" not in server.objects


async def test_what_is_as_it_should_be_is_not_written() -> None:
    async with served({f"{ENTITIES}/vm1": stored(role="db")}) as (sink, server):
        await sink.resync([entity(role="db")])
        assert server.writes == []


async def test_an_entity_that_somebody_else_made_stays_and_an_event_names_it() -> None:
    async with served({f"{ENTITIES}/vm1": stored(kind="CloudInstance")}) as (sink, server):
        for _ in range(2):
            with pytest.raises(Refused, match="was not made for an ExternalNode"):
                await sink.apply([entity(ip="192.0.2.9"), entity("vm1-a", ip="192.0.2.9")], [])
        assert server.objects[f"{ENTITIES}/vm1"]["spec"]["endpoints"] == [{"ip": "192.0.2.7"}]
        assert f"{ENTITIES}/vm1-a" in server.objects
        (message,) = events(server)
        assert "policies cannot select this machine: ExternalEntity vms/vm1 exists" in message
        await sink.apply([], [entity()])
        assert f"{ENTITIES}/vm1" in server.objects


async def test_an_entity_of_an_external_node_before_this_one_is_replaced() -> None:
    async with served({f"{ENTITIES}/vm1": stored(uid="u0")}) as (sink, server):
        await sink.apply([entity()], [entity(uid="u0")])
        (owner,) = server.objects[f"{ENTITIES}/vm1"]["metadata"]["ownerReferences"]
        assert owner["uid"] == "u1"


async def test_what_went_while_no_controller_ran_is_swept_and_others_stay() -> None:
    objects = {
        f"{ENTITIES}/vm1": stored(),
        f"{ENTITIES}/vm1-aaaaa": stored(),
        f"{ENTITIES}/theirs": stored(kind="CloudInstance"),
    }
    async with served(objects) as (sink, server):
        await sink.resync([entity()])
        await sink.sweep(0)
        assert sorted(path.rpartition("/")[2] for path in server.objects) == ["theirs", "vm1"]
