"""The vm tier: tests here boot a stock kernel; files named cell_*.py run inside it, all in one boot (test_vm_cells.py)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import kernel_lab
import pytest

from antrea.lab import vm

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def cache() -> Path:
    home = os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")
    return Path(os.environ.get("ANTREA_LAB_CACHE") or Path(home, "antrea-lab"))


@pytest.fixture(scope="session")
def stock(cache: Path) -> vm.Kernel:
    return vm.kernel(cache)


@pytest.fixture(scope="session")
def kernel() -> Iterator[kernel_lab.KernelLab]:
    """In the machine only: nodes on the kernel datapath, shared by all cells."""
    with kernel_lab.realised() as lab:
        yield lab
