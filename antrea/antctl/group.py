"""Groups of commands of click, with upstream's aliases and words, and commands that are loaded when called."""

from __future__ import annotations

import contextlib
import importlib
from typing import TYPE_CHECKING, Any

import click

from antrea.antctl.failure import Failure
from antrea.outside.pflag import rewritten

if TYPE_CHECKING:
    from collections.abc import Iterator

HELP = {"help_option_names": ["-h", "--help"]}


def output_option() -> click.Option:
    """Return the option for the format of commands that print a table by default."""
    return click.Option(
        ["-o", "--output"],
        default="table",
        show_default=True,
        type=click.Choice(["table", "json", "yaml"]),
        help="output format",
    )


class Later(click.Command):
    """A command as a list shows it; it is loaded when it is called (start-up time)."""

    def __init__(self, name: str, module: str, short: str) -> None:
        super().__init__(name, short_help=short)
        self._module = module

    def load(self) -> click.Command:
        command: click.Command = importlib.import_module(self._module).command()
        return command


def _loaded(command: click.Command) -> click.Command:
    return command.load() if isinstance(command, Later) else command


class WrongUsage(click.UsageError):
    """A wrong command line ends antctl with 1, as upstream's; click's own code is 2."""

    exit_code = 1


@contextlib.contextmanager
def _upstreams_exit_code() -> Iterator[None]:
    try:
        yield
    except click.UsageError as error:
        raise WrongUsage(error.format_message(), error.ctx) from error


def _availability(modes: str, description: str) -> str:
    """A line on where antctl has this command, if it has it anywhere."""
    for mode, component, workload in (("A", "agent", "ds"), ("C", "controller", "deploy")):
        if mode in modes:
            pod = f"{workload}/antrea-{component} -c antrea-{component}"
            return f"Pods of the {component} have it: kubectl exec -n kube-system {pod} -- {description}\n"
    return f"It needs a kubeconfig: run '{description}' on a workstation.\n" if "R" in modes else ""


class Group(click.Group):
    """Commands with aliases, and upstream's words for one that is unknown."""

    aliases: dict[str, str]
    elsewhere: dict[str, str]
    """Commands that antctl has for another program, with the letters of these modes."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.aliases = {}
        self.elsewhere = {}

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if ctx.parent is None and not ctx.resilient_parsing:
            args = rewritten(self, args, ctx.command_path, _loaded)
        return super().parse_args(ctx, args)

    def make_context(self, *arguments: Any, **options: Any) -> click.Context:
        with _upstreams_exit_code():
            return super().make_context(*arguments, **options)

    def invoke(self, ctx: click.Context) -> Any:
        with _upstreams_exit_code():
            return super().invoke(ctx)

    def add(self, command: click.Command, aliases: tuple[str, ...]) -> None:
        """Add a command with its other names. Raises ValueError for a name that another command has."""
        if twice := sorted({command.name or "", *aliases} & {*self.commands, *self.aliases}):
            raise ValueError(f"antctl {self.name} {', '.join(twice)}: two commands have it")
        self.add_command(command)
        self.aliases |= dict.fromkeys(aliases, command.name or "")

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return super().get_command(ctx, self.aliases.get(cmd_name, cmd_name))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            path = ctx.command_path
            hint = _availability(self.elsewhere.get(args[0], ""), f"{path} {args[0]}")
            raise Failure(f'unknown command "{args[0]}" for "{path}"\n{hint}Run \'{path} --help\' for usage.')
        name, command, rest = super().resolve_command(ctx, args)
        return name, _loaded(command) if command else None, rest
