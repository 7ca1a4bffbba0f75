"""The vm tier: one boot of a stock kernel runs every file under tests/vm/guest."""

import os
from pathlib import Path

import pytest

from antrea.lab import vm


@pytest.fixture(scope="session")
def stock() -> vm.Kernel:
    cache = os.environ.get("ANTREA_LAB_CACHE") or Path(
        os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"), "antrea-lab"
    )
    return vm.kernel(Path(cache))


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """What is under guest/ runs inside the virtual machine only."""
    return True if collection_path.name == "guest" and "IN_VM" not in os.environ else None
