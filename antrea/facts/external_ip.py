"""Who names, seeks, is promised and has an address of ExternalIPPools; an owner is `Kind/name`, such as Egress/web."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import ClassVar, Self

import msgspec

from antrea.facts.fact import Fact


class Leads(Fact, frozen=True):
    """This replica leads, and has heard all that was written before it did; `antrea/controller/term.py` writes it."""


class Promise(Fact, frozen=True):
    """An address that is being written into its owner's spec; written before that is tried.

    It stands until the owner is another object, or its spec is a later one: then the spec says what became of it.
    """

    owner: str
    uid: str
    generation: int
    """Of the owner's spec that the write would change."""
    address: str
    indexes: ClassVar[Mapping[str, Callable[[Promise], Iterable[Hashable]]]] = {
        "address": lambda row: (row.address,)
    }

    @property
    def key(self) -> str:
        return self.owner

    def stands(self, uid: str, generation: int) -> bool:
        """Whether it may still be fulfilled for the owner as it is seen now."""
        return self.uid == uid and generation <= self.generation


class Named(Fact, frozen=True):
    """An address that nobody else may be given: its owner's spec names it, or it is promised; units of kinds derive it."""

    owner: str
    address: str
    """As `ipaddress` writes it."""
    pool: str = ""
    """The owner's pool, which has this address; empty: the owner has no pool, or one without this address."""
    since: str = ""
    """When the owner was created, RFC 3339: of two that name one address, the older has it."""
    promised: bool = False
    indexes: ClassVar[Mapping[str, Callable[[Named], Iterable[Hashable]]]] = {
        "address": lambda row: (row.address,),
        "promised": lambda row: (row.owner,) if row.promised else (),
    }

    @property
    def key(self) -> str:
        return f"{self.owner} {self.address}"


class Block(Fact, frozen=True):
    """Addresses within 256: each who has one adds it, so that a change costs no more where many are."""

    family: int
    block: int
    """Their number without the last 8 bits."""
    parts: tuple[int, ...] = ()

    def with_parts(self, parts: tuple[int, ...]) -> Self:
        return msgspec.structs.replace(self, parts=parts)


class Taken(Block, frozen=True):
    """Addresses that are named or promised, by whomever and of whatever pool."""

    @property
    def key(self) -> str:
        return f"{self.family} {self.block}"


class Used(Block, frozen=True, kw_only=True):
    """Addresses of a pool that somebody has."""

    pool: str
    indexes: ClassVar[Mapping[str, Callable[[Used], Iterable[Hashable]]]] = {"pool": lambda row: (row.pool,)}

    @property
    def key(self) -> str:
        return f"{self.pool} {self.family} {self.block}"


class Seeker(Fact, frozen=True):
    """An owner that wants an address of a pool and names none that the pool has; units of kinds derive it."""

    owner: str
    pool: str
    since: str = ""
    indexes: ClassVar[Mapping[str, Callable[[Seeker], Iterable[Hashable]]]] = {
        "pool": lambda row: (row.pool,)
    }

    @property
    def key(self) -> str:
        return self.owner


class Offer(Fact, frozen=True):
    """What a seeker may have: an address, or "" while its pool has none left."""

    owner: str
    pool: str
    address: str

    @property
    def key(self) -> str:
        return self.owner


class Held(Fact, frozen=True):
    """An address of a pool that its owner names and has: it counts as used."""

    owner: str
    pool: str
    address: str

    @property
    def key(self) -> str:
        return self.owner
