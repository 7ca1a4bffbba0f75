"""The engine's core compiled, as in the image, passes the engine's tests, and gives way where it does not fit."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from antrea.engine.core import LIBRARIES, SUFFIX, digest_of

ROOT = Path(__file__).resolve().parents[3]
MUTANTS = "can_fail or would_be_seen"
"""Tests that replace parts of the core, which compiled classes do not allow."""
ASKS = "from antrea.engine.core import IMPLEMENTATION, place; print(IMPLEMENTATION)"

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def compiled() -> Path:
    command = [sys.executable, str(ROOT / "build/engine_core.py")]
    return Path(subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip())


def implementation(engine: Path | str) -> str:
    """What a program finds that starts with this in its environment."""
    environment = os.environ | {"ANTREA_ENGINE": str(engine)}
    done = subprocess.run(
        [sys.executable, "-c", ASKS], env=environment, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


def test_the_engine_passes_its_tests_compiled(compiled: Path) -> None:
    assert implementation(compiled) == "compiled"
    command = [sys.executable, "-m", "pytest", "-q", "-x", "tests/unit/engine", "-k", f"not ({MUTANTS})"]
    environment = os.environ | {"ANTREA_ENGINE": str(compiled)}
    environment.pop("COVERAGE_PROCESS_START", None)
    done = subprocess.run(command, cwd=ROOT, env=environment, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-4000:]
    assert " passed" in done.stdout


def test_python_can_be_forced_and_is_what_runs_where_nothing_compiled_is_there(tmp_path: Path) -> None:
    assert [implementation("python"), implementation(tmp_path)] == ["python (ANTREA_ENGINE)", "python"]


def test_modules_that_were_compiled_from_other_sources_are_not_used(compiled: Path, tmp_path: Path) -> None:
    other = shutil.copytree(compiled, tmp_path / "compiled")
    (other / "sources.sha256").write_text("0" * 64)
    assert implementation(other) == "python (compiled from other sources)"


def test_what_is_no_library_of_this_platform_is_not_used(compiled: Path, tmp_path: Path) -> None:
    other = shutil.copytree(compiled, tmp_path / "compiled")
    library = next(other.glob("antrea_engine_core__mypyc*"))
    library.write_bytes(b"no library")
    (other / LIBRARIES).write_text(digest_of(other, SUFFIX))
    assert implementation(other).startswith("python (")


def test_modules_of_which_one_is_missing_or_damaged_are_not_used(compiled: Path, tmp_path: Path) -> None:
    """Else some would run compiled and others as they are, which do not fit each other."""
    for damage in (Path.unlink, lambda path: path.write_bytes(path.read_bytes()[:-1])):
        other = shutil.copytree(compiled, tmp_path / "compiled", dirs_exist_ok=True)
        damage(next(other.glob("place.*")))
        assert implementation(other) == "python (the compiled modules are incomplete or damaged)"
