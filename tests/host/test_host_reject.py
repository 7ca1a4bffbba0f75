"""Who is rejected hears of it at once, from whom it spoke to: Pods of the Node and hosts outside, in both families."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec
import pytest
from policy_node import OUTSIDE, SERVER, WEB, PolicyNode

from antrea.apis import controlplane as cp
from antrea.features.network_policy.agent.received import SentAppliedMember, SentPolicy
from tests.unit.features.policy_world import ANY, native, rule

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from conftest import Namespaces


OPEN = {"SOCK_STREAM": ("answered", "answered"), "SOCK_DGRAM": ("answered", "answered")}
REJECTED = {"SOCK_STREAM": ("ECONNREFUSED", "ECONNREFUSED"), "SOCK_DGRAM": ("EHOSTUNREACH", "EACCES")}
"""In IPv4 and in IPv6; for the sender of a datagram a host is prohibited."""


class Node(PolicyNode):
    """And what clients of it hear."""

    async def heard(self, client: str, addresses: tuple[str, str]) -> dict[str, tuple[str, ...]]:
        """What a client hears of these addresses, one of each family, by kind of socket."""
        kinds = ("SOCK_STREAM", "SOCK_DGRAM")
        found = await asyncio.gather(
            *(asyncio.to_thread(self.hears, client, ip, kind) for kind in kinds for ip in addresses)
        )
        return {"SOCK_STREAM": tuple(found[:2]), "SOCK_DGRAM": tuple(found[2:])}


@pytest.fixture
def node(netns: Namespaces) -> Iterator[Node]:
    with Node(netns).standing() as found:
        yield found


def rejecting(name: str, pod: str, direction: str) -> tuple[SentPolicy, SentAppliedMember]:
    member = cp.GroupMember(pod=cp.PodReference(name=pod, namespace="shop"))
    one = msgspec.structs.replace(rule(direction, ANY, action="Reject"), enable_logging=True)
    return native(name, pod, one), SentAppliedMember(pod, member)


def told(log: Path) -> set[tuple[str, ...]]:
    """Policy, Pod, addresses and protocol of each line."""
    lines = [line.split() for line in log.read_text().splitlines()]
    assert {(line[4], *line[6:7], line[12]) for line in lines} == {("<nil>", "Reject", "8099")}
    return {(line[3].rpartition(":")[2], line[8], f"{line[9]} {line[11]}", line[13]) for line in lines}


async def test_a_client_hears_at_once_that_it_is_rejected_by_rules_of_either_side(node: Node) -> None:
    async with node.agent() as engine:
        with node.serving(node.pods["web"], SERVER), node.serving(node.pods["outside"], SERVER):
            assert await node.heard("near", WEB) == OPEN
            assert await node.heard("outside", WEB) == OPEN
            assert await node.heard("near", OUTSIDE) == OPEN

            inward = rejecting("in", "web", "In")
            for row in inward:
                node.facts.put(row)
            await engine.quiet()
            assert await node.heard("near", WEB) == REJECTED
            assert await node.heard("outside", WEB) == REJECTED
            assert await node.heard("near", OUTSIDE) == OPEN

            node.facts.drop(SentPolicy, inward[0].key)
            for row in rejecting("out", "near", "Out"):
                node.facts.put(row)
            await engine.quiet()
            assert await node.heard("near", WEB) == REJECTED
            assert await node.heard("near", OUTSIDE) == REJECTED
            assert await node.heard("outside", WEB) == OPEN
    ends = {
        *(("in", "shop/web", f"10.10.0.8 {WEB[0]}"), ("in", "shop/web", f"fd00:10::8 {WEB[1]}")),
        *(("in", "shop/web", f"{OUTSIDE[n]} {WEB[n]}") for n in (0, 1)),
        *(("out", "shop/near", f"10.10.0.8 {to[0]}") for to in (WEB, OUTSIDE)),
        *(("out", "shop/near", f"fd00:10::8 {to[1]}") for to in (WEB, OUTSIDE)),
    }
    assert told(node.log) == {(*one, kind) for one in ends for kind in ("TCP", "UDP")}
