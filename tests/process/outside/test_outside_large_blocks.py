"""Blocks of megabytes are mapped by themselves, also after one was freed."""

from __future__ import annotations

import subprocess
import sys

MAPPED = """
import ctypes, sys
from antrea.outside.large_blocks import map_large_blocks

class Info(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost".split()]

info = ctypes.CDLL(None).mallinfo2
info.restype = Info
if sys.argv[1] == "mapped":
    map_large_blocks()
for _ in range(2):
    block = bytes(5 << 20)
    mapped = info().hblkhd
    del block
print(mapped >> 20)
"""


def mapped(how: str) -> int:
    return int(subprocess.check_output([sys.executable, "-c", MAPPED, how], text=True, timeout=60))


def test_the_second_large_block_is_mapped_as_the_first_one_is() -> None:
    assert mapped("mapped") >= 5
    assert mapped("as it is") < 5
