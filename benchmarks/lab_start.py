"""How long does a warm `antrea-lab up --nodes 3` take until all Pods are Running, ours included, and DNS answers?

python -m benchmarks.lab_start
"""

from __future__ import annotations

import os
import time

from figure import show

from lab import cluster
from lab.record import Record
from lab.settings import Settings

STARTS = 3
TARGET = 45
"""Seconds."""


def main() -> None:
    cluster.prepare(print)
    show("lab_start", "s", [started() for _ in range(STARTS)], target=TARGET)


def started() -> float:
    """Seconds of one `up`; the lab goes again."""
    record = Record(f"bench{os.getpid()}")
    began = time.monotonic()
    try:
        cluster.up(record, Settings(nodes=3), print)
        return time.monotonic() - began
    finally:
        cluster.down(record)


if __name__ == "__main__":
    main()
