"""The Secret of agents' gossip: who makes its key, who must not change it, and what agents make of it."""

from __future__ import annotations

import asyncio
import base64
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from certificate_world import ApiServer, api_server, until

from antrea.apis.memberlist import MemberAnswer, format_keys, parse_keys
from antrea.engine import Facts
from antrea.errors import Unavailable
from antrea.facts.member import AgentNode, GossipMember
from antrea.facts.node import ThisNode
from antrea.features.membership.agent_part.part import MembershipFeed, follow_keys, memberlist
from antrea.features.membership.controller_part import part as membership_part
from antrea.features.membership.controller_part.part import GossipKeys
from antrea.outside.gossip.feed import GossipFeed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from antrea.outside.kube.client import Kube

SECRETS = "/api/v1/namespaces/kube-system/secrets"
SECRET = f"{SECRETS}/antrea-memberlist-keys"
KEYS = [b"1" * 32, b"2" * 16]


def secret(keys: list[bytes]) -> dict[str, Any]:
    return {"data": {"keys": base64.b64encode(format_keys(keys).encode()).decode()}}


def held(server: ApiServer) -> list[bytes]:
    data = server.objects.get(SECRET, {}).get("data") or {}
    return parse_keys(base64.b64decode(data["keys"]).decode()) if data.get("keys") else []


@asynccontextmanager
async def keeping(kube: Kube) -> AsyncIterator[GossipKeys]:
    keys = GossipKeys(kube, "kube-system")
    task = asyncio.create_task(keys.run())
    try:
        yield keys
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_gossip_keys_are_made_once_and_put_back_as_they_were() -> None:
    async with api_server({}) as (server, kube), keeping(kube) as keys:
        await until(lambda: bool(held(server)))
        made = held(server)
        assert [len(key) for key in made] == [32]
        assert server.objects[SECRET]["metadata"]["labels"] == {"app": "antrea"}
        server.drop(SECRET)
        await until(lambda: held(server) == made)
        server.put(SECRET, {"data": {}})
        await until(lambda: held(server) == made)
        server.put(SECRET, secret(KEYS))
        await until(lambda: keys._known == format_keys(KEYS))
        server.drop(SECRET)
        await until(lambda: held(server) == KEYS)


async def test_gossip_keys_that_somebody_put_there_are_never_changed_not_even_bad_ones() -> None:
    for there in (secret(KEYS), {"data": {"keys": base64.b64encode(b"no key").decode()}}):
        async with api_server({SECRET: there}) as (server, kube), keeping(kube):
            await asyncio.sleep(0.3)
            assert server.objects[SECRET]["data"] == there["data"]
            assert server.writes == []


async def test_gossip_keys_are_made_as_soon_as_the_api_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(membership_part, "RETRY_SECONDS", 0.05)
    async with api_server({}) as (server, kube):
        server.refuse = "RBAC says no"
        async with keeping(kube):
            await until(lambda: len(server.writes) > 1)
            server.refuse = ""
            await until(lambda: bool(held(server)))


async def test_agents_use_new_keys_at_once_and_keep_what_they_have_when_those_go_bad() -> None:
    used: list[list[bytes]] = []
    async with api_server({}) as (server, kube):
        task = asyncio.create_task(follow_keys(kube, SECRETS, used.append))
        server.put(SECRET, secret(KEYS))
        await until(lambda: used == [KEYS])
        server.put(SECRET, {"data": {"keys": "bm90IGEga2V5"}})
        server.drop(SECRET)
        server.put(SECRET, secret(KEYS))
        server.put(SECRET, secret(KEYS[::-1]))
        await until(lambda: used == [KEYS, KEYS[::-1]])
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_memberlist_shows_every_node_of_the_cluster_and_metrics_count_them() -> None:
    facts = Facts()
    with pytest.raises(Unavailable, match="memberlist is not enabled"):
        memberlist(facts, None)
    for name in ("n1", "n2", "n3", "n4"):
        ip = f"192.0.2.{name[1:]}"
        facts.put(AgentNode(name, (ip,), (ip,)))
    for row in (ThisNode("n2"), GossipMember("n1", alive=True), GossipMember("n3", alive=False)):
        facts.put(row)
    async with api_server({}) as (_, kube):
        membership = MembershipFeed(kube, "kube-system", GossipFeed("n2", "127.0.0.1", 0))
        assert memberlist(facts, membership) == [
            MemberAnswer("n1", "192.0.2.1", "Alive"),
            MemberAnswer("n2", "192.0.2.2", "Alive"),
            MemberAnswer("n3", "192.0.2.3", "Dead"),
            MemberAnswer("n4", "192.0.2.4", "Dead"),
        ]
        text = membership.metrics(facts)
    assert 'antrea_agent_member_count{alive="true"} 2\n' in text
    assert "antrea_agent_member_quorum 0\n" in text
