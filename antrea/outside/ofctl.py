"""The sink of flows and groups: one atomic bundle of ovs-ofctl per application, and the sweep of earlier rounds.

A refused entry is named, so that the engine can hold back its owners and send the others again. How a run of the tool goes and what its
complaints mean is in `ofctl_run`; noticing that the switch came back empty is in `ofctl_watch`.
"""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Any

import msgspec

from antrea.errors import Refused, Unavailable
from antrea.openflow.cookie import CATEGORY_MASK, LEARNED_ROUND, cookie

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from antrea.openflow.flow import Flow
    from antrea.openflow.pipeline import Pipeline
    from antrea.outside.ofctl_run import Ofctl

BUNDLE = 5000
"""Messages in one bundle: it holds the switch's main loop for about 100 ms."""
ACTIONS = 4000
"""Conjunctions, of 16 bytes each, that fit an OpenFlow message of 64 KiB; a longer one may be mistaken for another."""
_SLICE = 200
"""Entries rendered before others get the loop."""

_ROUNDS = 1 << 16
_TABLE = re.compile(r"(\btable=|goto_table:|resubmit\([^,()]*,)(\d+)\b")


class Sent(msgspec.Struct, frozen=True, gc=False):
    """An entry and the lines of a bundle that make it stand, or fall."""

    entry: Any
    lines: tuple[str, ...]


class FlowSink:
    """Applies `Flow` entries to one bridge under the cookie round of this start."""

    def __init__(self, ofctl: Ofctl, pipeline: Pipeline, cookie_round: int) -> None:
        self._ofctl = ofctl
        self._pipeline = pipeline
        self._round = cookie_round

    async def apply(self, put: Sequence[Any], drop: Sequence[Any]) -> None:
        """Add and delete in bundles of at most 5,000 messages, of which each is applied whole or not at all.

        Raises Refused with an entry that the switch or ovs-ofctl does not take, and its words; those beside it in the
        bundle are then not applied (their owners may be held back), those of earlier bundles are. Raises Unavailable
        when nothing is known.
        """
        pending, size = list[Sent](), 0
        for sent in await self._rendered(put, drop):
            if pending and size + len(sent.lines) > BUNDLE:
                await self._send(pending)
                pending, size = [], 0
            pending.append(sent)
            size += len(sent.lines)
        await self._send(pending)

    async def resync(self, entries: Sequence[Any]) -> None:
        """Replay everything in one bundle under this round.

        A flow that stands with the same match and priority is replaced in place: it keeps its counters, and no packet
        finds its table empty in between. Raises as `apply` does.
        """
        await self._send(await self._rendered(entries, ()))

    async def sweep(self, category: int) -> None:
        """Delete the flows of `category` that other rounds left; learned flows (round 0) live on. Raises Unavailable."""
        lines = [
            f"flow delete cookie={value:#x}/{mask:#x}" for value, mask in stale_cookies(category, self._round)
        ]
        if no := await self._ofctl.bundle(lines):
            raise Unavailable(f"sweep of category {category}: {no.why}")

    async def dump_flows(self, *tables: str) -> list[str]:
        """The flows that stand, for people: table and port names, counters; all tables if none is named.

        Raises ValueError on a table that is not realised, Unavailable.
        """
        matches = [f"table={self._pipeline.id(table)}" for table in tables] or [""]
        return [
            _TABLE.sub(self._named, line)
            for match in matches
            async for line in self._ofctl.lines("dump-flows", *filter(None, [match]), "--names")
        ]

    def _named(self, found: re.Match[str]) -> str:
        number = int(found[2])
        tables = self._pipeline.tables
        return f"{found[1]}{tables[number].name if number < len(tables) else number}"

    async def _rendered(self, put: Sequence[Any], drop: Sequence[Any]) -> list[Sent]:
        """Every entry with its lines, in order. Raises Refused with all that cannot be put into words."""
        rendered: list[Sent] = []
        refused: dict[str, Any] = {}
        for words, entries in ((self._put, put), (self._drop, drop)):
            for number, entry in enumerate(entries):
                if number % _SLICE == _SLICE - 1:
                    await asyncio.sleep(0)
                try:
                    rendered.append(Sent(entry, words(entry)))
                except ValueError as no:
                    refused.setdefault(str(no), []).append(entry)
        if refused:
            raise Refused([entry for entries in refused.values() for entry in entries], "; ".join(refused))
        return rendered

    def _put(self, flow: Flow) -> tuple[str, ...]:
        if len(flow.actions) > ACTIONS:
            raise ValueError(
                f"{len(flow.actions)} actions do not fit an OpenFlow message, which holds {ACTIONS}"
            )
        return (f"flow add {flow.text(self._pipeline, self._round)}",)

    def _drop(self, flow: Flow) -> tuple[str, ...]:
        return (f"flow delete_strict {flow.match_text(self._pipeline)}",)

    async def _send(self, batch: list[Sent]) -> None:
        """Apply all, or raise Refused with one that is not taken: by the complaint, or if it names none by halves."""
        while batch and (no := await self._ofctl.bundle([line for sent in batch for line in sent.lines])):
            culprit = _owner(batch, no.line)
            if culprit is not None:
                raise Refused([batch[culprit].entry], no.why)
            half = len(batch) // 2
            await self._send(batch[:half])
            batch = batch[half:]


def _owner(batch: Sequence[Sent], line: int | None) -> int | None:
    """Index of the entry that rendered `line`; the only one there is, if the complaint names none."""
    if line is None:
        return 0 if len(batch) == 1 else None
    for index, sent in enumerate(batch):
        line -= len(sent.lines)
        if line < 0:
            return index
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
