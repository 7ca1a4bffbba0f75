"""What needs the stock kernel: one boot, in which every file named cell_*.py runs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import image_switch
import pytest
import vm_cluster
from vm_shape import DIRECTORY

import antrea
from antrea.lab import artifacts, cluster, image_recipe, images, vm
from antrea.lab.process import tail
from antrea.lab.record import Record

if TYPE_CHECKING:
    from collections.abc import Iterator

ALONE = "cell_lab_node.py"
"""Starts a node of the lab: before the agents that the others share, which would take it the time."""
CELLS = sorted(Path(__file__).parent.glob("cell_*.py"), key=lambda path: (path.name != ALONE, path))
PYTEST = (
    *("env", "PYTEST_DISABLE_PLUGIN_AUTOLOAD=1", ".venv/bin/python", "-m", "pytest"),
    *("-p", "pytest_timeout", "-p", "pytest_asyncio.plugin", "--confcutdir=tests/vm"),
    *("-q", "--color=no", "--durations=12", "--timeout=900"),
)
"""Without what these tests do not use: each import takes 30 times as long in there."""


@pytest.fixture
def served() -> Iterator[tuple[Path, Path]]:
    """The cluster's directory and the file of the network namespace in which its API server listens."""
    subprocess.run(["make", "-s", "-C", "cni", "antrea-cni"], check=True)
    # in there it takes half a minute, of each agent
    subprocess.run([sys.executable, "-m", "compileall", "-q", "antrea", "tests/vm"], check=True)
    record = Record(f"vm{os.getpid()}")
    try:
        with record.locked():
            home = vm_cluster.serve(record)
        with vm_cluster.restarting(record, home):
            yield record.directory, home
    finally:
        cluster.down(record)


def test_the_cells_pass_on_the_stock_kernel(stock: vm.Kernel, served: tuple[Path, Path]) -> None:
    """Images are unpacked here, since an overlay cannot lie on the machine's root; what labs inside write is in memory."""
    directory, home = served
    artifacts.binaries(print)
    images.prepare(print, [image_recipe.pause()])
    same = [f"{k}={v}" for k, v in os.environ.items() if k.startswith(("ANTREA_LAB_", "XDG_CACHE"))]
    same += [f"PYTHONPATH={Path(antrea.__path__[0]).parent}"]
    settings = [*same, "ANTREA_LAB_STATE=/run/antrea-lab", f"{DIRECTORY}={directory}"]
    settings += [f"PATH={image_switch.first_in_path()}:{vm.PATH}"]

    status, console = vm.run(stock, ["env", *settings, *PYTEST, *map(str, CELLS)], timeout=2100, netns=home)

    print(console[-12000:])
    if status:
        print(tail(directory / f"logs/{vm_cluster.CONTROLLER}.log"))
    assert status == 0
