"""docs/release.md: a published release is installed from its registry alone, the chart by Helm and the image by the runtime of a Node."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from build_program import load_build_program
from loopback_registry import registry
from published_release import PORT, images, installed

from lab import artifacts

pytestmark = [pytest.mark.wide, pytest.mark.timeout(1800)]

ROOT = Path(__file__).parents[2]


@pytest.fixture
def published(tmp_path: Path) -> tuple[str, Path]:
    """The command that publish prints, and the storage of the registry that then has the release of this tree."""
    sys.path.insert(0, str(ROOT / "build"))
    release, folder = load_build_program("release"), tmp_path / "release"
    folder.mkdir()
    helm = str(artifacts.helm(print))
    release.images(ROOT, folder, ["antrea"], ["amd64"])
    release.chart(ROOT, folder, helm)
    (folder / release.DESCRIPTION).write_text(json.dumps(release.description("0" * 40, folder)))
    (folder / release.SUMS).write_text(release.sums(folder))
    with registry(tmp_path) as host:
        command = [sys.executable, str(ROOT / "build/publish.py"), f"{host}/team", "--plain", "--helm", helm]
        done = subprocess.run(
            [*command, "--release", str(folder)], check=True, stdout=subprocess.PIPE, text=True, timeout=300
        )
    return done.stdout.replace(host, f"localhost:{PORT}"), tmp_path / "storage"


def test_a_published_release_is_installed_from_its_registry(
    published: tuple[str, Path], tmp_path: Path
) -> None:
    told, storage = published
    with installed(told, storage, tmp_path) as lab:
        assert images(lab) == {f"localhost:{PORT}/team/antrea"}
