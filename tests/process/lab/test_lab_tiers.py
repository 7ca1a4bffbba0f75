"""scripts/test --since: the tiers that a change can touch."""

from __future__ import annotations

import functools
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
ALL = "check unit process-and-ovs host lab-test vm"
KNOWN = ("antrea/agent/main.py", "antrea/antctl/main.py", "docs/lab.md", "tests/host/test_host_bfd.py")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A checkout with one commit."""
    for name in (*KNOWN, "scripts/test"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("before\n")
    shutil.copy(ROOT / "scripts/test", tmp_path / "scripts/test")
    git(tmp_path, "init", "-q")
    commit(tmp_path)
    return tmp_path


def git(tree: Path, *words: str) -> None:
    subprocess.run(["git", *words], cwd=tree, check=True)


def commit(tree: Path) -> None:
    git(tree, "add", "-A")
    git(tree, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "-m", "c")


def since(tree: Path, revision: str) -> tuple[int, str]:
    words: list[Path | str] = [tree / "scripts/test", "--since", revision, "--list"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    return done.returncode, (done.stdout or done.stderr).strip().removeprefix("scripts/test: ")


@pytest.mark.parametrize(
    ("path", "tiers"),
    [
        ("docs/lab.md", "check unit"),
        ("antrea/agent/main.py", ALL),
        ("antrea/antctl/main.py", "check unit process-and-ovs host lab-test"),
        ("tests/host/test_host_bfd.py", "check unit host"),
        ("build/new file", ALL),
        ("tests/lab/new.py", "check unit lab-test"),
    ],
)
def test_a_change_is_tested_by_the_tiers_that_it_can_touch(tree: Path, path: str, tiers: str) -> None:
    (tree / path).parent.mkdir(parents=True, exist_ok=True)
    (tree / path).write_text("after\n")
    assert since(tree, "HEAD") == (0, tiers)
    commit(tree)
    assert since(tree, "HEAD~1") == (0, tiers)
    assert since(tree, "HEAD") == (0, "check unit")


def test_a_file_that_is_gone_or_moved_is_a_change_of_both_places(tree: Path) -> None:
    git(tree, "mv", "tests/host/test_host_bfd.py", "docs/bfd.md")
    assert since(tree, "HEAD") == (0, "check unit host")


def test_what_is_no_commit_is_refused(tree: Path) -> None:
    assert since(tree, "nonesuch") == (2, "--since wants a commit, and 'nonesuch' is none")


PARTS = (
    "lab-prepared", "static", "unit-first", "unit-second", "process-first", "process-second", "ovs-first", "ovs-second", "host", "lab-test",
    "vm", "covered",
)  # fmt: skip


def run_all(tree: Path, *failing: str) -> tuple[int, list[str], list[str]]:
    """Exit status of scripts/test where these parts fail, the parts that ran, and what it names at the end."""
    recipes = [
        f"{part}:\n\t@echo ran {part}" + (f"; echo 'FAILED tests/{part}.py::test_one - E'; exit 1" if part in failing else "")
        for part in PARTS
    ]  # fmt: skip
    (tree / "Makefile").write_text("\n".join([*recipes, f".PHONY: {' '.join(PARTS)}", ""]))
    done = run_stubs(tree)
    ran = [line.removeprefix("ran ") for line in done.stdout.splitlines() if line.startswith("ran ")]
    return done.returncode, sorted(ran), done.stderr.splitlines()


def run_stubs(tree: Path) -> subprocess.CompletedProcess[str]:
    """Run scripts/test with the Makefile of this tree, with nothing to install."""
    (tree / "scripts/bootstrap").write_text("#!/bin/sh\n")
    (tree / "scripts/bootstrap").chmod(0o755)
    return subprocess.run([tree / "scripts/test"], capture_output=True, text=True, check=False, timeout=60)


def test_all_parts_run_and_pass(tree: Path) -> None:
    assert run_all(tree) == (0, sorted(PARTS), [])


def test_a_part_that_fails_keeps_none_from_running_and_all_that_failed_is_named_at_the_end(
    tree: Path,
) -> None:
    status, ran, said = run_all(tree, "unit-first", "process-second", "lab-test")
    assert status == 1
    assert ran == sorted({*PARTS} - {"covered"}), "the coverage of tests that failed is not looked at"
    assert said[0] == "scripts/test: failed: lab-test process-second unit-first"
    assert sorted(said[1:]) == [
        "  FAILED tests/lab-test.py::test_one - E",
        "  FAILED tests/process-second.py::test_one - E",
        "  FAILED tests/unit-first.py::test_one - E",
    ], "in the order in which they ended"


def test_the_lab_is_prepared_once_and_its_tests_begin_first(tree: Path) -> None:
    recipes = [f"{part}:\n\t@echo ran {part}; sleep 0.2" for part in PARTS if part != "lab-test"]
    recipes.append("lab-test: | lab-prepared\n\t@echo ran lab-test")
    (tree / "Makefile").write_text("\n".join([*recipes, f".PHONY: {' '.join(PARTS)}", ""]))
    ran = [line for line in run_stubs(tree).stdout.splitlines() if line.startswith("ran ")]
    assert ran[:2] == ["ran lab-prepared", "ran lab-test"]
    assert ran.count("ran lab-prepared") == 1


def test_the_slowest_tests_of_all_parts_are_named_at_the_end(tree: Path) -> None:
    durations = {
        part: f"{number}.50s call     tests/{part}.py::test_one" for number, part in enumerate(PARTS)
    }
    (tree / "Makefile").write_text(
        "".join(f"{part}:\n\t@echo '{line}'; echo '1.00s call'\n" for part, line in durations.items())
    )
    slowest = run_stubs(tree).stdout.rpartition("== the 20 slowest tests, their fixtures apart\n")[2]
    assert slowest.splitlines() == [durations[part] for part in reversed(PARTS)]


def test_a_part_that_fails_without_a_test_is_named(tree: Path) -> None:
    status, _, said = run_all(tree, "covered")
    assert status == 1
    assert said[0] == "scripts/test: failed: covered"


IMPORT = re.compile(
    r"^[ ]*(?:from (?P<module>[\w.]+) import (?:\((?P<many>[^)]*)\)|(?P<few>.*))|import (?P<modules>.*))",
    re.MULTILINE,
)
"""A statement that imports; parsing all files takes ten times as long."""


@functools.cache
def imported(file: Path) -> frozenset[Path]:
    """Our modules that this file names in an import, wherever it stands, also in a program that it has as a string."""
    found = set[str]()
    for statement in IMPORT.finditer(file.read_text()):
        module, names = statement["module"], statement["many"] or statement["few"] or statement["modules"]
        words = {*re.findall(r"[\w.]+", names.partition("#")[0] if not statement["many"] else names)}
        found |= {module, *(f"{module}.{word}" for word in words)} if module else words
    tops = {"antrea": ROOT, "lab": ROOT, "image_build": ROOT / "build"}
    places = [
        tops[name.partition(".")[0]].joinpath(*name.split("."))
        for name in found
        if name.partition(".")[0] in tops
    ]
    files = [file for place in places for file in (place.with_suffix(".py"), place / "__init__.py")]
    return frozenset(file for file in files if file.exists())


def reached(*folders: str) -> frozenset[Path]:
    """Where the modules are that tests of these folders import, and those that these import."""
    todo = [file for folder in folders for file in (ROOT / "tests" / folder).rglob("*.py")]
    found = set[Path]()
    while todo:
        if (file := todo.pop()) not in found:
            found.add(file)
            todo += imported(file)
    return frozenset(Path(*file.relative_to(ROOT).parts[:2]) for file in found)


@pytest.mark.untraced
def test_a_tier_runs_when_a_module_changes_that_its_tests_import(tree: Path) -> None:
    tiers = {"process-and-ovs": ("process", "ovs"), "host": ("host",), "lab-test": ("lab",), "vm": ("vm",)}
    areas = {tier: reached(*folders) for tier, folders in tiers.items()}
    assert all(Path("antrea/engine") in found for found in areas.values())
    assert {Path("lab/cluster.py"), Path("build/image_build")} <= areas["lab-test"]
    every = sorted(frozenset().union(*areas.values()))
    # a folder by a module in it
    changed = {str(area if area.suffix == ".py" else area / "changed.py"): area for area in every}
    words: list[Path | str] = [tree / "scripts/test", "--tiers-of", *changed]
    lines = subprocess.run(words, capture_output=True, text=True, check=True).stdout.splitlines()
    listed = dict(line.split(": ") for line in lines)
    for path, area in changed.items():
        assert {tier for tier in tiers if area in areas[tier]} <= {*listed[path].split()}, area
