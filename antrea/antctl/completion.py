"""`antctl completion SHELL`: the script that makes a shell complete antctl's commands and options."""

from __future__ import annotations

import click

from antrea.antctl.failure import Failure

SHELLS = {
    "bash": "source <(antctl completion bash)",
    "zsh": "source <(antctl completion zsh)",
    "fish": "antctl completion fish | source",
}


def command(root: click.Command) -> click.Command:
    """The command for the command line `root`."""

    def callback(shell: str) -> None:
        from click.shell_completion import get_completion_class  # noqa: PLC0415 (start-up time)

        kind = get_completion_class(shell) if shell in SHELLS else None
        if kind is None:
            raise Failure(f"{shell!r} is none of the shells {', '.join(SHELLS)}")
        click.echo(kind(root, {}, "antctl", "_ANTCTL_COMPLETE").source())

    examples = "\n".join(f"  {line}" for line in SHELLS.values())
    return click.Command(
        "completion",
        params=[click.Argument(["shell"], metavar="|".join(SHELLS))],
        callback=callback,
        short_help="Generate the autocompletion script for the specified shell",
        help=f"Generate the autocompletion script of antctl for a shell.\n\n\b\nExamples:\n{examples}",
    )
