"""Errors that end antctl with one line on stderr, worded as upstream's."""

from __future__ import annotations

import click

from antrea.apis.shown import shown_lines


class Failure(click.ClickException):
    """Prints `Error: <sentence>` and exits with 1; what the sentence quotes of others moves no terminal."""

    exit_code = 1

    def __init__(self, message: str) -> None:
        super().__init__(shown_lines(message))
