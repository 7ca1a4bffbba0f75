"""The vm tier: tests here boot a stock kernel; files named cell_*.py run inside it, all in one boot (test_vm_cells.py)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import kernel_lab
import pytest

from image_build import cache
from lab import vm

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def stock() -> vm.Kernel:
    return vm.kernel(cache.folder())


@pytest.fixture(scope="session")
def kernel() -> Iterator[kernel_lab.KernelLab]:
    """In the machine only: nodes on the kernel datapath, shared by all cells."""
    with kernel_lab.realized() as lab:
        yield lab
