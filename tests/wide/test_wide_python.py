"""The unit tier on the Python of Debian 13, in a root of that Debian, as it runs everywhere on Python 3.11."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parents[2] / "build/debian_root.py"


@pytest.mark.wide
@pytest.mark.skipif(os.geteuid() != 0, reason="a root directory of Debian needs root")
def test_the_unit_tier_passes_on_the_python_of_debian_13() -> None:
    words = [sys.executable, str(PROGRAM), "tests/unit"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    print(done.stdout[-6000:], done.stderr[-2000:])
    assert done.returncode == 0
    assert " passed" in done.stdout
