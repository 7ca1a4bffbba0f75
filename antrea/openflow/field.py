"""A named bit range of packet metadata (register, ct_mark, ct_label, pkt_mark), and a value of it."""

from __future__ import annotations

import re
from functools import cache, lru_cache
from typing import NewType

import msgspec

Match = NewType("Match", str)
"""One or more comma-separated terms, as `ovs-ofctl` reads them (ovs-fields(7)); empty matches everything."""
Action = NewType("Action", str)
"""One action (ovs-actions(7)); `{Name}`, `{next}` and `{stage:X}` stand for a table id until the wire."""

_REGISTER = re.compile(r"(xxreg|reg)(\d+)")
_WIDTHS = {"reg": 32, "xxreg": 128, "ct_mark": 32, "ct_label": 128, "pkt_mark": 32}
_COUNTS = {"reg": 16, "xxreg": 4}


RECENT = 4096
"""Texts of marks that are kept: of ports and of bits. Those of addresses go again."""


@cache
def register_width(register: str) -> int:
    """Bits of `register`; raises ValueError if OVS has no such register."""
    match = _REGISTER.fullmatch(register)
    kind, number = (match[1], int(match[2])) if match else (register, 0)
    if kind not in _WIDTHS or number >= _COUNTS.get(kind, 1):
        raise ValueError(f"OVS has no register {register}")
    return _WIDTHS[kind]


@lru_cache(RECENT)
def masked_text(register: str, value: int, mask: int) -> str:
    """`0x1/0xf`, or `0x1` when the mask covers the whole register."""
    return f"{value:#x}" if mask == (1 << register_width(register)) - 1 else f"{value:#x}/{mask:#x}"


@lru_cache(RECENT)
def _match(register: str, text: str) -> Match:
    return Match(f"{register}={text}")


@lru_cache(RECENT)
def _load(register: str, text: str) -> Action:
    return Action(f"set_field:{text}->{register}")


@cache
def _nxm(register: str, lo: int, hi: int) -> str:
    if (lo, hi) == (0, register_width(register) - 1):
        bits = ""
    elif lo == hi:
        bits = str(lo)
    else:
        bits = f"{lo}..{hi}"
    return f"NXM_NX_{register.upper()}[{bits}]"


class Field(msgspec.Struct, frozen=True):
    """Bits `lo` to `hi` (both included) of `register`, declared once, with upstream's name."""

    name: str
    register: str
    lo: int
    hi: int
    purpose: str

    def __post_init__(self) -> None:
        width = register_width(self.register)
        if not 0 <= self.lo <= self.hi < width:
            raise ValueError(
                f"{self.name}: {self.register}[{self.lo}..{self.hi}] leaves a {width}-bit register"
            )

    def __call__(self, value: int, purpose: str = "") -> Mark:
        """The field with a value; raises ValueError if the value needs more bits."""
        return Mark(self, value, purpose)

    @property
    def width(self) -> int:
        return self.hi - self.lo + 1

    @property
    def mask(self) -> int:
        return ((1 << self.width) - 1) << self.lo

    @property
    def nxm(self) -> str:
        """The name that move, load, learn and output use: `NXM_NX_REG0[0..3]`."""
        return _nxm(self.register, self.lo, self.hi)

    def within(self, value: int, mask: int) -> Match:
        """Match some bits of the field only: a prefix of the Endpoint's address."""
        if mask >> self.width or value & ~mask:
            raise ValueError(f"{self.name}: {value:#x}/{mask:#x} leaves {self.width} bits")
        return Match(f"{self.register}={masked_text(self.register, value << self.lo, mask << self.lo)}")


class Mark(msgspec.Struct, frozen=True):
    """A field with a value: match it, or load it."""

    field: Field
    value: int
    purpose: str = ""

    def __post_init__(self) -> None:
        if self.value < 0 or self.value >> self.field.width:
            raise ValueError(f"{self.field.name}: {self.value} does not fit {self.field.width} bits")

    @property
    def _text(self) -> str:
        return masked_text(self.field.register, self.value << self.field.lo, self.field.mask)

    @property
    def match(self) -> Match:
        return _match(self.field.register, self._text)

    @property
    def load(self) -> Action:
        return _load(self.field.register, self._text)
