"""A feature that nothing needs is removed by removing its folder and its line: all programs load without it."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from feature_home import HOMES, PRODUCT, dependents, edges, features_in, required

from antrea.features import FEATURES

if TYPE_CHECKING:
    from pathlib import Path

ROOT = PRODUCT.parent
PROGRAM = """
import antrea.features
from antrea.features.framework.plug import module_of
import antrea.agent.assembly, antrea.agent.main, antrea.agent.program
import antrea.controller.main, antrea.controller.apiserver.server
import antrea.antctl.main, antrea.antctl.doctor.command, antrea.antctl.explain.command
import antrea.flow_aggregator.main
import antrea.features.registry.crds, antrea.features.registry.document, antrea.features.registry.webhooks
for name in antrea.features.FEATURES:
    for side in ("agent_part", "controller_part"):
        module_of(name, side)
print(antrea.__path__[0], *antrea.features.FEATURES)
"""


def without(removed: set[str], folder: Path) -> Path:
    """A copy of the product without these features, of links."""
    homes = folder / "antrea/features"
    homes.mkdir(parents=True)
    for path in PRODUCT.iterdir():
        if path.name not in ("features", "__pycache__"):
            (folder / "antrea" / path.name).symlink_to(path)
    for path in HOMES.iterdir():
        if path.name not in {*removed, "__init__.py", "__pycache__"}:
            (homes / path.name).symlink_to(path)
    text = (HOMES / "__init__.py").read_text()
    for name in removed:
        assert text.count(f'    "{name}",\n') == 1
        text = text.replace(f'    "{name}",\n', "")
    (homes / "__init__.py").write_text(text)
    return folder


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(
        [sys.executable, *words], check=False, env=env, cwd=folder, capture_output=True, text=True
    )


OPTIONAL = [name for name in FEATURES if name not in required()]


def test_features_are_optional() -> None:
    assert {"packet_capture", "traceflow", "traffic_control", "node_latency"} <= {*OPTIONAL}


@pytest.mark.parametrize("name", OPTIONAL)
def test_programs_load_without_a_feature_and_those_that_build_on_it(name: str, tmp_path: Path) -> None:
    removed = dependents(name)
    done = run(without(removed, tmp_path), "-P", "-c", PROGRAM)
    assert done.returncode == 0, done.stderr
    place, *left = done.stdout.split()
    assert place == f"{tmp_path}/antrea"
    assert left == [one for one in FEATURES if one not in removed]


def needed(name: str) -> set[str]:
    """A feature with all whose modules it imports, or modules of these, and those that no program can do without."""
    found = {name} | required()
    while more := {other for one, other in edges() if one in found} - found:
        found |= more
    return found


def test_unit_tests_of_a_feature_import_none_that_it_does_without() -> None:
    found = {
        f"{path.relative_to(ROOT)}: {', '.join(sorted(other))}"
        for name in FEATURES
        for path in (ROOT / "tests/unit/features" / name).rglob("*.py")
        if (other := features_in(path) - needed(name))
    }
    assert found == set(), "move these to the folder of the feature that needs the other"


@pytest.mark.wide
@pytest.mark.parametrize("name", OPTIONAL)
def test_unit_tests_of_the_other_features_pass_without_a_feature(name: str, tmp_path: Path) -> None:
    removed = dependents(name)
    folder = without(removed, tmp_path)
    for path in ("tests", "build", "docs", "pyproject.toml"):
        (folder / path).symlink_to(ROOT / path)
    kept = [one for one in FEATURES if one not in removed and (ROOT / "tests/unit/features" / one).is_dir()]
    done = run(folder, "-m", "pytest", "-q", *(f"tests/unit/features/{one}" for one in kept))
    assert done.returncode == 0, done.stdout[-5000:]
