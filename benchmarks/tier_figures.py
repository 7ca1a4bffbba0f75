"""Benchmarks whose parts are wide tests of the host tier: they need its network namespaces, and print figures."""

from __future__ import annotations

import subprocess
import sys


def run(name: str) -> int:
    """Status of the run of tests/host/test_host_NAME_figures.py. Needs root."""
    test = (f"tests/host/test_host_{name}_figures.py", "-m", "wide", "-q", "-s", "-p", "no:cacheprovider")
    return subprocess.run([sys.executable, "-m", "pytest", *test], check=False).returncode
