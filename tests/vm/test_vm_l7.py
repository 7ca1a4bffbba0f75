"""Requests are judged by the real engine on the kernel datapath as in user space: tests of the host tier, on the stock kernel."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import image_switch
import pytest

import antrea
from build import debian_root
from lab import vm

if TYPE_CHECKING:
    from lab.vm import Kernel

pytestmark = pytest.mark.wide
MODULES = ("openvswitch", "veth", "nf_conntrack")
FILE = "tests/host/test_host_l7_policy.py"
TEST = "test_requests_are_judged_and_nothing_passes_without_an_engine[In]"
"""In both families."""
PYTEST = (
    *("PYTEST_DISABLE_PLUGIN_AUTOLOAD=1", ".venv/bin/python", "-m", "pytest"),
    *("-p", "pytest_timeout", "-p", "pytest_asyncio.plugin", "-p", "no:cacheprovider"),
    *("-x", "-q", "--color=no", "--durations=5", "--timeout=700", "-m", "wide or not wide"),
)


def test_requests_are_judged_on_the_kernel_datapath(stock: Kernel) -> None:
    """Allowed and rejected, the second of a connection too, by a changed rule and by an engine that has crashed; none without one."""
    debian_root.root(print, "suricata")
    same = [f"{k}={v}" for k, v in os.environ.items() if k.startswith(("ANTREA_LAB_", "XDG_CACHE"))]
    same += [
        f"PYTHONPATH={Path(antrea.__path__[0]).parent}",
        f"PATH={image_switch.first_in_path()}:{vm.PATH}",
    ]
    settings = [*same, "ANTREA_TEST_DATAPATH=system", "ANTREA_TEST_PATIENCE=8"]
    command = f'modprobe -a {" ".join(MODULES)} && exec "$@"'
    words = ["env", *settings, "bash", "-c", command, "l7", "env", *PYTEST, f"{FILE}::{TEST}"]
    status, console = vm.run(stock, words, timeout=1200)
    print(console[-12000:])
    assert status == 0
    assert "1 passed" in console
