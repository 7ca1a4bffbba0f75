"""A lab's node on cgroup version 2, which the stock kernel has and this machine may not."""

from __future__ import annotations

import os

from antrea.lab import artifacts, image_recipe, images, vm

INSIDE = "tests/vm/lab_node.py"


def test_a_lab_node_runs_a_pod_on_cgroup_version_2(stock: vm.Kernel) -> None:
    """The images are unpacked here, since an overlay cannot lie on the virtual machine's root; its state is in memory."""
    artifacts.binaries(print)
    images.prepare(print, [image_recipe.pause()])
    same = [f"{k}={v}" for k, v in os.environ.items() if k.startswith(("ANTREA_LAB_", "XDG_CACHE"))]
    environment = [*same, "ANTREA_LAB_STATE=/run/antrea-lab"]
    pytest = [".venv/bin/python", "-m", "pytest", "-q", "--color=no", "--timeout=400", INSIDE]

    status, console = vm.run(stock, ["env", *environment, *pytest], timeout=450)

    assert status == 0, console[-6000:]
