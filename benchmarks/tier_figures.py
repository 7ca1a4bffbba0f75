"""Benchmarks whose parts are wide tests: they need namespaces or labs of a test tier, and print figures."""

from __future__ import annotations

import subprocess
import sys


def run(tier: str, name: str) -> int:
    """Status of the run of tests/TIER/test_TIER_NAME_figures.py. Needs root."""
    test = f"tests/{tier}/test_{tier}_{name}_figures.py"
    words = ("-m", "wide", "-q", "-s", "-p", "no:cacheprovider")
    return subprocess.run([sys.executable, "-m", "pytest", test, *words], check=False).returncode
