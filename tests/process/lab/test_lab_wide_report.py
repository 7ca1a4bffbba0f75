"""`make test-wide` goes on where it stopped, and its page has the results of all its parts."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PLUGIN = f"""
import sys
from pathlib import Path
sys.path.insert(0, {str(ROOT)!r})
from tests.wide.report import WideReport

def pytest_configure(config):
    since = frozenset(Path("since").read_text().split())
    config.pluginmanager.register(WideReport(Path("journal"), Path("page.md"), Path("commit").read_text(), since))
"""
TESTS = """
import os, time
from pathlib import Path

def test_first():
    Path("runs").open("a").write("first ")

def test_hangs():
    Path("runs").open("a").write("hangs ")
    while Path("hang").exists():
        time.sleep(0.01)

def test_wrong():
    Path("runs").open("a").write("wrong ")
    assert not Path("fail").exists()
"""


class Checkout:
    """Three wide tests, of which one may hang and one may fail."""

    def __init__(self, place: Path) -> None:
        self.place = place
        (place / "plugin.py").write_text(PLUGIN)
        (place / "test_three.py").write_text(TESTS)
        (place / "pytest.ini").write_text("[pytest]\n")
        self.at("c0ffee")

    def at(self, commit: str, since: str = "") -> None:
        """`since`: commits whose results are kept."""
        (self.place / "commit").write_text(commit)
        (self.place / "since").write_text(since)

    def start(self, file: str = "test_three.py") -> subprocess.Popen[bytes]:
        (self.place / "runs").write_text("")
        words = (
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "plugin",
            "-p",
            "no:cacheprovider",
            file,
        )
        environment = os.environ | {"PYTHONPATH": str(self.place), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
        return subprocess.Popen(words, cwd=self.place, env=environment, stdout=subprocess.DEVNULL)

    def run(self, file: str = "test_three.py") -> tuple[int, str]:
        """Its exit status, and the tests that ran."""
        with self.start(file) as process:
            status = process.wait(60)
        return status, self.ran()

    def ran(self) -> str:
        return (self.place / "runs").read_text().strip()

    def results(self) -> list[tuple[str, str]]:
        rows = re.findall(
            r"^\| test_three.py::test_(\w+) \| (\w+) ", (self.place / "page.md").read_text(), re.MULTILINE
        )
        return [(test, outcome) for test, outcome in rows]


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path)


@pytest.mark.parametrize("by", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_run_goes_on_after_the_last_test_that_ended(checkout: Checkout, by: int) -> None:
    (checkout.place / "hang").touch()
    deadline = time.monotonic() + 60
    with checkout.start() as process:
        while checkout.ran() != "first hangs":
            assert time.monotonic() < deadline
            time.sleep(0.01)
        process.send_signal(by)
        process.wait(60)
    (checkout.place / "hang").unlink()
    assert checkout.run() == (0, "hangs wrong")
    assert checkout.results() == [("first", "passed"), ("hangs", "passed"), ("wrong", "passed")]
    assert checkout.run() == (0, "first hangs wrong")


def test_what_failed_runs_again_until_it_passes_and_another_commit_begins_anew(checkout: Checkout) -> None:
    (checkout.place / "fail").touch()
    assert checkout.run() == (1, "first hangs wrong")
    assert checkout.run() == (1, "wrong")
    assert checkout.results() == [("first", "passed"), ("hangs", "passed"), ("wrong", "failed")]
    checkout.at("decaf")
    assert checkout.run() == (1, "first hangs wrong")
    (checkout.place / "fail").unlink()
    assert checkout.run() == (0, "wrong")
    assert checkout.results() == [("first", "passed"), ("hangs", "passed"), ("wrong", "passed")]


def test_results_of_earlier_commits_are_kept_if_asked_for_and_shown_with_their_commit(
    checkout: Checkout,
) -> None:
    (checkout.place / "fail").touch()
    assert checkout.run() == (1, "first hangs wrong")
    (checkout.place / "fail").unlink()
    checkout.at("decaf", since="c0ffee")
    assert checkout.run() == (0, "wrong")
    shown = (checkout.place / "page.md").read_text()
    assert "- Commit: decaf\n" in shown
    rows = re.findall(r"test_(\w+) \| passed \| 0 \| (.*) \|", shown)
    assert rows == [("first", "at c0ffee"), ("hangs", "at c0ffee"), ("wrong", "")]


def test_a_run_of_one_file_keeps_the_rows_of_others_with_their_commit_until_they_are_gone(
    checkout: Checkout,
) -> None:
    place = checkout.place
    (place / "test_other.py").write_text("def test_same(): pass\ndef test_old(): pass\n")
    assert checkout.run("test_other.py")[0] == 0
    checkout.at("decaf")
    assert checkout.run() == (0, "first hangs wrong")
    rows = re.findall(r"^\| (\S+) \| passed \| 0 \| (.*) \|$", (place / "page.md").read_text(), re.MULTILINE)
    of_three = [(f"test_three.py::test_{name}", "") for name in ("first", "hangs", "wrong")]
    assert rows == [
        ("test_other.py::test_old", "at c0ffee"),
        ("test_other.py::test_same", "at c0ffee"),
        *of_three,
    ]

    (place / "test_other.py").write_text("def test_same(): pass\n")
    checkout.at("beef")
    assert checkout.run("test_other.py")[0] == 0
    (place / "test_three.py").unlink()
    assert checkout.run("test_other.py")[0] == 0
    rows = re.findall(r"^\| (\S+) \| passed \| 0 \| (.*) \|$", (place / "page.md").read_text(), re.MULTILINE)
    assert rows == [("test_other.py::test_same", "")]
