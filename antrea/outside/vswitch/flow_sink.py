"""The sink of flows and groups: one atomic bundle of ovs-ofctl per application, and the sweep of earlier rounds.

A refused entry is named, so that the engine can hold back its owners and send the others again. How a run of the tool
goes and what its complaints mean is in `ofctl_run`, groups and their buckets in `ofctl_groups`, meters (which no
bundle takes) in `ofctl_meters`; small bundles that need no run of the tool are in `flow_bundle`; noticing that the switch came back empty is in `ofctl_watch`.
"""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Any

import msgspec

from antrea.errors import Refused, Unavailable
from antrea.openflow.action import CONJUNCTIONS
from antrea.openflow.cookie import CATEGORY_MASK, LEARNED_ROUND, cookie
from antrea.openflow.flow import Flow
from antrea.openflow.flow_mod import flow_mod
from antrea.openflow.group import Group
from antrea.outside.log import klog
from antrea.outside.vswitch.flow_bundle import MAX_FLOWS, commit
from antrea.outside.vswitch.groups import Groups, bucket_count, unreferred
from antrea.outside.vswitch.operation_metrics import FlowOperations

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from antrea.openflow.pipeline import Pipeline
    from antrea.outside.vswitch.ofctl import Ofctl, Refusal

log = klog.logger(__name__)

_SLICE = 200
"""Entries rendered before others get the loop."""

_ROUNDS = 1 << 16
_TABLE = re.compile(r"(\btable=|goto_table:|resubmit\([^,()]*,)(\d+)\b")


class SentEntry(msgspec.Struct, frozen=True, gc=False):
    """An entry and the lines of a bundle that make it stand, or fall."""

    entry: Any
    lines: tuple[str, ...]
    put: bool


