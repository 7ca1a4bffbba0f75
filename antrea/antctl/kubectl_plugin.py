"""antctl as a plugin of kubectl: `kubectl antrea`, and the program that kubectl calls to complete its command line.

Source: https://kubernetes.io/docs/tasks/extend-kubectl/kubectl-plugins/, k8s.io/kubectl/pkg/cmd/plugin/plugin_completion.go
"""

from __future__ import annotations

import os
import sys
from typing import Final

import click

from antrea.antctl.main import antctl
from antrea.antctl.mode import mode_of

NAME: Final = "kubectl antrea"
NO_FILES, DEFAULT = 4, 0
"""Directives of cobra in the last line: whether the shell offers names of files."""


def main() -> None:
    """Entry point of kubectl-antrea; exit codes are those of antctl."""
    antctl(mode_of(os.environ))(prog_name=NAME)


def complete() -> None:
    """Entry point of kubectl_complete-antrea: print the completions of the last argument, and a directive."""
    from click.shell_completion import ShellComplete  # noqa: PLC0415 (start-up time)

    *arguments, incomplete = sys.argv[1:] or [""]
    completion = ShellComplete(antctl(mode_of(os.environ)), {}, NAME, "")
    directive = NO_FILES
    for item in completion.get_completions(arguments, incomplete):
        if item.type == "plain":
            click.echo(f"{item.value}\t{item.help}" if item.help else item.value)
        else:
            directive = DEFAULT
    click.echo(f":{directive}")
