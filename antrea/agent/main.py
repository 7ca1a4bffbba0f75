"""Command line of the agent, and what is done before the rest of it is imported."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from antrea.agent.api.certificate import begin
from antrea.errors import AntreaError
from antrea.outside.log import klog
from antrea.outside.pflag import GoCommand, config_option
from antrea.outside.program_import import program_import

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from antrea.outside.tls.server_context import SelfSigning


@click.command(cls=GoCommand, context_settings={"help_option_names": ["-h", "--help"]})
@config_option("/etc/antrea/antrea-agent.conf")
@klog.flags
def main(path: Path, log: klog.Options) -> None:
    """Connect the Pods of this Node."""
    klog.start(log, "antrea-agent")
    try:
        signing = begin()
        _program()(path, signing)
    except AntreaError as error:
        click.echo(f"antrea-agent: {error}", err=True)
        sys.exit(1)


def _program() -> Callable[[Path, SelfSigning], None]:
    """Import the agent, while another process makes the certificate."""
    with program_import():
        from antrea.agent.program import serve  # noqa: PLC0415 (not before the certificate is begun)
    return serve


if __name__ == "__main__":
    main()
