"""antctl as one file: it unpacks itself once for this Python, and says where it cannot run. The modules are those of this environment."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from importlib import import_module
from pathlib import Path

import msgspec
import pytest

antctl_start, antctl_file = map(import_module, ("build.antctl_start", "build.antctl_file"))
ROOT = Path(__file__).parents[3]


MODULES = {
    "msgspec",
    "cffi",
    "_cffi_backend",
    "yaml",
    "click",
    "cryptography",
    "aiohttp",
    "multidict",
    "yarl",
    "attr",
    "attrs",
}
MODULES |= {"aiosignal", "aiohappyeyeballs", "frozenlist", "idna", "propcache", "typing_extensions"}


@pytest.fixture(scope="module")
def single(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file with the packages that are installed here."""
    folder = tmp_path_factory.mktemp("single")
    pure, system, version = (folder / "parts" / name for name in antctl_start.parts())
    shutil.copytree(ROOT / "antrea", pure / "antrea", ignore=shutil.ignore_patterns("__pycache__", "ui"))
    system.mkdir()
    (system / "empty.py").write_text("")
    version.mkdir()
    for path in Path(msgspec.__file__).parents[1].iterdir():
        if path.name.partition(".")[0] in MODULES:
            shutil.copytree(path, version / path.name) if path.is_dir() else shutil.copy(path, version)
    antctl_file.write(folder / "parts", folder / "antctl", 1)
    return folder / "antctl"


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache that tests share: modules are compiled once in it."""
    return tmp_path_factory.mktemp("cache")


def run(file: Path, *arguments: str, cache: Path) -> subprocess.CompletedProcess[str]:
    """Run it without anything of this environment."""
    environment = {"PATH": os.defpath, "HOME": str(cache), "XDG_CACHE_HOME": str(cache)}
    words = [str(Path(sys.executable).resolve()), "-I", "-S", str(file), *arguments]
    return subprocess.run(words, capture_output=True, text=True, check=False, timeout=100, env=environment)


def test_the_file_unpacks_itself_once_and_runs_every_command(single: Path, cache: Path) -> None:
    first = run(single, "--help", cache=cache)
    assert (first.returncode, first.stdout.splitlines()[0]) == (
        0,
        "Usage: antctl [OPTIONS] COMMAND [ARGS]...",
    ), first
    (folder,) = (cache / "antctl").iterdir()
    before = folder.stat().st_mtime_ns
    config = cache / "config"
    config.write_text(
        "clusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}]\ncontexts: [{name: c, context: {cluster: c}}]\ncurrent-context: c\n"
    )
    for command in (
        ("version",),
        ("doctor",),
        ("status",),
        ("check", "cluster"),
        ("traceflow", "-S", "a", "-D", "b"),
    ):
        done = run(single, *command, "-k", str(config), cache=cache)
        assert (done.returncode, "Connection refused" in done.stderr) == (1, True), done
    for name in ("proxy", "explain", "policy", "supportbundle", "packetcapture", "upgrade"):
        assert run(single, name, "--help", cache=cache).returncode == 0
    assert folder.stat().st_mtime_ns == before


def test_links_with_the_names_of_the_plugin_are_the_plugin(single: Path, cache: Path, tmp_path: Path) -> None:
    for name in antctl_start.KUBECTL:
        (tmp_path / name).symlink_to(single)
    usage = run(tmp_path / "kubectl-antrea", "--help", cache=cache)
    assert usage.stdout.startswith("Usage: kubectl antrea "), usage
    completed = run(tmp_path / "kubectl_complete-antrea", "versio", cache=cache)
    assert completed.stdout == "version\tPrint version information\n:4\n"


def test_a_cache_that_others_can_write_is_not_used(single: Path, tmp_path: Path) -> None:
    run(single, "--help", cache=tmp_path)
    (folder,) = (tmp_path / "antctl").iterdir()
    (folder / "pure/antrea/antctl/main.py").write_text("raise SystemExit('foreign')")
    folder.chmod(0o777)
    assert not antctl_start.is_safe(folder)
    assert run(single, "--help", cache=tmp_path).returncode == 0


def test_a_cache_that_cannot_be_made_is_replaced_by_a_temporary_folder(single: Path, tmp_path: Path) -> None:
    (tmp_path / "antctl").write_text("a file")
    assert run(single, "--help", cache=tmp_path).returncode == 0


def test_a_python_or_a_platform_without_modules_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"{part}/module.py" for part in antctl_start.parts()]
    assert antctl_start.refusal(names) == ""
    assert (
        antctl_start.refusal(names[:2])
        == f"this file has no compiled modules for {antctl_start.parts()[2]}: install antctl with pip instead"
    )
    monkeypatch.setattr(sys, "version_info", (3, 10, 1))
    assert antctl_start.refusal(names).startswith("antctl needs CPython 3.11 to 3.14, and this is CPython ")


def test_equal_sources_make_equal_files(single: Path, tmp_path: Path) -> None:
    antctl_file.write(single.parent / "parts", tmp_path / "antctl", 1)
    assert (tmp_path / "antctl").read_bytes() == single.read_bytes()
    assert zipfile.ZipFile(single).comment.isalnum()


def test_every_package_of_the_file_is_pinned() -> None:
    names = (*antctl_file.PURE, *antctl_file.OF_PLATFORM, *antctl_file.OF_VERSION)
    assert [
        line.partition("==")[0] for line in antctl_file.pinned(names).splitlines() if "==" in line
    ] == list(names)
