"""Makes our tables of nftables, all called `antrea`, be what is wanted, each change in one transaction."""

from __future__ import annotations

import asyncio
import errno
import os
from typing import TYPE_CHECKING, Any

import msgspec

from antrea.errors import Refused
from antrea.host.nft import (
    ARP_TABLE,
    IPV4_TABLE,
    IPV6_TABLE,
    SHIELD_TABLE,
    TABLE,
    NftArpSource,
    NftChain,
    NftCounter,
    NftElement,
    NftHops,
    NftRelay,
    NftRule,
    NftSet,
    NftShield,
    NftSilence,
    NftTag,
)
from antrea.outside.nftables import text as nft_text
from antrea.outside.nftables.dump import tables
from antrea.outside.nftables.libnftables import Nft, NftError, connect

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_ADDS = (
    NftSet,
    NftCounter,
    NftChain,
    NftElement,
    NftShield,
    NftTag,
    NftRelay,
    NftHops,
    NftSilence,
    NftArpSource,
)
"""In the order in which they can be added; rules come after all of them, and deletes after rules, in reverse."""
KINDS = (
    NftSet,
    NftCounter,
    NftChain,
    NftElement,
    NftRule,
    NftShield,
    NftTag,
    NftRelay,
    NftHops,
    NftSilence,
    NftArpSource,
)
_TABLES = (TABLE, SHIELD_TABLE, IPV4_TABLE, IPV6_TABLE, ARP_TABLE)
_FIXED = (NftSet, NftChain)
"""Entries that nft cannot change in place."""
_NOT_THERE = os.strerror(errno.ENOENT)

Name = tuple[type, Any]
State = dict[Name, Any]


class Line(msgspec.Struct, frozen=True):
    """One command, and the entry to blame for its failure."""

    text: str
    entry: Any = None
    may_vanish: bool = False
    """About a shield: its interface, and its chain with it, may go at any time, and that is fine."""


class NftSink:
    """For all of KINDS. Works in the namespace of the thread that makes it.

    An entry that nft refuses does not keep the others of its batch from being applied. Between `resync` and the sweep
    of their category, entries that an earlier start left stay in force beside the wanted ones.
    """

    def __init__(self, nft: Nft | None = None) -> None:
        self._nft = nft or connect()
        self._wanted: State = {}
        """Last applied state."""
        self._previous: State = {}
        """Entries of an earlier start that were not wanted since, and that no sweep has reached."""
        self._rules: dict[str, State] = {}
        """The rules of both, by chain."""
        self._tables: set[str] = set()
        """Existing tables of _TABLES, as far as this program has found or made them."""

    @property
    def in_process(self) -> bool:
        """Whether our own changes are made by sockets of this process."""
        return self._nft.in_process

    async def apply(self, put: Sequence[Any], drop: Sequence[Any]) -> None:
        """Raises Refused naming the refused entries, with nft's words about the first."""
        await asyncio.to_thread(self._apply, put, drop)

    async def resync(self, entries: Sequence[Any]) -> None:
        """Replace our tables by `entries` and what else of ours stands, in one transaction. Raises as `apply`."""
        await asyncio.to_thread(self._resync, entries)

    async def sweep(self, category: int) -> None:
        """Remove what an earlier start left of this category. Raises as `apply`."""
        await asyncio.to_thread(self._sweep, category)

    def _apply(self, put: Sequence[Any], drop: Sequence[Any]) -> None:
        """Costs what the change costs, however much stands; if nft refuses, everything is built anew."""
        new = {_name(entry): entry for entry in put}
        gone = {_name(entry) for entry in drop} - set(new)
        old = {name: entry for name in (*new, *gone) if (entry := self._stands(name)) is not None}
        touched = {name[1][0] for name in (*new, *old) if name[0] is NftRule}
        added = _by_chain(new)
        rules = {chain: self._rules.get(chain, {}) | added.get(chain, {}) for chain in touched}
        rules = {
            chain: {name: rule for name, rule in state.items() if name not in gone}
            for chain, state in rules.items()
        }
        if _redefines(old, new) or self._attempt(list(_changes(old, new, rules))) is not None:
            wanted = {name: entry for name, entry in (self._wanted | new).items() if name not in gone}
            self._become(wanted, {name: entry for name, entry in self._previous.items() if name not in gone})
            return
        self._tables |= {_table(entry) for entry in new.values()}
        for name in (*new, *gone):
            self._wanted.pop(name, None)
            self._previous.pop(name, None)
        self._wanted |= new
        for chain, state in rules.items():
            self._rules[chain] = state
            if not state:
                del self._rules[chain]

    def _resync(self, entries: Sequence[Any]) -> None:
        left = {_name(entry): entry for entry in nft_text.parse(self._listed())}
        self._become({_name(entry): entry for entry in entries}, left)

    def _sweep(self, category: int) -> None:
        kept = {name: entry for name, entry in self._previous.items() if entry.category != category}
        filled = {entry.chain for entry in kept.values() if isinstance(entry, NftRule)}
        kept = {
            name: entry
            for name, entry in kept.items()
            if not isinstance(entry, NftChain) or entry.name in filled
        }
        if kept != self._previous:
            self._become(self._wanted, kept)

    def _become(self, wanted: State, previous: State) -> None:
        """Build our tables anew; if nft refuses, without what an earlier start left, then without those it blames."""
        refused: dict[Name, str] = {}
        while True:
            target = {name: entry for name, entry in wanted.items() if name not in refused}
            rest = {name: entry for name, entry in previous.items() if name not in wanted}
            state = rest | target
            rules = _by_chain(state)
            lines = [*self._delete_table(), *_changes({}, state, rules)]
            if (error := self._attempt(lines)) is None:
                break
            if rest:
                previous = {}
                continue
            blamed = [(lines[number].entry, message) for number, message in error.lines.items()]
            fresh = {_name(entry): message for entry, message in blamed if entry is not None}
            if not fresh:
                raise error
            refused |= fresh
        self._wanted, self._previous, self._rules = target, rest, rules
        self._tables = {_table(entry) for entry in state.values()}
        if refused:
            first = next(iter(refused))
            raise Refused(
                [wanted[name] for name in refused], f"{first[0].__name__} {first[1]}: {refused[first]}"
            )

    def _attempt(self, lines: list[Line]) -> NftError | None:
        """Run them, less those about shields whose interface is gone, which leave the list; none if one is not fit for nft."""
        faults = {number: why for number, line in enumerate(lines) if (why := nft_text.fault(line.entry))}
        if faults:
            return NftError("entries that are not given to nft", faults)
        while lines:
            try:
                self._nft.run("".join(f"{line.text}\n" for line in lines))
            except NftError as error:
                blamed = {
                    number
                    for number, message in error.lines.items()
                    if lines[number].may_vanish and _NOT_THERE in message
                }
                if not blamed or len(blamed) < len(error.lines):
                    return error
                lines[:] = [line for number, line in enumerate(lines) if number not in blamed]
            else:
                break
        return None

    def _stands(self, name: Name) -> Any | None:
        return self._wanted.get(name, self._previous.get(name))

    def _listed(self) -> str:
        """Return the listing of our existing tables. To find them nft would read the rules of all programs: seconds beside kube-proxy."""
        families = {table.partition(" ")[0] for table in _TABLES}
        standing = {f"{family} {name}" for family in families for name in tables(family)}
        self._tables = standing.intersection(_TABLES)
        # one at a time: of several in a run, nft 1.0.6 finds the last one alone
        return "".join(self._nft.run(f"list table {table}\n") for table in sorted(self._tables))

    def _delete_table(self) -> list[Line]:
        """No table of ours. An addition first, so that the deletion finds something even now."""
        return [Line(f"{verb} table {table}") for table in sorted(self._tables) for verb in ("add", "delete")]


