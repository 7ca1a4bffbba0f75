"""What needs the stock kernel: one boot, in which files named cell_*.py run, and one of its own for some of them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import image_switch
import pytest
import vm_cluster
from vm_shape import DIRECTORY, INSTRUCTIONS

import antrea
from lab import artifacts, cluster, image_recipe, images, vm
from lab.process import TIME_FACTOR, tail
from lab.record import Record

if TYPE_CHECKING:
    from collections.abc import Iterator

ALONE = "cell_lab_node.py"
"""Starts a node of the lab: before the agents that the others share, which would take it the time."""
OWN_BOOT = {
    "cell_connections.py": 7200,
    "cell_external_ip.py": 2400,
    "cell_kube_proxy.py": 3000,
    "cell_node_policy.py": 1500,
    "cell_sctp_services.py": 2400,
}
"""Seconds of cells that start kube-proxy and agents in ways that others do not expect."""
COUNTED = "cell_connections.py"
"""Asks how many instructions the machine has executed. That they are counted makes it slower."""
MEMORY = "7G"
"""Of the same: two agents and kube-proxy have 10,000 Services, if it is asked for so many."""
FILES = {path for path in Path(__file__).parent.glob("cell_*.py") if path.name not in OWN_BOOT}
CELLS = sorted(FILES, key=lambda path: (path.name != ALONE, path))
WIDE_ALONE = (ALONE, "cell_agent_kill.py", "cell_traffic_control.py")
"""Without a core test: even the import takes long in there."""
MODULES = ("openvswitch", "vport-geneve", "8021q", "dummy", "wireguard", "ip_vs", "sctp")
HANDED_ON = ("ANTREA_LAB_", "ANTREA_TEST_", "XDG_CACHE")
"""Beginnings of environment variables that the machine has, too."""
COMMAND = f'modprobe -a {" ".join(MODULES)}; echo loaded $?; "$@"; echo cells $?; exit 7'
PYTEST = (
    *("env", "PYTEST_DISABLE_PLUGIN_AUTOLOAD=1", ".venv/bin/python", "-m", "pytest"),
    *("-p", "pytest_timeout", "-p", "pytest_asyncio.plugin", "--confcutdir=tests/vm"),
    *("-q", "--color=no", "--durations=12", f"--timeout={900 * TIME_FACTOR:.0f}"),
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
        with vm_cluster.waiting_on(record, home):
            yield record.directory, home
    finally:
        cluster.down(record)


def test_the_core_cells_pass_on_the_stock_kernel(stock: vm.Kernel, served: tuple[Path, Path]) -> None:
    """It loads what the kernel datapath needs, and the status and the text of the command come back."""
    cells = [path for path in CELLS if path.name not in WIDE_ALONE]
    words = ["bash", "-c", COMMAND, "cells", *PYTEST, "-m", "not wide", *map(str, cells)]
    status, console = booted(stock, served, words, timeout=1200)
    assert (status, console.count("loaded 0"), console.count("FATAL")) == (7, 1, 0)
    assert "cells 0" in console


@pytest.mark.wide
def test_all_other_cells_pass_on_the_stock_kernel(stock: vm.Kernel, served: tuple[Path, Path]) -> None:
    """Images are unpacked here, since an overlay cannot lie on the machine's root; what labs inside write is in memory."""
    artifacts.binaries(print)
    images.prepare(print, [image_recipe.pause()])
    status, _ = booted(stock, served, [*PYTEST, "-m", "wide", *map(str, CELLS)], timeout=2100)
    assert status == 0


@pytest.mark.wide
@pytest.mark.parametrize("cell", OWN_BOOT)
def test_the_cell_passes_in_a_boot_of_its_own(stock: vm.Kernel, served: tuple[Path, Path], cell: str) -> None:
    artifacts.binaries(print)
    # the boot is in the time of the first test, and may take ten minutes of it
    words = [
        *PYTEST,
        f"--timeout={OWN_BOOT[cell] * TIME_FACTOR:.0f}",
        "-rP",
        str(Path(__file__).with_name(cell)),
    ]
    more: dict[str, Any] = {"options": counting(served[0]), "memory": MEMORY} if cell == COUNTED else {}
    status, _ = booted(stock, served, words, timeout=OWN_BOOT[cell], **more)
    assert status == 0


def counting(directory: Path) -> tuple[str, str]:
    """Options of QEMU's with which it counts instructions in the file INSTRUCTIONS."""
    plugin, source = directory / "instructions.so", Path(__file__).with_name("instructions.c")
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", plugin, source], check=True)
    return "-plugin", f"{plugin},counts={directory / INSTRUCTIONS}"


def booted(
    stock: vm.Kernel,
    served: tuple[Path, Path],
    words: list[str],
    *,
    timeout: float,
    **more: Any,
) -> tuple[int, str]:
    """Exit status and text of the command, beside the cluster's API server. The rest is for `vm.run`."""
    directory, home = served
    same = [f"{k}={v}" for k, v in os.environ.items() if k.startswith(HANDED_ON)]
    same += [f"PYTHONPATH={Path(antrea.__path__[0]).parent}"]
    settings = [*same, "ANTREA_LAB_STATE=/run/antrea-lab", f"{DIRECTORY}={directory}"]
    settings += [f"PATH={image_switch.first_in_path()}:{vm.PATH}"]
    status, console = vm.run(stock, ["env", *settings, *words], timeout=timeout, netns=home, **more)
    print(console[-12000:])
    if "failed" in console:
        print(tail(directory / f"logs/{vm_cluster.CONTROLLER}.log"))
    return status, console
