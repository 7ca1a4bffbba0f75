"""scripts/bootstrap: what an earlier one left when it was killed goes, and what is others' stays."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
OURS = "#!/bin/sh\n# scripts/bootstrap of antrea, process {}\nexit 101\n"
LOCKED = ("requirements/dev.txt", "pyproject.toml", "lab/pyproject.toml")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A checkout whose virtual environment is as its lock file says."""
    for name in ("scripts/bootstrap", *LOCKED):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    wanted = hashlib.sha256(b"".join((tmp_path / name).read_bytes() for name in LOCKED)).hexdigest()
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv/antrea-lock").write_text(f"{wanted}  -\n")
    return tmp_path


def bootstrap(tree: Path, policy: str) -> tuple[str, bool]:
    """What it says with this policy-rc.d in place, and whether that is there afterwards."""
    file = tree / "policy-rc.d"
    file.write_text(policy)
    environ = {**os.environ, "ANTREA_POLICY_RC_D": str(file)}
    done = subprocess.run(
        [tree / "scripts/bootstrap"], env=environ, capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout == ""
    return re.sub(r"^\[ *\d+s\] ", "", done.stderr), file.exists()


def test_bootstrap_removes_the_policy_of_one_that_was_killed(tree: Path) -> None:
    with subprocess.Popen(["sleep", "0"]) as ended:
        ended.wait()
    said, there = bootstrap(tree, OURS.format(ended.pid))
    assert (said, there) == (f"remove {tree}/policy-rc.d: its bootstrap was killed\n", False)


def test_bootstrap_leaves_the_policy_of_one_that_runs(tree: Path) -> None:
    with subprocess.Popen(["sh", "-c", "read line", "bootstrap"], stdin=subprocess.PIPE) as other:
        assert bootstrap(tree, OURS.format(other.pid)) == ("", True)
        other.communicate()


def test_bootstrap_leaves_a_policy_of_somebody_else(tree: Path) -> None:
    assert bootstrap(tree, "#!/bin/sh\nexit 101\n") == ("", True)


def foreign(tree: Path, version: str) -> subprocess.CompletedProcess[str]:
    """Where Debian's package containerd is missing, and a program of that name is there; apt-get would be heard."""
    programs = {
        "dpkg-query": 'case "$*" in *" containerd") exit 1;; esac; echo installed',
        "containerd": f"echo containerd containerd.io {version} 1234.5",
        "apt-get": 'echo "apt-get $*" >&2; exit 1',
    }
    for name, script in programs.items():
        (tree / "bin").mkdir(exist_ok=True)
        (tree / "bin" / name).write_text(f"#!/bin/sh\n{script}\n")
        (tree / "bin" / name).chmod(0o755)
    environ = {**os.environ, "PATH": f"{tree}/bin:{os.environ['PATH']}", "ANTREA_POLICY_RC_D": f"{tree}/none"}
    return subprocess.run(
        [tree / "scripts/bootstrap"], env=environ, capture_output=True, text=True, check=False, timeout=60
    )


def test_bootstrap_uses_a_recent_containerd_of_another_package(tree: Path) -> None:
    done = foreign(tree, "1.7.27")
    assert (done.returncode, done.stderr) == (0, "")


def test_bootstrap_does_not_replace_a_containerd_that_is_too_old(tree: Path) -> None:
    done = foreign(tree, "1.5.9")
    told = f"{tree}/bin/containerd is of version 1.5, and 1.6 is needed: update or remove it"
    assert (done.returncode, done.stderr) == (1, f"scripts/bootstrap: {told}\n")
