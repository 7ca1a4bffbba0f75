"""Lines of a check: each begins with the cluster's name, and a verdict has a colour on a terminal."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, ClassVar, NamedTuple, TypeVar

import click

from antrea.antctl.failure import Failure
from antrea.apis.shown import shown_lines

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

T = TypeVar("T")
RULE = "-" * 91


class Report(NamedTuple):
    """Prints to stdout. parity: pkg/antctl/raw/check/logger.go"""

    cluster: str

    def print_line(self, line: str, colour: str = "") -> None:
        """One line of progress."""
        shown = shown_lines(line)
        click.echo(f"[{shown_lines(self.cluster)}] {click.style(shown, fg=colour) if colour else shown}")

    def good(self, line: str) -> None:
        self.print_line(line, "green")

    def bad(self, line: str) -> None:
        self.print_line(line, "red")

    def doubtful(self, line: str) -> None:
        self.print_line(line, "yellow")

    def header(self, line: str) -> None:
        for text in (RULE, line, RULE):
            self.print_line(text)


class Choice(NamedTuple):
    """Names of tests to run: those that match `run`, except those that match `skip`."""

    run: re.Pattern[str] | None = None
    skip: re.Pattern[str] | None = None

    @classmethod
    def of(cls, run: str, skip: str) -> Choice:
        """Compile two regular expressions; an empty one stands for no restriction. Raises Failure."""
        return cls(_pattern("run", run), _pattern("skip", skip))

    def of_tests(self, tests: Mapping[str, T]) -> dict[str, T]:
        """Return the chosen tests. Raises Failure if there are none: a check without a test would pass."""
        chosen = {
            name: test
            for name, test in tests.items()
            if (not self.run or self.run.search(name)) and not (self.skip and self.skip.search(name))
        }
        if not chosen:
            raise Failure(f"no test is left by --run and --skip; the tests are {', '.join(tests)}")
        return chosen


def _pattern(option: str, text: str) -> re.Pattern[str] | None:
    try:
        return re.compile(text) if text else None
    except re.error as error:
        raise Failure(f"invalid regex for {option} filter: {error}") from error


class Undecided(Exception):
    """A test that neither passed nor failed, with the reason."""

    verdict: ClassVar[str]
    """Name of this result in the summary."""
    because: ClassVar[str] = ""
    """Words before the reason."""


def run_tests(
    report: Report, tests: Mapping[str, Callable[[T], None]], subject: T, undecided: type[Undecided]
) -> None:
    """Each test on `subject`, with its verdict and a summary. Raises Failure if one failed."""
    passed = failed = others = 0
    for name, test in tests.items():
        report.header(f"Running test: {name}")
        try:
            test(subject)
        except undecided as error:
            report.doubtful(f"Test {name} was {undecided.verdict}: {undecided.because}{error}")
            others += 1
        except Failure as error:
            report.bad(f"Test {name} failed: {error.format_message()}")
            failed += 1
        else:
            report.good(f"Test {name} passed")
            passed += 1
    report.print_line(
        f"Test finished: {passed} tests succeeded, {failed} tests failed, {others} tests were {undecided.verdict}"
    )
    if failed:
        raise Failure(f"{failed}/{passed + failed + others} tests failed")
