"""Pod CIDRs of Nodes, as an API server on loopback has them."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from certificate_world import api_server

from antrea.config.controller import NodeIPAM
from antrea.features.node_ipam.allocation import Allocation
from antrea.features.node_ipam.controller import NodePodCidrs, PodCidrClaim
from antrea.outside.kube.pod_cidr_sink import (
    NODES,
    NOT_AVAILABLE,
    SECOND_ALLOCATOR,
    SHARED,
    PodCidrSink,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from certificate_world import ApiServer

CONFIG = NodeIPAM(enable_node_ipam=True, cluster_cidrs=("10.10.0.0/23", "fd00:10::/63"))
KCM = {"manager": "kube-controller-manager", "fieldsV1": {"f:spec": {"f:podCIDR": {}}}}


def node(uid: str = "u", *cidrs: str) -> dict[str, Any]:
    return {"metadata": {"uid": uid, "managedFields": [KCM]}, "spec": {"podCIDRs": list(cidrs)}}


def claim(name: str, *cidrs: str, uid: str = "u") -> PodCidrClaim:
    return PodCidrClaim(NodePodCidrs(name, uid, cidrs))


@asynccontextmanager
async def served(nodes: dict[str, dict[str, Any]]) -> AsyncIterator[tuple[PodCidrSink, ApiServer]]:
    objects = {f"{NODES}/{name}": item for name, item in nodes.items()}
    async with api_server(objects) as (server, kube):
        yield PodCidrSink(kube, lambda: Allocation(CONFIG)), server


def cidrs_of(server: ApiServer, name: str) -> list[str]:
    spec: dict[str, Any] = server.objects[f"{NODES}/{name}"]["spec"]
    assert spec.get("podCIDR", "") == (spec["podCIDRs"] or [""])[0]
    return list(spec["podCIDRs"])


def events(server: ApiServer, reason: str) -> list[str]:
    return [
        one["message"]
        for path, one in server.objects.items()
        if "/events/" in path and one["reason"] == reason
    ]


async def test_a_node_gets_what_no_node_of_the_cluster_has_though_its_claim_is_the_first() -> None:
    async with served({"old": node("o", "10.10.0.0/24", "fd00:10::/64"), "new": node("n")}) as (sink, server):
        await sink.apply([claim("new", uid="n")], [])
        assert cidrs_of(server, "new") == ["10.10.1.0/24", "fd00:10:0:1::/64"]
        writes = list(server.writes)
        await sink.apply([claim("new", "10.10.1.0/24", "fd00:10:0:1::/64", uid="n")], [])
        await sink.apply([claim("old", "10.10.0.0/24", "fd00:10::/64", uid="o")], [])
        assert server.writes == writes


async def test_a_node_that_must_wait_has_an_event_and_gets_the_cidr_of_one_that_goes() -> None:
    full = {"n1": node("1"), "n2": node("2"), "n3": node("3")}
    async with served(full) as (sink, server):
        await sink.apply([claim(f"n{number}", uid=str(number)) for number in (1, 2, 3)], [])
        await sink.apply([claim("n3", uid="3")], [])
        (message,) = events(server, NOT_AVAILABLE)
        assert message == (
            "Node n3 status is now: CIDRNotAvailable: all 2 CIDRs of length /24 in 10.10.0.0/23 are in use"
        )
        assert cidrs_of(server, "n3") == []
        server.drop(f"{NODES}/n1")
        await sink.apply([], [claim("n1", "10.10.0.0/24", "fd00:10::/64", uid="1")])
        assert cidrs_of(server, "n3") == ["10.10.0.0/24", "fd00:10::/64"]


async def test_a_node_that_comes_again_under_its_name_is_another_one() -> None:
    async with served({"n1": node("1")}) as (sink, server):
        await sink.apply([claim("n1", uid="1")], [])
        server.put(f"{NODES}/n1", node("2"))
        await sink.apply([claim("n1", uid="2")], [claim("n1", "10.10.0.0/24", uid="1")])
        assert cidrs_of(server, "n1") == ["10.10.1.0/24", "fd00:10:0:1::/64"]


async def test_cidrs_of_another_allocator_and_of_two_nodes_are_reported_once() -> None:
    async with served({"n1": node("1", "10.10.0.0/24")}) as (sink, server):
        await sink.apply([claim("n1", "10.10.0.0/24", uid="1")], [])
        assert [path for path in server.objects if "/events/" in path] == []
        server.put(f"{NODES}/n2", node("2", "10.10.0.0/24"))
        for _ in range(2):
            await sink.apply([claim("n2", "10.10.0.0/24", uid="2")], [])
        (second,) = events(server, SECOND_ALLOCATOR)
        assert second.startswith(
            "Node n2 has Pod CIDRs 10.10.0.0/24 of another allocator (kube-controller-manager), while"
        )
        (shared,) = events(server, SHARED)
        assert shared.startswith("Pod CIDR 10.10.0.0/24 of Node n2 is also that of n1: ")


async def test_a_new_leader_begins_with_what_nodes_have_then() -> None:
    async with served({"n1": node("1"), "n2": node("2")}) as (sink, server):
        await sink.apply([claim("n1", uid="1")], [])
        server.put(f"{NODES}/n1", node("1", "10.10.1.0/24", "fd00:10:0:1::/64"))
        await sink.resync([claim("n1", "10.10.1.0/24", "fd00:10:0:1::/64", uid="1"), claim("n2", uid="2")])
        assert cidrs_of(server, "n2") == ["10.10.0.0/24", "fd00:10::/64"]
        assert events(server, SECOND_ALLOCATOR) == []
