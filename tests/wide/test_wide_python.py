"""The tiers that need nothing but Python, on that of Debian 13, which our image has, in a root of that Debian."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parents[2] / "build/debian_root.py"
TOOLS = (
    "lab",
    "engine",
    "flow_aggregator/test_flow_dashboards.py",
    "flow_aggregator/test_flow_store.py",
    "controller/test_controller_toy_feature.py",
)
"""Of the process tier, what also runs git, pip, registries or a source tree of its own, which that root has not."""


@pytest.mark.wide
@pytest.mark.skipif(os.geteuid() != 0, reason="a root directory of Debian needs root")
@pytest.mark.parametrize("tier", ["unit", "process"])
def test_a_tier_passes_on_the_python_of_debian_13(tier: str) -> None:
    left_out = [f"--ignore=tests/process/{name}" for name in TOOLS]
    words = [sys.executable, str(PROGRAM), f"tests/{tier}", "-m", "not wide", *left_out]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    print(done.stdout[-6000:], done.stderr[-2000:])
    assert done.returncode == 0
    assert " passed" in done.stdout
