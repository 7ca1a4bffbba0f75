"""Memory of texts of megabytes goes back to the kernel when they are gone.

glibc takes blocks from the heap that are smaller than the largest one that was freed so far, and a heap with something
behind such a hole does not shrink. Source: mallopt(3), M_MMAP_THRESHOLD.
"""

from __future__ import annotations

import ctypes
from typing import Final

LARGE: Final = 1 << 20
"""Bytes of a block that is mapped by itself."""
_M_MMAP_THRESHOLD: Final = -3


def map_large_blocks() -> None:
    """For all blocks from now on; nothing where the C library has no such setting."""
    if mallopt := getattr(ctypes.CDLL(None), "mallopt", None):
        mallopt(_M_MMAP_THRESHOLD, LARGE)
