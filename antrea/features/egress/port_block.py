"""Blocks of source ports of an Egress: one for each Pod, so that any gateway can translate its connections from the middle.

A Pod with a block uses its ports alone (`net.ipv4.ip_local_port_range` in its network namespace, which both families share).
The gateway leaves the port as it is. So the port of an answer identifies the Pod for the next gateway, and a connection keeps its port
without an entry of connection tracking.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Final, NamedTuple

from antrea.features.framework.address import canonical

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from antrea.apis.crd import egress as crd

FIRST_PORT: Final = 1024
SIZE: Final = 512
"""Ports of a block: as many connections a Pod can have to one port of one address."""
BLOCKS: Final = 118
"""Blocks of an Egress."""
OTHER_PORTS: Final = (FIRST_PORT + BLOCKS * SIZE, 65535)
"""First and last port of what has no block: no answer to it may be taken for one to a Pod that has."""
QUARANTINE_SECONDS: Final = 300.0
"""Seconds after the end of its Pod in which no other Pod gets a block."""
CONDITION: Final = "ConnectionsSurvive"
"""Type of a condition beyond upstream's."""


class Block(NamedTuple):
    """Block of a Pod by its first port."""

    pod: str
    """namespace/name"""
    first: int
    ips: tuple[str, ...] = ()
    """Addresses of the Pod; empty while they are not known."""
    released: bool = False
    """Whether the Pod has ended, or is not selected any more."""

    @property
    def last(self) -> int:
        return self.first + SIZE - 1


def blocks_of(status: crd.EgressStatus) -> tuple[Block, ...]:
    """Return the blocks of a status, each port and each Pod once; what is not a block of this size is left out.

    Each agent may write any text into the status, and the addresses go into nftables of all Nodes.
    """
    ports: set[int] = set()
    pods: set[str] = set()
    blocks = []
    for row in status.port_blocks:
        index, rest = divmod(row.first_port - FIRST_PORT, SIZE)
        ips = tuple(filter(None, map(canonical, row.pod_ips)))
        block = Block(row.pod, row.first_port, ips, row.released)
        is_block = not rest and 0 <= index < BLOCKS and row.last_port == block.last
        if is_block and block.first not in ports and block.pod not in pods:
            ports.add(block.first)
            pods.add(block.pod)
            blocks.append(block)
    return tuple(blocks)


def allocate(
    standing: Iterable[Block], wanted: dict[str, tuple[str, ...]], free_again: Collection[tuple[str, int]]
) -> tuple[Block, ...]:
    """Return the blocks of the `wanted` Pods (name: addresses), which keep what they have, and of Pods that ended.

    `free_again` has Pods and first ports whose quarantine is over. Pods beyond the number of blocks get none.
    """
    blocks: dict[str, Block] = {}
    for block in standing:
        if block.pod in wanted:
            blocks[block.pod] = Block(block.pod, block.first, wanted[block.pod])
        elif (block.pod, block.first) not in free_again:
            blocks[block.pod] = Block(block.pod, block.first, released=True)
    taken = {block.first for block in blocks.values()}
    for pod in sorted(wanted.keys() - blocks.keys()):
        if len(taken) == BLOCKS:
            break
        first = _free(pod, taken)
        taken.add(first)
        blocks[pod] = Block(pod, first, wanted[pod])
    return tuple(sorted(blocks.values(), key=lambda block: block.first))


def _free(pod: str, taken: Collection[int]) -> int:
    """Return the first free block from the place of the Pod's hash: a Pod that comes meanwhile seldom wants the same one."""
    start = int.from_bytes(blake2b(pod.encode(), digest_size=8).digest()) % BLOCKS
    places = (FIRST_PORT + (start + step) % BLOCKS * SIZE for step in range(BLOCKS))
    return next(first for first in places if first not in taken)
