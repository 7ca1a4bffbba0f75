"""Rules on Services with packets: one Service is refused while another with the same Pod behind it is reached, in both families.

kube-proxy's part is played by three rules of nftables, which translate what goes to either Service.
"""

from __future__ import annotations

import asyncio
import subprocess
import time
from typing import TYPE_CHECKING

import msgspec
import pytest
from policy_node import SERVER, PolicyNode

from antrea.apis import controlplane as cp
from antrea.facts.service import Service
from antrea.features.network_policy.agent.received import SentAppliedMember, SentPolicy
from tests.unit.features.policy_world import native, rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from conftest import Namespaces

KUBE_PROXY = """
add table inet kp
add chain inet kp prerouting { type nat hook prerouting priority dstnat; }
add rule inet kp prerouting ip daddr 10.96.0.0/16 meta l4proto { tcp, udp } th dport 80 dnat ip to 10.10.0.7:8099
add rule inet kp prerouting ip6 daddr fd00:96::/112 meta l4proto { tcp, udp } th dport 80 dnat ip6 to [fd00:10::7]:8099
"""
ONE = Service("shop", "one", ("10.96.0.1", "fd00:96::1"), (("TCP", 80),))
TWO = Service("shop", "two", ("10.96.0.2", "fd00:96::2"), (("TCP", 80), ("UDP", 80)))
LONG, SHORT = 30.0, 1.0
"""Seconds: for an answer that has to come, and for one that must not."""
OPEN, REJECTED = ("answered", "answered"), ("ECONNREFUSED", "ECONNREFUSED")


class Node(PolicyNode):
    """And what `near` hears."""

    def start(self) -> None:
        super().start()
        subprocess.run(
            ["ip", "netns", "exec", self.netns.home, "nft", "-f", "-"],
            input=KUBE_PROXY,
            text=True,
            check=True,
        )

    async def heard(
        self, to: tuple[str, ...], *, port: int = 80, kind: str = "SOCK_STREAM", seconds: float = LONG
    ) -> tuple[str, ...]:
        """Of an address in each family."""
        return tuple(
            await asyncio.gather(
                *(asyncio.to_thread(self.hears, "near", ip, kind, port=port, seconds=seconds) for ip in to)
            )
        )

    async def becomes(self, wanted: tuple[str, ...], to: tuple[str, ...], *, seconds: float = LONG) -> None:
        """The switch may judge by what stood before while it looks its cache through."""
        deadline = time.monotonic() + LONG
        while (found := await self.heard(to, seconds=seconds)) != wanted:
            assert time.monotonic() < deadline, (found, wanted)


@pytest.fixture
def node(netns: Namespaces) -> Iterator[Node]:
    with Node(netns).standing() as found:
        yield found


def stated(*rules: tuple[str, str]) -> SentPolicy:
    """Action and Service of each rule."""
    found = (
        rule("Out", cp.NetworkPolicyPeer(to_services=(cp.ServiceReference(name=name, namespace="shop"),)), action=action)
        for action, name in rules
    )  # fmt: skip
    numbered = [msgspec.structs.replace(one, priority=number) for number, one in enumerate(found)]
    return native("p", "near", *numbered)


async def test_a_service_is_refused_and_its_twin_with_the_same_pod_is_not(node: Node) -> None:
    member = cp.GroupMember(pod=cp.PodReference(name="near", namespace="shop"))
    for row in (ONE, TWO, SentAppliedMember("near", member)):
        node.facts.put(row)
    async with node.agent() as engine:
        with node.serving(node.pods["web"], SERVER):
            assert await node.heard(ONE.ips) == await node.heard(TWO.ips) == OPEN

            node.facts.put(stated(("Drop", "one")))
            await engine.quiet()
            await node.becomes(("timeout", "timeout"), ONE.ips, seconds=SHORT)
            assert await node.heard(TWO.ips) == OPEN
            assert await node.heard(ONE.ips, kind="SOCK_DGRAM") == OPEN
            assert await node.heard(("10.10.0.7", "fd00:10::7"), port=8099) == OPEN

            node.facts.put(stated(("Reject", "two")))
            await engine.quiet()
            await node.becomes(REJECTED, TWO.ips)
            assert await node.heard(TWO.ips, kind="SOCK_DGRAM") == ("EHOSTUNREACH", "EACCES")
            await node.becomes(OPEN, ONE.ips)

            node.facts.put(stated(("Allow", "two"), ("Reject", "one"), ("Reject", "two")))
            await engine.quiet()
            await node.becomes(OPEN, TWO.ips)
            await node.becomes(REJECTED, ONE.ips)

            node.facts.put(msgspec.structs.replace(ONE, ports=(("TCP", 81),)))
            await engine.quiet()
            await node.becomes(OPEN, ONE.ips)
        assert not engine.errors.counts