class FlowSink:
    """Applies `Flow` and `Group` entries to one bridge, flows under the cookie round of this start."""

    whole = True

    def __init__(self, ofctl: Ofctl, pipeline: Pipeline, cookie_round: int) -> None:
        self._ofctl = ofctl
        self._pipeline = pipeline
        self._round = cookie_round
        self._names = {number: name for name, number in pipeline.ids.items()}
        self._groups = Groups(pipeline)
        self.operations = FlowOperations()

    async def apply(self, put: Sequence[Any], drop: Sequence[Any]) -> None:
        """Add and delete in one bundle, however large: it is applied whole or not at all, so that no packet meets a part.

        A bundle holds the switch's main loop for about 8 us for each message, and has no limit but memory. Raises Refused
        with an entry that the switch or ovs-ofctl does not take, and its words; those beside it are then not applied
        (their owners may be held back). Raises Unavailable when nothing is known.
        """
        await self._send(await self._rendered(put, drop))

    async def resync(self, entries: Sequence[Any]) -> None:
        """Replay everything in one bundle under this round.

        An existing flow with the same match and priority is replaced in place: it keeps its counters, and no packet
        finds its table empty in between. Raises as `apply` does.
        """
        counted = [bucket_count(line) async for line in self._ofctl.lines("dump-group-stats")]
        buckets = dict(filter(None, counted))
        self._groups.clear()
        async for line in self._ofctl.lines("dump-groups"):
            self._groups.adopt(line, buckets)
        await self._send(await self._rendered(entries, ()))

    async def sweep(self, category: int) -> None:
        """Delete what earlier starts left: flows of `category` (not learned ones, of round 0) and buckets of its groups.

        And groups that neither we nor any flow want any more, whatever they were for. Raises Unavailable.
        """
        flows = [
            f"flow delete cookie={value:#x}/{mask:#x}" for value, mask in stale_cookies(category, self._round)
        ]
        await self._swept(category, [*flows, *self._groups.leftovers(category)])
        self._groups.swept(category)
        if self._groups.unwanted:
            unnamed = {unreferred(line) async for line in self._ofctl.lines("dump-group-stats")}
            gone = self._groups.unneeded(unnamed)
            await self._swept(category, [f"group delete group_id={number}" for number in gone])
            self._groups.done((), gone)

    async def _swept(self, category: int, lines: list[str]) -> None:
        if lines and (no := await self._ofctl.bundle(lines)):
            raise Unavailable(f"sweep of category {category} failed: {no.why}")

    async def dump_flows(self, *tables: str) -> list[str]:
        """Return the flows of the switch for people: table and port names, counters; all tables if none is named.

        Raises ValueError on a table that is not realized, Unavailable.
        """
        matches = [f"table={self._pipeline.id(table)}" for table in tables] or [""]
        return [
            _TABLE.sub(self._named, line)
            for match in matches
            async for line in self._ofctl.lines("dump-flows", *filter(None, [match]), "--names")
        ]

    def _named(self, match: re.Match[str]) -> str:
        return f"{match[1]}{self._names.get(int(match[2]), match[2])}"

    async def _rendered(self, put: Sequence[Any], drop: Sequence[Any]) -> list[SentEntry]:
        """Every entry with its lines, in order. Raises Refused with all that cannot be put into words."""
        rendered: list[SentEntry] = []
        refused: dict[str, list[Any]] = {}
        for command, entries in ((self._put, put), (self._drop, drop)):
            for number, entry in enumerate(entries):
                if number % _SLICE == _SLICE - 1:
                    await asyncio.sleep(0)
                try:
                    rendered.append(SentEntry(entry, command(entry), entries is put))
                except ValueError as error:
                    refused.setdefault(str(error), []).append(entry)
        if refused:
            raise Refused([entry for entries in refused.values() for entry in entries], "; ".join(refused))
        return rendered

    def _put(self, entry: Flow | Group) -> tuple[str, ...]:
        if isinstance(entry, Group):
            return self._groups.put(entry)
        if len(entry.actions) > CONJUNCTIONS:
            raise ValueError(
                f"{len(entry.actions)} actions do not fit an OpenFlow message, which holds {CONJUNCTIONS}"
            )
        return (f"flow add {entry.text(self._pipeline, self._round)}",)

    def _drop(self, entry: Flow | Group) -> tuple[str, ...]:
        if isinstance(entry, Group):
            return self._groups.drop(entry)
        return (f"flow delete_strict {entry.match_text(self._pipeline)}",)

    async def _send(self, batch: list[SentEntry]) -> None:
        """Apply all, or raise Refused with one that is not taken: by the complaint, or if it names none by halves."""
        while lines := [line for sent in batch for line in sent.lines]:
            kinds = {"add" if sent.put else "delete" for sent in batch}
            try:
                no = await self.operations.measured(kinds, self._bundled(batch, lines))
            except BaseException:
                self._groups.doubt(sent.entry.id for sent in _groups(batch))
                raise
            if no is None:
                break
            culprit = _owner(batch, no.line)
            if culprit is not None:
                self._groups.doubt(sent.entry.id for sent in _groups([culprit]))
                raise Refused([culprit.entry], no.why)
            half = len(batch) // 2
            await self._send(batch[:half])
            batch = batch[half:]
        groups = _groups(batch)
        self._groups.done(
            [sent.entry for sent in groups if sent.put], [sent.entry.id for sent in groups if not sent.put]
        )

    async def _bundled(self, batch: Sequence[SentEntry], lines: Sequence[str]) -> Refusal | None:
        """Send a few flows of the urgent kind without a program; what the switch refuses goes by ovs-ofctl, for its reason."""
        if flow_mods := self._flow_mods(batch):
            try:
                await commit(self._ofctl.socket, flow_mods)
            except Unavailable as error:
                log.v(1).info("A bundle is sent again by ovs-ofctl", flows=len(flow_mods), err=str(error))
            else:
                return None
        return await self._ofctl.bundle(lines)

    def _flow_mods(self, batch: Sequence[SentEntry]) -> list[bytes]:
        """Messages for all of the batch; none if one of it is not of that kind, or there are many."""
        messages: list[bytes] = []
        for sent in batch if len(batch) <= MAX_FLOWS else ():
            made = (
                flow_mod(sent.entry, self._pipeline, self._round, put=sent.put)
                if isinstance(sent.entry, Flow)
                else None
            )
            if made is None:
                return []
            messages.append(made)
        return messages


def _groups(batch: Sequence[SentEntry]) -> list[SentEntry]:
    return [sent for sent in batch if isinstance(sent.entry, Group)]


def _owner(batch: Sequence[SentEntry], line: int | None) -> SentEntry | None:
    """Return the entry that rendered `line`; the only one there is, if the complaint names none."""
    if line is None:
        return batch[0] if len(batch) == 1 else None
    for sent in batch:
        line -= len(sent.lines)
        if line < 0:
            return sent
    return None


def stale_cookies(category: int, cookie_round: int) -> Iterator[tuple[int, int]]:
    """(value, mask) pairs that together match every cookie of `category` but those of `cookie_round` and of round 0.

    The rounds below and those above, as prefixes: at most 45 pairs, of which each costs the switch a look at all flows.
    """
    for first, last in ((LEARNED_ROUND + 1, cookie_round - 1), (cookie_round + 1, _ROUNDS - 1)):
        for value, mask in _prefixes(first, last):
            yield cookie(value, category), cookie(mask, 0) | CATEGORY_MASK


def _prefixes(first: int, last: int) -> Iterator[tuple[int, int]]:
    """(value, mask) of the fewest aligned blocks that make up `first` to `last`, both included."""
    while first <= last:
        size = first & -first
        while size > last - first + 1:
            size >>= 1
        yield first, (_ROUNDS - 1) & ~(size - 1)
        first += size
