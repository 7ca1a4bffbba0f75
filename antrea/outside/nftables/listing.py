"""Output of `nft -j list` as values. Other programs made the tables, so that everything is checked before it is used.

Source: libnftables-json(5)
"""

from __future__ import annotations

from typing import Any, Final, Generic, TypeVar

import msgspec

from antrea.decoding import decode_json
from antrea.errors import Invalid

E = TypeVar("E")
"""A statement of a rule."""
WHAT: Final = "listing of nft"
JUMPS: Final = ("jump", "goto")


class Target(msgspec.Struct, frozen=True):
    """The chain that a statement leads to."""

    target: str


class Lead(msgspec.Struct, frozen=True):
    """A statement of which only the chain it leads to is read."""

    jump: Target | None = None
    goto: Target | None = None


class ListedTable(msgspec.Struct, frozen=True):
    """A table, without what is in it."""

    family: str
    name: str


class ListedChain(msgspec.Struct, frozen=True):
    """A chain, without its rules."""

    family: str
    table: str
    name: str


class ListedRule(msgspec.Struct, Generic[E], frozen=True):
    """A rule, with its statements."""

    family: str
    table: str
    chain: str
    handle: int
    expr: list[E]


class Row(msgspec.Struct, Generic[E], frozen=True):
    """One entry of the listing; all are None for a kind of entry that is not read, such as a set."""

    table: ListedTable | None = None
    chain: ListedChain | None = None
    rule: ListedRule[E] | None = None


class _Leads(msgspec.Struct):
    nftables: list[Row[Lead | str | None]]


class _Statements(msgspec.Struct):
    nftables: list[Row[dict[str, Any] | str | None]]


LeadRow = Row[Lead | str | None]


def lead_rows(text: str) -> list[LeadRow]:
    """Tables, chains, and rules with the chains that they lead to. Raises Invalid."""
    return decode_json(text, _Leads, WHAT).nftables


def statements(text: str) -> list[tuple[dict[str, Any], ...]]:
    """The statements of each rule: each has one key, its kind; that of a jump has a chain and that of a match is an object. Raises Invalid."""
    rows = decode_json(text, _Statements, WHAT).nftables
    rules = [
        tuple(part for part in row.rule.expr if isinstance(part, dict))
        for row in rows
        if row.rule is not None
    ]
    for rule in rules:
        for part in rule:
            _check(part)
    return rules


def _check(part: dict[str, Any]) -> None:
    if len(part) != 1:
        raise Invalid(WHAT, f"a statement of a rule has {len(part)} keys; it must have one, its kind")
    ((kind, value),) = part.items()
    if (kind == "match" or kind in JUMPS) and not isinstance(value, dict):
        raise Invalid(WHAT, f"a statement of kind {kind} is not an object")
    if kind in JUMPS and not isinstance(value.get("target"), str):
        raise Invalid(WHAT, f"a statement of kind {kind} names no chain")
