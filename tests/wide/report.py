"""Writes docs/generated/wide-report.md from a run of the wide tests: commit, date, command, result of each test.

A run that was interrupted, or in which tests failed, is resumed: each result is kept in a journal as soon as a test ends, and the
next run of the same commit leaves out what has passed. The journal goes when nothing is left to repeat. With $WIDE_SINCE, a commit, what
passed at that one or later is left out, too. A run of some files changes their rows only: the page keeps the others, each with
the commit it was written at, until their tests run again or are gone.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

ROOT = Path(__file__).parents[2]
FILE = ROOT / "docs/generated/wide-report.md"
JOURNAL = ROOT / "build/out/wide-results.jsonl"
ORDER = ("failed", "error", "passed", "skipped")
DONE = ("passed", "skipped")
COMMIT = re.compile(r"^- Commit: (\w+(?: with changes)?)$", re.MULTILINE)
ROW = re.compile(
    r"^\| (tests/.+|test_.+) \| (failed|error|passed|skipped) \| (\d+) \| (?:at (\w+(?: with changes)?) ?)?(.*) \|$",
    re.MULTILINE,
)
WHOLE = (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)
"""The second: a run that was killed after its last test left none."""


class Result(msgspec.Struct, frozen=True):
    """Of one test: set-up, call and tear-down together."""

    test: str
    outcome: str
    seconds: float = 0.0
    why: str = ""
    commit: str = ""


class WideReport:
    """Results of this run and of the one it resumes."""

    def __init__(self, journal: Path, page: Path, commit: str, since: frozenset[str] = frozenset()) -> None:
        """`commit`: what is tested; results of others are not resumed, but for those in `since`."""
        self._journal, self._page, self._commit = journal, page, commit
        kept = {one.test: one for one in (shown(page.read_text()) if page.exists() else ())}
        resumed = self._resumed(since | {commit})
        self._done = {
            one.test
            for one in (
                *(one for one in kept.values() if one.commit in set(map(short, since))),
                *resumed.values(),
            )
            if one.outcome in DONE
        }
        self.results = kept | resumed
        self._now: dict[str, Result] = {}

    def _resumed(self, accepted: frozenset[str]) -> dict[str, Result]:
        lines = self._journal.read_bytes().splitlines() if self._journal.exists() else []
        # the last line of a run that was killed may be cut short
        found = [msgspec.json.decode(line, type=Result) for line in lines if line.endswith(b"}")]
        kept = [one for one in found if one.commit in accepted]
        self._journal.parent.mkdir(parents=True, exist_ok=True)
        self._journal.write_bytes(b"".join(msgspec.json.encode(one) + b"\n" for one in kept))
        return {one.test: one for one in kept}

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Leave out what has passed; after the markers have selected. Rows of tests that are gone go with them."""
        if not config.option.keyword and not any("::" in path for path in config.args):
            there, files = {item.nodeid for item in items}, {file_of(item.nodeid) for item in items}
            for test in [
                test for test in self.results if test not in there and is_gone(test, files, config.rootpath)
            ]:
                del self.results[test]
        if dropped := [item for item in items if item.nodeid in self._done]:
            config.hook.pytest_deselected(items=dropped)
            items[:] = [item for item in items if item.nodeid not in self._done]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Each test has up to three reports; the worst of them counts."""
        outcome = "error" if report.failed and report.when != "call" else report.outcome
        before = self._now.get(report.nodeid, Result(report.nodeid, "passed"))
        worse = ORDER.index(outcome) < ORDER.index(before.outcome) or outcome == "skipped"
        result = Result(
            report.nodeid,
            outcome if worse else before.outcome,
            before.seconds + report.duration,
            reason(report) if worse else before.why,
            self._commit,
        )
        self._now[report.nodeid] = result
        if report.when == "teardown":
            self.results[report.nodeid] = result
            with self._journal.open("ab") as journal:
                journal.write(msgspec.json.encode(result) + b"\n")

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Write the page, of what has run so far."""
        if not self.results:
            return
        arguments = " ".join(map(shlex.quote, session.config.invocation_params.args))
        self._page.write_text(page(self.results.values(), self._commit, arguments))
        if exitstatus in WHOLE:
            self._journal.unlink(missing_ok=True)


def pytest_configure(config: pytest.Config) -> None:
    """With -p tests.wide.report."""
    if not config.option.collectonly:
        since = os.environ.get("WIDE_SINCE", "")
        report = WideReport(JOURNAL, FILE, tested(), commits(since) if since else frozenset())
        config.pluginmanager.register(report, "wide-report")


def file_of(test: str) -> str:
    return test.split("::", 1)[0]


def is_gone(test: str, collected: set[str], root: Path) -> bool:
    """True if a test that was not collected is in one of the collected files, or in one that does not exist."""
    return file_of(test) in collected or not (root / file_of(test)).exists()


def shown(text: str) -> Iterator[Result]:
    """Rows of a page, each with its commit as `short` has it."""
    commit = COMMIT.search(text)
    for test, outcome, seconds, at, why in ROW.findall(text):
        yield Result(
            test, outcome, float(seconds), why.replace("\\|", "|"), at or short(commit[1] if commit else "")
        )


def short(commit: str) -> str:
    """A commit as a row shows it: ten digits, and whether there were changes."""
    number, space, changes = commit.partition(" ")
    return f"{number[:10]}{space}{changes}"


def reason(report: pytest.TestReport) -> str:
    """One line that says why a test did not pass."""
    if isinstance(report.longrepr, tuple):
        return str(report.longrepr[2]).removeprefix("Skipped: ")
    lines = [line for line in report.longreprtext.splitlines() if line.startswith("E ")]
    return lines[0].removeprefix("E ").strip() if lines else ""


def tested() -> str:
    """The commit, and whether the tree differs from it in more than this report."""
    changed = _git("status", "--porcelain", "-uno", "--", ".", f":!{FILE.relative_to(ROOT)}")
    return f"{_git('rev-parse', 'HEAD')}{' with changes' if changed else ''}"


def commits(since: str) -> frozenset[str]:
    """From this one to the present one. Raises CalledProcessError: it is none of this branch."""
    first = _git("rev-parse", "--verify", f"{since}^{{commit}}")
    return frozenset([first, *_git("rev-list", f"{first}..HEAD").split()])


def page(results: Iterable[Result], commit: str, arguments: str) -> str:
    """The report as Markdown."""
    found = sorted(results, key=lambda one: one.test)
    counts = {outcome: sum(one.outcome == outcome for one in found) for outcome in ORDER}
    lines = [
        "# Report of the wide tests",
        "",
        "Written by `make test-wide`; not edited by hand.",
        "",
        f"- Commit: {commit}",
        f"- Date: {datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        f"- Command: `python -m pytest {arguments}`, Python {sys.version.split()[0]}",
        f"- {', '.join(f'{number} {outcome}' for outcome, number in counts.items() if number)}",
        "",
        "| Test | Result | Seconds | Why |",
        "|---|---|---|---|",
    ]
    lines += [_row(one, commit) for one in found]
    return "\n".join(lines) + "\n"


def _row(one: Result, commit: str) -> str:
    earlier = f"at {short(one.commit)}" if short(one.commit) != short(commit) else ""
    why = " ".join(filter(None, (earlier, one.why.replace("|", "\\|")[:200])))
    return f"| {one.test} | {one.outcome} | {one.seconds:.0f} | {why} |"


def _git(*words: str) -> str:
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.strip()
