"""Receiver of copies of connections: enters those of each address that another Node holds into the table of this Node's kernel.

The sender may be compromised: entries are of connections of Pods to outside the cluster, in states in which data can come, and of a
bounded number for each address, and no entry of another address is removed.
Copies are kept in memory during a snapshot alone. At its end, entries that the snapshot lacks are removed.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from functools import lru_cache
from ipaddress import ip_address, ip_network
from typing import TYPE_CHECKING, Final, TypeVar

from antrea.errors import Unavailable
from antrea.facts.egress import CopiedAddress, CopySource
from antrea.facts.member import AgentNode, GossipMember
from antrea.facts.node import LocalAddress
from antrea.features.egress.agent.copy_stream import (
    BEGIN,
    END,
    IncomingStream,
    Receipt,
    encode_copy,
    identity,
    split,
)
from antrea.outside.log import klog
from antrea.outside.netlink.connection_record import OPEN, TCP, records
from antrea.outside.netlink.copied_connection import CopiedConnections

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable

    from antrea.engine import Facts
    from antrea.features.egress.agent.copy_stream import Batch

log = klog.logger(__name__)
T = TypeVar("T")

MAX_WAITING: Final = 512
"""Messages of all senders that wait; what comes beyond is lost, and its sender is asked for a new stream."""
ASK_SECONDS: Final = 0.5
REPORT_SECONDS: Final = 1.0
FILTER_SECONDS: Final = 1.0
"""Seconds for which networks of Pods and addresses of this Node count as they were."""
MAX_RECORDS: Final = 65_536
"""Connections of one address that are copied."""
INLINE: Final = 50
"""Records that are entered without a thread."""


@lru_cache(maxsize=4096)
def _prefix(cidr: str) -> tuple[int, int, int]:
    """Return the bytes of an address of a network, the number of bits that differ in it, and the others. Raises ValueError."""
    network = ip_network(cidr)
    rest = network.max_prefixlen - network.prefixlen
    return network.max_prefixlen // 8, rest, int(network.network_address) >> rest


class RecordFilter:
    """Which records another Node may have entered here."""

    def __init__(self, facts: Facts) -> None:
        self._own = {ip_address(row.ip).packed for row in facts.all(LocalAddress)}
        self._networks: dict[tuple[int, int], set[int]] = {}
        """First bits of networks of Pods, by bytes of an address and number of the other bits."""
        for node in facts.all(AgentNode):
            for cidr in node.pod_cidrs:
                with contextlib.suppress(ValueError):
                    size, rest, number = _prefix(cidr)
                    self._networks.setdefault((size, rest), set()).add(number)

    def passes(self, record: bytes, size: int) -> bool:
        """Whether a record with addresses of this size is of a Pod's connection to outside the cluster."""
        source, target = record[2 : 2 + size], record[2 + size : 2 + 2 * size]
        is_open = record[1] in OPEN.get(record[0], ())
        return is_open and self._is_pod(source) and target not in self._own and not self._is_pod(target)

    def _is_pod(self, packed: bytes) -> bool:
        number = int.from_bytes(packed, "big")
        return any(
            number >> rest in networks
            for (size, rest), networks in self._networks.items()
            if size == len(packed)
        )


class Sender:
    """State of one sender."""

    def __init__(self) -> None:
        self.order = IncomingStream()
        self.present: dict[bytes, dict[bytes, bytes]] = {}
        """Entries that existed when the snapshot of an address began and have not come with it yet, by address and identity."""
        self.asked = self.reported = 0.0
        self.refused, self.full = 0, False


