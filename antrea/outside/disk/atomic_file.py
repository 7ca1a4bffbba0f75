"""Exchanges a file for another in one step: a full disk or a kill leaves the old one, never half of the new one."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


def exchange(path: Path, parts: Iterable[bytes], *, sync: bool = False) -> None:
    """For one that has these parts and that root alone reads; `sync`: it outlives a loss of power. Raises OSError."""
    fresh = path.with_suffix(".new")
    try:
        with fresh.open("wb") as file:
            os.fchmod(file.fileno(), 0o600)
            file.writelines(parts)
            if sync:
                file.flush()
                os.fsync(file.fileno())
        fresh.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            fresh.unlink()
        raise
