"""A copy of the product with the toy feature plugged in, as a developer would: one folder and one line."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

ROOT = Path(__file__).parents[2]
LIST = "antrea/features/__init__.py"
BEFORE = '    "node_config",\n'


def plug_in(folder: Path) -> dict[str, str]:
    """Makes the copy in `folder`; the environment of programs that are to run it."""
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "antrea", folder / "antrea", ignore=ignored)
    shutil.copytree(ROOT / "tests/toy/antrea", folder / "antrea", dirs_exist_ok=True)
    listed = (folder / LIST).read_text()
    assert listed.count(BEFORE) == 1
    (folder / LIST).write_text(listed.replace(BEFORE, f'{BEFORE}    "beacon",\n'))
    return {**os.environ, "PYTHONPATH": str(folder)}