def _changes(old: State, new: State, rules: Mapping[str, State]) -> Iterator[Line]:
    """The commands that replace `old` by `new`; `rules` gives all rules of the chains in which some change."""
    for table in sorted({_table(entry) for entry in new.values()}):
        yield Line(f"add table {table}")
    for kind in _ADDS:
        for name, entry in _of(kind, new):
            if kind is NftElement and old.get(name, entry) != entry:
                yield Line(nft_text.delete(old[name]), entry)
            yield Line(nft_text.add(entry), entry, kind is NftShield)
    yield from _refills(old, rules)
    for kind in reversed(_ADDS):
        for name, entry in _of(kind, old):
            if name not in new:
                yield Line(nft_text.delete(entry), entry, kind in (NftShield, NftTag))


def _refills(old: State, rules: Mapping[str, State]) -> Iterator[Line]:
    flushed = {rule.chain for _, rule in _of(NftRule, old)}
    for chain, standing in sorted(rules.items()):
        if chain in flushed or standing:
            yield Line(nft_text.flush(chain), next(iter(standing.values()), None))
        for rule in sorted(standing.values(), key=_place):
            yield Line(nft_text.add(rule), rule)


def _redefines(old: State, new: State) -> bool:
    return any(
        kind in _FIXED and (kind, key) in old and old[kind, key] != entry
        for (kind, key), entry in new.items()
    )


def _of(kind: type, state: State) -> Iterator[tuple[Name, Any]]:
    return ((name, entry) for name, entry in state.items() if name[0] is kind)


def _by_chain(state: State) -> dict[str, State]:
    chains: dict[str, State] = {}
    for name, rule in _of(NftRule, state):
        chains.setdefault(rule.chain, {})[name] = rule
    return chains


def _place(rule: NftRule) -> tuple[int, str]:
    return rule.order, rule.name


def _table(entry: Any) -> str:
    if isinstance(entry, NftRelay | NftHops | NftSilence | NftArpSource):
        return entry.table
    return SHIELD_TABLE if isinstance(entry, NftShield | NftTag) else TABLE


def _name(entry: Any) -> Name:
    return type(entry), entry.key
