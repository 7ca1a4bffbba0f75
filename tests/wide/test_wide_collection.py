"""Each process that collects a tier finds the same tests in the same order, as pytest-xdist needs them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TIERS = ("unit", "process", "ovs", "host", "lab", "vm", "parity", "wide")


def collected(tier: str, seed: str) -> list[str]:
    """The names of a tier's tests, in the order of a process whose hashes of text begin with `seed`."""
    words = [sys.executable, "-m", "pytest", "--collect-only", "-q", f"tests/{tier}"]
    environ = {**os.environ, "PYTHONHASHSEED": seed}
    done = subprocess.run(words, cwd=ROOT, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:]
    return [line for line in done.stdout.splitlines() if "::" in line]


@pytest.mark.wide
@pytest.mark.timeout(900)
@pytest.mark.parametrize("tier", TIERS)
def test_two_processes_collect_the_same_tests_in_the_same_order(tier: str) -> None:
    first, second = collected(tier, "1"), collected(tier, "2")
    assert first
    assert first == second
