"""Programs of the kernel's classic BPF, which a socket runs on each packet: conditions in, instructions out.

Source: Linux Documentation/networking/filter.rst, include/uapi/linux/bpf_common.h
"""

from __future__ import annotations

from typing import NamedTuple

WORD, HALF, BYTE = 0x00, 0x08, 0x10
"""Sizes of a load."""
_LD, _LDX, _ALU, _JMP, _RET = 0x00, 0x01, 0x04, 0x05, 0x06
_ABS, _IND, _MSH = 0x20, 0x40, 0xA0
_AND, _JA, _JEQ = 0x50, 0x00, 0x10
MAX_INSTRUCTIONS = 4096
"""Instructions that the kernel takes (BPF_MAXINSNS)."""
KEEP = 0x40000
"""Bytes of a packet that are kept: more than any has."""


class Instruction(NamedTuple):
    """Instruction of BPF, as the kernel's struct sock_filter."""

    code: int
    jt: int = 0
    jf: int = 0
    k: int = 0


class Test(NamedTuple):
    """Whether the value at an offset of the packet, of which only bits of `mask` count, equals `value`."""

    size: int
    offset: int
    value: int
    mask: int | None = None
    after_header: bool = False
    """Counted from the end of the IPv4 header whose length was taken by `HeaderLength`."""


class HeaderLength(NamedTuple):
    """Take the length of the IPv4 header at this offset; true for every packet."""

    offset: int


class All(NamedTuple):
    """Whether all of these hold, in order."""

    parts: tuple[Condition, ...]


class Any(NamedTuple):
    """Whether one of these holds; they are not empty."""

    parts: tuple[Condition, ...]


Condition = Test | HeaderLength | All | Any


class _Jump(NamedTuple):
    """To a label, which has no place yet."""

    label: int


class _Assembly:
    """Instructions in the making, with labels where jumps lead to."""

    def __init__(self) -> None:
        self._lines: list[Instruction | _Jump] = []
        self._places: dict[int, int] = {}

    def label(self) -> int:
        self._places[number := len(self._places)] = -1
        return number

    def place(self, label: int) -> None:
        self._places[label] = len(self._lines)

    def jump(self, label: int) -> None:
        self._lines.append(_Jump(label))

    def add(self, code: int, k: int, jt: int = 0, jf: int = 0) -> None:
        self._lines.append(Instruction(code, jt, jf, k))

    def resolved(self) -> tuple[Instruction, ...]:
        """Raises ValueError if there are more than the kernel takes."""
        if len(self._lines) > MAX_INSTRUCTIONS:
            raise ValueError(
                f"a filter of {len(self._lines)} instructions, of which the kernel takes {MAX_INSTRUCTIONS}"
            )
        return tuple(
            line
            if isinstance(line, Instruction)
            else Instruction(_JMP | _JA, 0, 0, self._places[line.label] - at - 1)
            for at, line in enumerate(self._lines)
        )


def program(condition: Condition) -> tuple[Instruction, ...]:
    """Keep the packets for which `condition` holds. Raises ValueError for one that is too long."""
    assembly = _Assembly()
    drop = assembly.label()
    _emit(assembly, condition, drop)
    assembly.add(_RET, KEEP)
    assembly.place(drop)
    assembly.add(_RET, 0)
    return assembly.resolved()


def _emit(assembly: _Assembly, condition: Condition, otherwise: int) -> None:
    """Go on behind these instructions where `condition` holds, else at the label `otherwise`."""
    if isinstance(condition, Test):
        mode = _IND if condition.after_header else _ABS
        assembly.add(_LD | condition.size | mode, condition.offset)
        if condition.mask is not None:
            assembly.add(_ALU | _AND, condition.mask)
        # conditional jumps reach 255 instructions, others any
        assembly.add(_JMP | _JEQ, condition.value, jt=1)
        assembly.jump(otherwise)
    elif isinstance(condition, HeaderLength):
        assembly.add(_LDX | BYTE | _MSH, condition.offset)
    elif isinstance(condition, All):
        for part in condition.parts:
            _emit(assembly, part, otherwise)
    else:
        done = assembly.label()
        for part in condition.parts[:-1]:
            following = assembly.label()
            _emit(assembly, part, following)
            assembly.jump(done)
            assembly.place(following)
        _emit(assembly, condition.parts[-1], otherwise)
        assembly.place(done)
