"""Writes docs/generated/wide-report.md from a run of the wide tests: commit, date, command, result of each test."""

from __future__ import annotations

import shlex
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

ROOT = Path(__file__).parents[2]
FILE = ROOT / "docs/generated/wide-report.md"
ORDER = ("failed", "error", "passed", "skipped")
_RESULTS: dict[str, tuple[str, float, str]] = {}
"""Result, seconds and reason by test."""


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Each test has up to three reports: set-up, call, tear-down; the worst of them counts."""
    outcome = "error" if report.failed and report.when != "call" else report.outcome
    before, seconds, why = _RESULTS.get(report.nodeid, ("passed", 0.0, ""))
    worse = ORDER.index(outcome) < ORDER.index(before) or outcome == "skipped"
    _RESULTS[report.nodeid] = (
        outcome if worse else before,
        seconds + report.duration,
        reason(report) if worse else why,
    )


def reason(report: pytest.TestReport) -> str:
    """One line that says why a test did not pass."""
    if isinstance(report.longrepr, tuple):
        return str(report.longrepr[2]).removeprefix("Skipped: ")
    lines = [line for line in report.longreprtext.splitlines() if line.startswith("E ")]
    return lines[0].removeprefix("E ").strip() if lines else ""


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write the page."""
    if _RESULTS:
        FILE.write_text(page(_RESULTS, " ".join(map(shlex.quote, session.config.invocation_params.args))))


def page(results: dict[str, tuple[str, float, str]], arguments: str) -> str:
    """The report as Markdown."""
    counts = {outcome: sum(found[0] == outcome for found in results.values()) for outcome in ORDER}
    lines = [
        "# Report of the wide tests",
        "",
        "Written by `make test-wide`; not edited by hand.",
        "",
        f"- Commit: {_git('rev-parse', 'HEAD')}{' with changes' if _git('status', '--porcelain', '-uno') else ''}",
        f"- Date: {datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        f"- Command: `python -m pytest {arguments}`, Python {sys.version.split()[0]}",
        f"- {', '.join(f'{number} {outcome}' for outcome, number in counts.items() if number)}",
        "",
        "| Test | Result | Seconds | Why |",
        "|---|---|---|---|",
    ]
    for name, (outcome, seconds, why) in sorted(results.items()):
        told = why.replace("|", "\\|")[:200]
        lines.append(f"| {name} | {outcome} | {seconds:.0f} | {told} |")
    return "\n".join(lines) + "\n"


def _git(*words: str) -> str:
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.strip()
