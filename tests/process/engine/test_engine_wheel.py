"""The wheel of the product in a virtual environment: its engine runs compiled, and as it is where that is asked for."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
ASKS = "from antrea.engine.core import HERE, IMPLEMENTATION, place; print(HERE.parents[2], IMPLEMENTATION)"

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with the wheel; its dependencies are those of the one that runs this test."""
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, str(ROOT / "build/wheel.py"), "--out", str(folder)]
    wheel = subprocess.run(build, check=True, capture_output=True, text=True).stdout.strip()
    home = folder / "venv"
    venv.create(home)
    pip = [sys.executable, "-m", "pip", "--python", str(home), "install", "-q", "--disable-pip-version-check"]
    # what the tests import is compiled then: compiling a thousand modules takes longer than all else
    subprocess.run([*pip, "--no-index", "--no-deps", "--no-compile", wheel], check=True)
    site = next(home.glob("lib/python3*/site-packages"))
    (site / "dependencies.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    return home


def implementation(home: Path, engine: str | None) -> list[str]:
    """Where the package lies and what runs, as a program finds it that starts in another folder."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    environment.pop("ANTREA_ENGINE", None)
    environment |= {} if engine is None else {"ANTREA_ENGINE": engine}
    command = [str(home / "bin/python"), "-c", ASKS]
    done = subprocess.run(command, cwd=home, env=environment, check=True, capture_output=True, text=True)
    return done.stdout.strip().split(" ", 1)


def test_the_wheel_runs_compiled_and_as_it_is_where_that_is_forced(installed: Path) -> None:
    site = str(next(installed.glob("lib/python3*/site-packages")))
    assert implementation(installed, None) == [site, "compiled"]
    assert implementation(installed, "python") == [site, "python (ANTREA_ENGINE)"]
    version = subprocess.run(
        [installed / "bin/antctl", "version", "--help"], capture_output=True, check=False
    )
    assert version.returncode == 0, version.stderr


def test_the_wheel_has_the_product_without_the_lab(installed: Path) -> None:
    site = next(installed.glob("lib/python3*/site-packages"))
    assert not {"lab", "image_build"} & {path.name for path in site.iterdir()}
    assert not (site / "antrea/lab").exists()
    programs = {path.name for path in (installed / "bin").iterdir()}
    assert {name for name in programs if name.startswith("ant")} == {
        "antctl",
        "antrea-agent",
        "antrea-controller",
        "antrea-flow-aggregator",
    }
