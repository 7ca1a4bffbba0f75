"""A gateway of which there are gossip, the placement of an Egress IP, and the copies of its connections, in a network namespace.

`python copying_gateway.py NAME PORT KEY IP`, the key in hexadecimal. Nodes n1 to n3 are at 192.0.2.11 to .13. It says `begins`,
and in lines of JSON, whenever that changes: whether it has the address, the copies that Nodes have of it, and its counts.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import TYPE_CHECKING, Any

from antrea.config.agent import AgentConfig
from antrea.engine import Act, Engine, Facts, Unit
from antrea.facts.egress import ConnectionCopy, CopySource, Egress, HeirReport, ProbedAddress
from antrea.facts.member import AgentNode, PoolSelector
from antrea.facts.node import LocalAddress, ThisNode, Transport
from antrea.features.egress.agent import owner
from antrea.features.egress.agent.address import HELD_ADDRESSES
from antrea.features.egress.agent.connection_copy import connection_copy, copy_source
from antrea.features.egress.agent.handover import ReleaseAddress
from antrea.features.egress.agent.last_candidate import RecordLastCandidate
from antrea.features.egress.agent_part.connection_copier import ConnectionCopier
from antrea.features.external_ip_pool.agent import FEATURE as POOL_MEMBERS
from antrea.features.external_ip_pool.duplicate import ProbeAddress
from antrea.features.external_ip_pool.silence import ReportSilence
from antrea.host.address import Address
from antrea.host.ovs_port import Port
from antrea.host.route import ProxyNeighbour
from antrea.host.sysctl import Sysctl
from antrea.outside.gossip.feed import GossipFeed
from antrea.outside.neighbour.announcement import NodeAnnouncer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from antrea.engine import Sink

NODES = (
    *(AgentNode(f"n{n}", (f"192.0.2.{10 + n}",), (f"192.0.2.{10 + n}",)) for n in (1, 2, 3)),
    AgentNode("n4", ("192.0.2.14",), ("192.0.2.14",), pod_cidrs=("10.1.0.0/24", "fd01::/64"), gossips=False),
)
INSIDE = {4: "10.1.0.1", 6: "fd01::1"}
"""Where Pods send packets to outside, at whichever gateway has the address."""


class Held:
    """An address of a device, as the announcer wants it."""

    def __init__(self, dev: str, ip: str) -> None:
        self.dev, self.mac, self.ip = dev, "", ip


class Kernel:
    """Sink of the address: it and the way for Pods are at this gateway, and announced."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._announcer = NodeAnnouncer(lambda ip: True)

    async def apply(self, put: Sequence[Any], drop: Sequence[Any]) -> None:
        for word, entries in (("add", put), ("del", drop)):
            for entry in (one for one in entries if isinstance(one, Address)):
                ip = entry.cidr.partition("/")[0]
                inside = INSIDE[6 if ":" in ip else 4]
                life = " nodad preferred_lft 0" if ":" in ip else ""
                length = 128 if ":" in ip else 32
                for dev, each in (("out", ip), ("inn", inside)):
                    words = ("addr", word, f"{each}/{length}", "dev", dev, *life.split())
                    await (await asyncio.create_subprocess_exec("ip", *words)).wait()
                if word == "add":
                    self._facts.put(LocalAddress(ip, "out"))
                    for dev, each in (("out", ip), ("inn", inside)):
                        await self._announcer.announce(Held(dev, each))
                else:
                    self._facts.drop(LocalAddress, ip)

    async def resync(self, entries: Sequence[Any]) -> None:
        await self.apply(entries, ())

    async def sweep(self, category: int) -> None: ...


async def say(facts: Facts, copier: ConnectionCopier, ip: str) -> None:
    """What the test waits for."""
    before = ""
    while True:
        held, source = facts.get(LocalAddress, ip), facts.get(CopySource, ip)
        text = json.dumps(
            {
                "held": held is not None,
                "source": source.node if source else "",
                "whole": sorted(row.node for row in facts.all(HeirReport) if row.whole),
                "full": sorted(row.node for row in facts.all(HeirReport) if row.full),
                "counts": dict(copier.counts),
            }
        )
        if text != before:
            print(text, flush=True)
        before = text
        await asyncio.sleep(0.05)


async def main(name: str, port: int, key: bytes, ip: str) -> None:
    facts = Facts()
    node = next(node for node in NODES if node.name == name)
    card = Transport("out", "out", "", 1500, (f"{node.ips[0]}/24",))
    pool = PoolSelector("pool", (), ranges=((4, 0, 2**32 - 1), (6, 0, 2**128 - 1)))
    egress = Egress("web", "u", ip, "pool", preferred=("n1",), copies=True)
    for row in (
        ThisNode(name, node_ips=node.ips, transport_ips=node.ips),
        AgentConfig(),
        card,
        *NODES,
        pool,
        egress,
    ):
        facts.put(row)
    facts.synced(AgentNode)
    gossip = GossipFeed(name, node.ips[0], port)
    gossip.keys([key])
    copier = ConnectionCopier(gossip)
    units = [
        *(*owner.FEATURE.units, *POOL_MEMBERS.units, HELD_ADDRESSES),
        Unit(Egress, connection_copy, yields=(ConnectionCopy,)),
        Unit(Egress, copy_source, yields=(CopySource,)),
    ]

    async def ignore(_: Act) -> None: ...

    async def probe(act: ProbeAddress) -> None:
        """No other host has it."""
        facts.put(ProbedAddress(act.holder, act.ip))

    kernel: Sink = Kernel(facts)
    acts: dict[type[Act], Any] = dict.fromkeys((ReleaseAddress, ReportSilence, RecordLastCandidate), ignore)
    acts[ProbeAddress] = probe
    sinks: dict[type, Sink] = dict.fromkeys((Address, Port, Sysctl, ProxyNeighbour), kernel)
    engine = Engine(facts, units, sinks, acts)
    print("begins", flush=True)
    async with asyncio.TaskGroup() as tasks:
        for work in (gossip.run(facts), engine.run(), copier.run(facts), say(facts, copier, ip)):
            tasks.create_task(work)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), bytes.fromhex(sys.argv[3]), sys.argv[4]))
