"""Packets of Pods of one Egress with several addresses: whose address a host outside sees, and what a loss changes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from egress_node import SERVER, Node

from antrea.facts.egress import Egress, EgressOwner, EgressPod
from antrea.facts.node import LocalAddress
from antrea.features.egress.agent.multi_address import first_for
from antrea.features.egress.agent.owner import NO_ROOM
from antrea.host.carrier import MAX_MARKS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from conftest import Namespaces

SEVERAL = ("192.0.2.50", "192.0.2.51", "2001:db8:2::50", "2001:db8:2::51")


@pytest.fixture
def node(netns: Namespaces) -> Iterator[Node]:
    with Node(netns).standing() as there, there.serving(there.outside, SERVER):
        yield there


async def test_pods_of_one_egress_leave_with_one_of_its_addresses_in_each_family_and_a_loss_moves_its_own(
    node: Node,
) -> None:
    rows = [Egress("e", "u", ip, pool="p", slot=slot, of=len(SEVERAL)) for slot, ip in enumerate(SEVERAL)]

    def wanted(*live: str) -> dict[tuple[str, int], str]:
        by_family = {
            v: [row for row in rows if row.ip in live and (":" in row.ip) == (v == 6)] for v in (4, 6)
        }
        return {(pod, v): first_for(f"shop/{pod}", by_family[v]).ip for pod in node.pods for v in (4, 6)}

    async with node.agent():
        for row in rows:
            node.facts.put(row)
            node.facts.put(EgressOwner(row.key, "n1"))
        for pod in node.pods:
            node.facts.put(EgressPod("e", f"shop/{pod}"))
        await node.until(lambda: all(node.facts.get(LocalAddress, ip) for ip in SEVERAL))
        await node.engine.quiet()
        before = wanted(*SEVERAL)
        assert await node.seen() == before

        lost = before["web", 4]
        (key,) = [row.key for row in rows if row.ip == lost]
        node.facts.put(EgressOwner(key, "", NO_ROOM))
        await node.until(lambda: not node.facts.get(LocalAddress, lost))
        await node.engine.quiet()
        after = wanted(*(ip for ip in SEVERAL if ip != lost))
        assert after["web", 4] != lost
        assert await node.seen() == after
        assert {way for way in before if before[way] != after[way]} == {
            way for way in before if before[way] == lost
        }


@pytest.mark.wide
async def test_of_300_addresses_wanted_on_one_node_it_asks_for_takes_and_translates_255(
    node: Node,
) -> None:
    async with node.agent():
        ips = [f"192.0.2.{number}" for number in range(100, 250)]
        ips += [f"2001:db8:2::{number:x}" for number in range(0x100, 0x100 + 150)]
        for number, ip in enumerate(ips):
            node.facts.put(Egress(f"e{number}", f"u{number}", ip, pool="p"))
            # as many as the Node has room for: the oldest
            node.facts.put(EgressOwner(f"e{number}", "n1" if number < MAX_MARKS else "", NO_ROOM))
        node.facts.put(EgressPod("e0", "shop/web"))
        wanted = {*ips[:MAX_MARKS]}
        await node.until(lambda: wanted <= {row.ip for row in node.facts.all(LocalAddress)})
        await node.engine.quiet()
        held = {row.ip for row in node.facts.all(LocalAddress) if row.dev == "antrea-egress0"}
        assert held == wanted
        assert sorted(node.assigned) == sorted(wanted)
        translated = node.netns.sh(
            "nft list map inet antrea egress-snat; nft list map inet antrea egress-snat6"
        )
        assert {ip for ip in ips if f": {ip}" in translated} == wanted
        assert await node.source("web", 4) == ips[0]
