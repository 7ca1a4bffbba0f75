"""Values that nest too deeply for the decoder, which refuses all of the text around them; they are cut out of it.

kube-apiserver stores what nests 10,000 levels deep in fields that a CRD does not know, msgspec decodes about 1,000.
"""

from __future__ import annotations

import re
from typing import Final

MAX_LEVELS: Final = 500
"""Levels that are kept of a text that nests too deeply; objects of known kinds have fewer than 50."""
_MARK: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[\[\]{}]', re.DOTALL)
"""A whole string, or a bracket outside of strings."""


def cut(text: bytes, value: bytes) -> bytes:
    """Return this JSON with `value` in place of each array and object below the level MAX_LEVELS."""
    kept: list[bytes] = []
    level = begin = 0
    for match in _MARK.finditer(text):
        mark = match[0]
        if mark in (b"[", b"{"):
            level += 1
            if level == MAX_LEVELS + 1:
                kept += (text[begin : match.start()], value)
        elif mark in (b"]", b"}"):
            level -= 1
            if level == MAX_LEVELS:
                begin = match.end()
    if level <= MAX_LEVELS:
        kept.append(text[begin:])
    return b"".join(kept)