class CopyReceiver:
    """Batches in, by `put`; entries of the kernel and receipts out."""

    def __init__(self, facts: Facts, counts: Counter[str], send: Callable[[str, bytes], None]) -> None:
        self._facts, self._counts, self._send = facts, counts, send
        self._senders: dict[str, Sender] = {}
        self._queue: asyncio.Queue[tuple[str, Batch]] = asyncio.Queue(MAX_WAITING)
        self._kernel: CopiedConnections | None = None
        self._filter, self._filtered_at = RecordFilter(facts), -FILTER_SECONDS
        self._held: dict[bytes, int] = {}
        """Entries of each address, by its last snapshot and what came since."""

    def put(self, sender: str, batch: Batch) -> None:
        """Queue a batch; dropped if many wait."""
        try:
            self._queue.put_nowait((sender, batch))
        except asyncio.QueueFull:
            self._counts["overflow"] += 1

    async def run(self) -> None:
        """Run until cancelled."""
        try:
            while True:
                name, batch = await self._queue.get()
                self._forget_dead()
                sender = self._senders.setdefault(name, Sender())
                try:
                    await self._receive(name, sender, batch)
                except (Unavailable, OSError) as error:
                    log.warning("Failed to enter connections of another Node", node=name, err=str(error))
                    sender.refused += 1
                self._report(name, sender)
        finally:
            if self._kernel:
                self._kernel.close()

    def _forget_dead(self) -> None:
        """End the streams of lost Nodes, which are not continued."""
        for name, sender in self._senders.items():
            member = self._facts.get(GossipMember, name)
            if sender.order.stream and (member is None or not member.may_hold):
                sender.order.end()
                sender.present.clear()

    async def _receive(self, name: str, sender: Sender, batch: Batch) -> None:
        began = sender.order.stream
        verdict = sender.order.receive(batch)
        if verdict.why:
            self._counts[verdict.why] += 1
        if verdict.asks and time.monotonic() - sender.asked > ASK_SECONDS:
            sender.asked = time.monotonic()
            self._send(name, encode_copy(Receipt(0, asks=True, whole=False, refused=0, full=False)))
        if not verdict.accept:
            return
        if sender.order.stream != began:
            sender.refused, sender.full = 0, False
            sender.present.clear()
        if batch.ip:
            ip = str(ip_address(batch.ip))
            if not self._accepts(ip, name):
                self._counts["stale"] += 1
                sender.present.pop(batch.ip, None)
                return
            await self._apply(name, sender, batch, ip)

    def _accepts(self, ip: str, name: str) -> bool:
        source = self._facts.get(CopySource, ip)
        return source is not None and source.node == name

    async def _apply(self, name: str, sender: Sender, batch: Batch, ip: str) -> None:
        if self._kernel is None:
            self._kernel = CopiedConnections()
        if batch.mark & BEGIN:
            self._facts.drop(CopiedAddress, ip, urgent=True)
            standing = await asyncio.to_thread(records, ip)
            self._held[batch.ip] = len(standing)
            sender.present[batch.ip] = {identity(record): record for record in standing}
        present = sender.present.get(batch.ip, {})
        ended = self._permitted(batch.ended, batch.ip)
        for record in ended:
            present.pop(identity(record), None)
        # what stands already is not made anew, but what has no state would expire
        new = [
            record
            for record in self._permitted(batch.put, batch.ip)
            if present.pop(identity(record), None) is None or record[0] != TCP
        ]
        if batch.mark & END:
            ended += sender.present.pop(batch.ip, {}).values()
        held = max(0, self._held.get(batch.ip, 0) - len(ended))
        if len(new) > MAX_RECORDS - held:
            new, sender.full = new[: MAX_RECORDS - held], True
            self._counts["beyond"] += 1
        self._held[batch.ip] = held + len(new)
        await self._enter(self._kernel, sender, ip, ended, new)
        if batch.mark & END:
            sender.reported = 0.0
            self._facts.put(CopiedAddress(ip, name), urgent=True)

    def _permitted(self, rows: bytes, ip: bytes) -> list[bytes]:
        """Return the records of a batch that may be entered or removed."""
        now = time.monotonic()
        if now - self._filtered_at >= FILTER_SECONDS:
            self._filter, self._filtered_at = RecordFilter(self._facts), now
        sent = split(rows, ip)
        permitted = [record for record in sent if self._filter.passes(record, len(ip))]
        self._counts["refused"] += len(sent) - len(permitted)
        return permitted

    async def _enter(
        self, kernel: CopiedConnections, sender: Sender, ip: str, ended: list[bytes], new: list[bytes]
    ) -> None:
        self._counts["received"] += len(new) + len(ended)
        if ended:
            await _in_thread(kernel.remove, ip, ended)
        if new:
            refused, full = await _in_thread(kernel.put, ip, new)
            sender.refused += refused
            sender.full = sender.full or full
            self._counts["refused"] += refused

    def _report(self, name: str, sender: Sender) -> None:
        now = time.monotonic()
        if sender.order.stream and now - sender.reported >= REPORT_SECONDS:
            sender.reported = now
            whole = not sender.order.open
            receipt = Receipt(
                sender.order.stream, asks=False, whole=whole, refused=sender.refused, full=sender.full
            )
            self._send(name, encode_copy(receipt))


async def _in_thread(do: Callable[[str, list[bytes]], T], ip: str, rows: list[bytes]) -> T:
    return do(ip, rows) if len(rows) <= INLINE else await asyncio.to_thread(do, ip, rows)
