"""The kernel datapath with real packets: one boot, in which every file named cell_*.py runs on the same two nodes."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import vm_cluster
from vm_shape import DIRECTORY

from antrea.lab import cluster, vm
from antrea.lab.record import Record

if TYPE_CHECKING:
    from collections.abc import Iterator

CELLS = sorted(Path(__file__).parent.glob("cell_*.py"))
PYTEST = (".venv/bin/python", "-m", "pytest", "-q", "--color=no", "--durations=12", "--timeout=600")


@pytest.fixture
def served() -> Iterator[tuple[Path, Path]]:
    """The cluster's directory and the file of the network namespace in which its API server listens."""
    subprocess.run(["make", "-s", "-C", "cni", "antrea-cni"], check=True)
    record = Record(f"vm{os.getpid()}")
    try:
        with record.locked():
            home = vm_cluster.serve(record)
        yield record.directory, home
    finally:
        cluster.down(record)


def test_the_cells_pass_on_the_kernel_datapath(stock: vm.Kernel, served: tuple[Path, Path]) -> None:
    directory, home = served

    status, console = vm.run(
        stock, ["env", f"{DIRECTORY}={directory}", *PYTEST, *map(str, CELLS)], timeout=800, netns=home
    )

    print(console[-12000:])
    assert status == 0
