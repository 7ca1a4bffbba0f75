"""Errors that end antctl with one line on stderr, worded as upstream's."""

from __future__ import annotations

import click


class Failure(click.ClickException):
    """Prints `Error: <sentence>` and exits with 1."""

    exit_code = 1
