"""An agent of which there is only gossip and the placement of one Egress IP; it says when it begins, and when it takes the address
and drops it. At SIGUSR1 it says what its clock on the wall shows, and how many members came and died.

`python lone_agent.py NAME ADDRESS PORT KEY`, the key in hexadecimal: node-1 to node-3 are at 127.0.78.1 to .3.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from typing import TYPE_CHECKING, Any

from antrea.config.agent import AgentConfig
from antrea.engine import Engine, Facts
from antrea.facts.egress import Egress, ProbedAddress
from antrea.facts.member import AgentNode, PoolSelector
from antrea.facts.node import ThisNode, Transport
from antrea.features.egress.agent import owner
from antrea.features.egress.agent.address import HELD_ADDRESSES
from antrea.features.egress.agent.handover import ReleaseAddress
from antrea.features.external_ip_pool.agent import FEATURE as POOL_MEMBERS
from antrea.features.external_ip_pool.duplicate import ProbeAddress
from antrea.host.address import Address
from antrea.host.ovs_port import Port
from antrea.outside.gossip.feed import GossipFeed

if TYPE_CHECKING:
    from collections.abc import Sequence

NODES = tuple(AgentNode(f"node-{n}", (f"127.0.78.{n}",), (f"127.0.78.{n}",)) for n in (1, 2, 3))


class Say:
    """A kernel that says what it is told."""

    async def apply(self, put: Sequence[Any], drop: Sequence[Any]) -> None:
        for word, entries in (("put", put), ("drop", drop)):
            for entry in entries:
                if isinstance(entry, Address):
                    print(word, flush=True)

    async def resync(self, entries: Sequence[Any]) -> None:
        await self.apply(entries, ())

    async def sweep(self, category: int) -> None: ...


def rows() -> tuple[Any, ...]:
    """What every agent knows; the address is node-1's, as the only one that the Egress prefers."""
    egress = Egress("web", "u", "203.0.113.9", "pool", preferred=("node-1",))
    return (*NODES, PoolSelector("pool", (), ranges=((4, 0, 2**32 - 1),)), egress)


async def main(name: str, address: str, port: int, key: bytes) -> None:
    facts = Facts()
    card = Transport("eth0", "eth0", "0a:00:00:00:00:02", 1500, (f"{address}/24",))
    for row in (ThisNode(name), AgentConfig(), card, *rows()):
        facts.put(row)
    facts.synced(AgentNode)
    gossip = GossipFeed(name, address, port)
    gossip.keys([key])
    asyncio.get_running_loop().add_signal_handler(
        signal.SIGUSR1, lambda: print(int(time.time()), gossip.joins, gossip.deaths, flush=True)
    )
    print("begins", flush=True)
    units = [*owner.FEATURE.units, *POOL_MEMBERS.units, HELD_ADDRESSES]

    async def part(_: ReleaseAddress) -> None: ...

    async def probe(act: ProbeAddress) -> None:
        """No other host has it."""
        facts.put(ProbedAddress(act.holder, act.ip))

    engine = Engine(facts, units, {Address: Say(), Port: Say()}, {ReleaseAddress: part, ProbeAddress: probe})
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(gossip.run(facts))
        tasks.create_task(engine.run())


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), bytes.fromhex(sys.argv[4])))
