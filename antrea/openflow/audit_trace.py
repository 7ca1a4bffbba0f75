"""Traces of packets whose copies audited policies judge: what becomes of the packet itself, and what of its copies."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from antrea.openflow.fields import AUDIT_PASS_REG_MARK

if TYPE_CHECKING:
    from collections.abc import Iterator

_BEGIN = re.compile(rf"^( +){re.escape(AUDIT_PASS_REG_MARK.load)}$")
_STEP = 4
"""Blanks by which ofproto/trace indents the actions of a flow."""


def enforced_part(trace: str) -> str:
    """The trace without the copies."""
    return "\n".join(line for line, is_copy in _lines(trace) if not is_copy)


def audited_part(trace: str) -> str:
    """The way of the copies, one after the other."""
    return "\n".join(line for line, is_copy in _lines(trace) if is_copy)


def _lines(trace: str) -> Iterator[tuple[str, bool]]:
    """Each line, and whether it is of a copy: from where the copy is marked to the end of its bucket."""
    least: int | None = None
    for line in trace.splitlines():
        if least is not None and len(line) - len(line.lstrip()) < least:
            least = None
        if begin := _BEGIN.match(line):
            least = len(begin[1]) - _STEP
        yield line, least is not None
