"""A lab for as long as a block lasts."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

import msgspec

from lab import cluster
from lab.record import Record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lab.cluster import Lab
    from lab.settings import Settings

CPU = "LAB_CPU"
"""Where the environment has this variable, each node of labs that say nothing else has this percentage of one processor, and the control plane too."""


@contextlib.contextmanager
def own_lab(name: str, settings: Settings, say: Callable[[str], None] = print) -> Iterator[Lab]:
    """Up, under this name and the number of this process; then taken down by its own record, however the block ends."""
    record = Record(f"{name}{os.getpid()}")
    percent = settings.cpu or int(os.environ.get(CPU, "0"))
    settings = msgspec.structs.replace(settings, cpu=percent)
    try:
        yield cluster.up(record, settings, say)
    finally:
        cluster.down(record)
