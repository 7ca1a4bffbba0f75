"""What ends antctl with a line on stderr, in the words that people know from upstream."""

from __future__ import annotations

import click


class Failure(click.ClickException):
    """Prints `Error: <sentence>` and exits with 1."""

    exit_code = 1
