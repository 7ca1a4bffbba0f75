"""The file of `make antctl` with each Python of this machine, and with that of Debian 13, which has none of our packages."""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from build import debian_root
from build.antctl_file import PLATFORMS, VERSIONS, antctl_file
from build.antctl_start import parts

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.wide

CONFIG = """
clusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}]
contexts: [{name: c, context: {cluster: c}}]
current-context: c
"""
COMMANDS = ("version", "doctor", "status", "check cluster", "get featuregates", "traceflow -S a -D b")
HELP = ("proxy", "explain", "policy", "supportbundle", "packetcapture", "upgrade", "kube-proxy")
SCRIPT = """
cd "$1"; export XDG_CACHE_HOME=$1/cache
for command in COMMANDS; do "$2" antctl $command -k config 2>&1 | grep -q "Connection refused" && echo refused; done
for command in HELP; do "$2" antctl $command --help | head -1; done
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("antctl")
    antctl_file(folder)
    (folder / "config").write_text(CONFIG)
    quoted = [" ".join(f"'{command}'" for command in commands) for commands in (COMMANDS, HELP)]
    (folder / "run").write_text(SCRIPT.replace("COMMANDS", quoted[0]).replace("HELP", quoted[1]))
    return folder


@pytest.mark.parametrize("version", [*VERSIONS, "debian"])
def test_wide_the_file_runs_every_command(folder: Path, version: str) -> None:
    python = debian_root.PYTHON if version == "debian" else f"python{version}"
    words = ("sh", str(folder / "run"), str(folder), python)
    if version == "debian":
        with debian_root.inside(words, at=folder, shown=(folder,)) as inside:
            done = subprocess.run(
                inside, capture_output=True, text=True, check=False, env=debian_root.ENVIRONMENT
            )
    elif shutil.which(python, path=os.defpath):
        done = subprocess.run(
            words, capture_output=True, text=True, check=False, env={"PATH": os.defpath, "HOME": str(folder)}
        )
    else:
        pytest.skip(f"{python} is not on this machine")
    usages = [f"Usage: antctl {command} [OPTIONS]" for command in HELP]
    lines = done.stdout.splitlines()
    assert lines[: len(COMMANDS)] == ["refused"] * len(COMMANDS), done
    assert [line.partition("]")[0] + "]" for line in lines[len(COMMANDS) :]] == usages


def test_wide_the_platforms_have_the_names_of_the_start(folder: Path) -> None:
    assert parts()[1] in PLATFORMS
