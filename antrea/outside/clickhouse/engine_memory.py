"""Less memory of the embedded engine: its allocator gives free pages back, and code and constants that it needs seldom are not kept mapped.

Source: https://jemalloc.net/jemalloc.3.html (opt.dirty_decay_ms), madvise(2), proc_pid_maps(5).
"""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from antrea.outside.log import klog

if TYPE_CHECKING:
    from collections.abc import Iterator

log = klog.logger(__name__)

LIBRARY: Final = "_chdb.abi3.so"
"""555 MB, of which the start of the engine reads 170."""
MADV_DONTNEED: Final = 4
_MAPS: Final = Path("/proc/self/maps")


def configure_allocator() -> None:
    """Before the engine is loaded: pages that a query or a merge has freed go back after 50 ms, not after seconds.

    At once would make each block of rows take pages anew from the kernel, which doubles the time of a query.
    """
    os.environ.setdefault("JE_MALLOC_CONF", "dirty_decay_ms:50,muzzy_decay_ms:0")


def release_read_only() -> None:
    """Unmap pages of code and constants that were read, which takes 6 ms; one that is needed again comes from the page cache."""
    libc = ctypes.CDLL(None, use_errno=True)
    for begin, end in read_only(_MAPS.read_text(), LIBRARY):
        if libc.madvise(ctypes.c_void_p(begin), ctypes.c_size_t(end - begin), MADV_DONTNEED):
            log.warning(
                "Failed to release code and constants of the engine", err=os.strerror(ctypes.get_errno())
            )


def read_only(maps: str, library: str) -> Iterator[tuple[int, int]]:
    """Where its constants and its code are mapped, which nothing writes into; what comes after the code was relocated."""
    for line in maps.splitlines():
        where, mode, *_, name = line.split(maxsplit=5)
        if name.rpartition("/")[2] != library:
            continue
        begin, _, end = where.partition("-")
        if mode in ("r--p", "r-xp"):
            yield int(begin, 16), int(end, 16)
        if mode == "r-xp":
            return
