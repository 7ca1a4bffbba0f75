"""Real packets of Pods whose Egress has no address to use: none reaches the host outside, in either family."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from egress_node import EGRESS, NODES, SERVER, Node

from antrea.facts.egress import Egress, EgressOwner, EgressPod, MissingAddress, ProbedAddress
from antrea.facts.member import PoolSelector, Quorum
from antrea.facts.node import LocalAddress

if TYPE_CHECKING:
    from collections.abc import Iterator

    from conftest import Namespaces


@pytest.fixture
def node(netns: Namespaces) -> Iterator[Node]:
    with Node(netns).standing() as there, there.serving(there.outside, SERVER):
        yield there


async def reaches_nobody(node: Node) -> None:
    """The Pod of the Egress; others leave as ever."""

    async def silent(version: int) -> None:
        with pytest.raises(AssertionError, match="TimeoutError"):
            await node.source("web", version, seconds=1)

    await node.engine.quiet()
    plain = asyncio.gather(*(node.source("plain", version) for version in (4, 6)))
    await asyncio.gather(silent(4), silent(6))
    assert await plain == [NODES[4], NODES[6]]


async def test_pods_do_not_leave_with_the_nodes_address_before_during_and_after_the_life_of_their_pool(
    node: Node,
) -> None:
    node.facts.put(Quorum(has=True, alive=1, of=1))
    pool = node.facts.get(PoolSelector, "p")
    assert pool
    async with node.agent():
        # the pool does not exist
        node.facts.drop(PoolSelector, "p")
        for version in (4, 6):
            node.facts.put(Egress(f"e{version}", f"u{version}", pool="p", created="2"))
            node.facts.put(EgressPod(f"e{version}", "shop/web"))
        await reaches_nobody(node)
        await node.until(lambda: len(node.failed) == 2)
        assert {*node.failed} == {"Failed to assign the IP to EgressNode: ExternalIPPool p does not exist"}
        # it gives addresses
        node.facts.put(pool)
        for version, ip in EGRESS.items():
            node.facts.put(Egress(f"e{version}", f"u{version}", ip, pool="p", created="2"))
            node.facts.put(EgressOwner(f"e{version}", "n1"))
            node.facts.put(ProbedAddress(f"e{version}", ip))
        await node.until(lambda: all(node.facts.get(LocalAddress, ip) for ip in EGRESS.values()))
        await node.engine.quiet()
        assert [await node.source("web", version) for version in (4, 6)] == [*EGRESS.values()]
        # others have had these addresses for longer: they stay here
        for version, ip in EGRESS.items():
            node.facts.put(Egress(f"old{version}", f"o{version}", ip, pool="p", created="1"))
            node.facts.put(EgressOwner(f"old{version}", "n1"))
        await reaches_nobody(node)
        for version in (4, 6):
            node.facts.drop(Egress, f"old{version}")
        await node.engine.quiet()
        assert [await node.source("web", version) for version in (4, 6)] == [*EGRESS.values()]
        # the pool is deleted while the addresses are here
        node.facts.drop(PoolSelector, "p")
        await reaches_nobody(node)
    # so it stays while no agent runs, and when the next one has begun
    await reaches_nobody(node)
    async with node.agent():
        await reaches_nobody(node)


async def test_an_address_that_no_node_has_keeps_pods_inside_and_is_told_of(node: Node) -> None:
    node.facts.put(Quorum(has=True, alive=1, of=1))
    async with node.agent():
        for version, ip in EGRESS.items():
            node.facts.put(Egress(f"e{version}", f"u{version}", ip))
            node.facts.put(EgressPod(f"e{version}", "shop/web"))
        await reaches_nobody(node)
        await node.until(lambda: len(node.failed) == 2)
        assert {row.why for row in node.facts.all(MissingAddress)} == {
            f"no Node has {ip} on an interface" for ip in EGRESS.values()
        }
