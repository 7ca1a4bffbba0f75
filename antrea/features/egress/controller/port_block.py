"""Blocks of source ports that an Egress with `egress.antrea.io/survive: ports` gives its Pods, in its status.

The status is the only memory of them: a new leader keeps the blocks in it. Upstream has none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from antrea.apis.crd.part import Condition
from antrea.apis.egress_address import EGRESSES
from antrea.apis.status import Items, Status
from antrea.engine import Act, Unit
from antrea.facts.cluster import Pod
from antrea.facts.egress import EgressRow, FreeBlock, PortBlockRequest
from antrea.facts.external_ip import FencedLeadership
from antrea.facts.family import is_ipv6
from antrea.facts.group import Matches
from antrea.features.egress.controller.allocation import all_of
from antrea.features.egress.port_block import BLOCKS, CONDITION, SIZE, Block, allocate
from antrea.features.grouping.member import EGRESS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from antrea.engine import Facts

MANAGER: Final = "antrea-controller-ports"


class QuarantineBlock(Act, frozen=True):
    """Write `FreeBlock` when the block of a Pod that ended may be given to another."""

    egress: str
    """UID of the Egress."""
    pod: str
    first: int


def port_block_request(facts: Facts, pod: Pod) -> Iterator[PortBlockRequest]:
    """Yield the request of a Pod with each of the Egresses that it follows; one block serves both families."""
    matching = None if pod.host_network or not pod.node else facts.get(Matches, pod.labels)
    names = dict(matching.group_names).get(EGRESS, ()) if matching else ()
    rows = [row for name in names if (row := facts.get(EgressRow, name))]
    if not any(row.survives for row in rows):
        return
    followed = _followed(address for row in rows for address in all_of(facts, row))
    giving = [row for row in followed if row.survives]
    for row in giving:
        other = "" if row.name == giving[0].name else f"Egress {giving[0].name} gives them theirs"
        yield PortBlockRequest(row.name, pod.key, pod.ips, other)


def _followed(rows: Iterable[EgressRow]) -> Sequence[EgressRow]:
    """Return the oldest Egress of each family, each once, the oldest first."""
    first: dict[bool, EgressRow] = {}
    for row in sorted((row for row in rows if row.address), key=lambda row: row.precedence):
        first.setdefault(is_ipv6(row.address), row)
    return list({row.name: row for row in first.values()}.values())


def port_blocks(facts: Facts, egress: EgressRow) -> Iterator[Status | QuarantineBlock]:
    """Yield the blocks and their condition, unless another replica leads; what stood before is removed where none are wanted."""
    if facts.get(FencedLeadership) is None or egress.slot:
        return
    if not egress.survives:
        if egress.blocks or CONDITION in egress.reported:
            yield _status(egress, (), Condition(CONDITION))
        return
    requests = facts.by(PortBlockRequest, "egress", egress.name)
    shared = _sharing(facts, egress)
    wanted = {} if shared else {row.pod: row.ips for row in requests if not row.other}
    free = {(row.pod, row.first) for row in facts.by(FreeBlock, "egress", egress.uid)}
    blocks = allocate((Block(*block) for block in egress.blocks), wanted, free)
    for block in blocks:
        if block.released:
            key = (egress.uid, block.pod)
            yield QuarantineBlock(key, block.first, egress=egress.uid, pod=block.pod, first=block.first)
    covered = sum(not block.released for block in blocks)
    others = next((row.other for row in requests if row.other), "")
    why = (
        shared
        or others
        or f"an Egress has {BLOCKS} blocks, each of which is kept for 5 minutes after its Pod"
    )
    yield _status(egress, blocks, _condition(len(requests), covered, why))


def _sharing(facts: Facts, egress: EgressRow) -> str:
    """Return which older Egress gives blocks of one of its addresses; empty if none."""
    rivals = (
        rival
        for row in all_of(facts, egress)
        if row.address
        for rival in facts.by(EgressRow, "address", row.address)
        if rival.survives and rival.name != egress.name and rival.precedence < egress.precedence
    )
    rival = min(rivals, key=lambda row: row.precedence, default=None)
    return f"Egress {rival.name} has {rival.address} and gives blocks of it" if rival else ""


def _condition(pods: int, covered: int, why: str) -> Condition:
    if covered >= pods:
        message = f"each Pod has a block of {SIZE} ports"
        return Condition(CONDITION, "True", reason="PortBlocks", message=message)
    message = (
        f"{pods - covered} of {pods} Pods have no port block, their connections end with the gateway: {why}"
    )
    return Condition(CONDITION, "False", reason="PodsWithoutPortBlock", message=message)


def _status(egress: EgressRow, blocks: Sequence[Block], condition: Condition) -> Status:
    items = tuple(
        (
            ("pod", block.pod),
            ("firstPort", block.first),
            ("lastPort", block.last),
            *((("podIPs", block.ips),) if block.ips else ()),
            *((("released", True),) if block.released else ()),
        )
        for block in blocks
    )
    return Status(
        path=f"{EGRESSES}/{egress.name}",
        kind="Egress",
        manager=MANAGER,
        conditions=(condition,),
        items=Items("portBlocks", "pod", items, tuple(block.pod for block in blocks)),
    )


UNITS = (
    Unit(Pod, port_block_request, yields=(PortBlockRequest,)),
    Unit(EgressRow, port_blocks),
)
