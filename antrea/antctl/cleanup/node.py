"""The program of the Pods of `antctl cleanup`: removes what Antrea left on its Node, and prints a line of JSON for each thing."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import click

from antrea.antctl.cleanup.node_cleanup import Folders, steps
from antrea.antctl.failure import Failure
from antrea.errors import Invalid, Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable


@click.command()
@click.option("--dry-run", is_flag=True, help="name what is left, and remove nothing")
@click.option("--logs", is_flag=True, help="remove log files as well")
def main(*, dry_run: bool, logs: bool) -> None:
    """Remove what Antrea left on this Node, whose folders are mounted below /host; exit with 1 if something failed."""
    sys.exit(clean(Folders(), dry_run=dry_run, logs=logs, tell=lambda line: print(line, flush=True)))


def clean(folders: Folders, *, dry_run: bool, logs: bool, tell: Callable[[str], None]) -> int:
    """Remove all steps in their order, and end at the first that fails; the exit code."""
    subject = ""
    try:
        for step in steps(folders, logs=logs):
            subject = step.subject
            if step.remove is None:
                tell(json.dumps({"kept": subject, "why": step.why}))
                continue
            if not dry_run:
                step.remove()
            tell(json.dumps({"removed": subject}))
            subject = ""
    except (Failure, Invalid, Unavailable, OSError, ValueError, subprocess.SubprocessError) as error:
        tell(json.dumps({"failed": subject, "why": reason_of(error)}))
        return 1
    tell(json.dumps({"done": True}))
    return 0


def reason_of(error: Exception) -> str:
    """Return an error as one sentence, with the words of a program that failed."""
    if isinstance(error, Failure):
        return error.format_message()
    said = error.stderr.strip() if isinstance(error, subprocess.CalledProcessError) and error.stderr else ""
    return said or f"{type(error).__name__}: {error}"


if __name__ == "__main__":
    main()
