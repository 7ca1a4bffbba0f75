"""Lines of a check: each begins with the cluster's name, and a verdict has a colour on a terminal."""

from __future__ import annotations

from typing import NamedTuple

import click

RULE = "-" * 91


class Report(NamedTuple):
    """Prints to stdout. parity: pkg/antctl/raw/check/logger.go"""

    cluster: str

    def say(self, line: str, colour: str = "") -> None:
        """One line of progress."""
        click.echo(f"[{self.cluster}] {click.style(line, fg=colour) if colour else line}")

    def good(self, line: str) -> None:
        self.say(line, "green")

    def bad(self, line: str) -> None:
        self.say(line, "red")

    def doubtful(self, line: str) -> None:
        self.say(line, "yellow")

    def header(self, line: str) -> None:
        for text in (RULE, line, RULE):
            self.say(text)
