"""One or several agents' gossip as a process: prints what it sees, one JSON object a line, until its input ends.

python -m benchmarks.gossip_agent --port 10351 --key HEX --here n1[,n2] --loss 0.05 n1=127.0.0.1 n2=127.0.0.2
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from typing import TYPE_CHECKING, Any

import click

from antrea.outside.gossip.transport import Gossip, now

if TYPE_CHECKING:
    from antrea.outside.gossip.swim import Change


def tell(**words: Any) -> None:
    """One line."""
    print(json.dumps({"at": now(), **words}), flush=True)


class Shown:
    """What was said of one agent, so that only news is."""

    def __init__(self, me: str, *, quiet: bool) -> None:
        self._me, self._quiet = me, quiet
        self._had = False

    def __call__(self, gossip: Gossip, changes: list[Change]) -> None:
        for change in () if self._quiet else changes:
            tell(me=self._me, node=change.node, alive=change.alive)
        has, _, _ = gossip.machine.swim.census
        if has != self._had:
            self._had = has
            tell(me=self._me, has=has)


def lossy(gossip: Gossip, loss: float) -> None:
    """Lose datagrams that come in; what comes by TCP is sent again until it comes."""
    take = gossip.machine.packet

    def packet(at: float, data: bytes, origin: Any = None) -> None:
        if origin is not None or random.random() >= loss:
            take(at, data, origin)

    setattr(gossip.machine, "packet", packet)  # noqa: B010 (for this measurement only)


async def work(port: int, key: bytes, here: list[str], loss: float, addresses: dict[str, str]) -> None:
    """Until standard input ends; a line of it asks for figures."""
    ours = []
    for name in here:
        gossip = Gossip(name, addresses[name], port, changed=Shown(name, quiet=len(here) > 1))
        gossip.peers({other: address for other, address in addresses.items() if other != name})
        gossip.keys((key,))
        if loss:
            lossy(gossip, loss)
        ours.append(gossip)
    tasks = [asyncio.create_task(gossip.run()) for gossip in ours]
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
    )
    while await reader.readline():
        tell(
            cpu=time.process_time(),
            packets=sum(one.sent for one in ours),
            octets=sum(one.byte_count for one in ours),
            living=min(one.machine.swim.census[1] for one in ours),
            dropped=dict(ours[0].machine.channels.dropped),
        )
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@click.command()
@click.option("--port", type=int, required=True)
@click.option("--key", required=True, help="in hexadecimal digits")
@click.option("--here", required=True, help="names of the agents in this process")
@click.option("--loss", type=float, default=0.0, help="share of datagrams that are lost")
@click.argument("addresses", nargs=-1)
def main(port: int, key: str, here: str, loss: float, addresses: tuple[str, ...]) -> None:
    """Gossip with `addresses`, which are name=address."""
    places = dict(one.split("=", 1) for one in addresses)
    asyncio.run(work(port, bytes.fromhex(key), here.split(","), loss, places))


if __name__ == "__main__":
    main()
