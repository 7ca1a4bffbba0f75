"""Command lines of click commands read by the rules of Go's cobra and pflag, which users and manifests of upstream rely on.

Options of a group may stand after its sub-commands, `-o=json` is `-o json`, and a switch takes a value: `--insecure=false`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

TRUE = frozenset(("1", "t", "T", "TRUE", "true", "True"))
FALSE = frozenset(("0", "f", "F", "FALSE", "false", "False"))
"""Texts that Go's strconv.ParseBool reads as false."""


class GoCommand(click.Command):
    """A command whose line is rewritten to click's form before click parses it."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if ctx.parent is None and not ctx.resilient_parsing:
            args = rewritten(self, args, ctx.command_path, lambda command: command)
        return super().parse_args(ctx, args)


def config_option(default: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return the decorator for the option --config, which the program gets as `path`."""
    return click.option(
        "--config",
        "path",
        type=click.Path(path_type=Path),
        default=Path(default),
        show_default=True,
        help="configuration file",
    )


def token_file_option(default: Path) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return the decorator for the option --token-file of programs that antctl in the same Pod asks."""
    return click.option(
        "--token-file",
        type=click.Path(path_type=Path),
        default=default,
        show_default=True,
        help="where the token of antctl in this Pod is written",
    )


class Flag(NamedTuple):
    """An option and the place of its command in the chain of commands, the root's being 0."""

    option: click.Option
    level: int

    @property
    def is_bool(self) -> bool:
        """Whether the name alone stands for true. `flag_value` marks a switch that click also gives a value."""
        return self.option.is_flag or self.option.flag_value is True

    @property
    def long(self) -> str:
        return next(name for name in self.option.opts if name.startswith("--"))

    @property
    def shown(self) -> str:
        """Name of the flag as pflag shows it in an error."""
        short = [name for name in self.option.opts if not name.startswith("--")]
        return ", ".join((*short, self.long))


Flags = dict[str, Flag]
"""Flags by `--name` and `-n`; options of a sub-command hide those of its groups."""
HELP = Flag(click.Option(["-h", "--help"], is_flag=True), 0)


def rewritten(
    root: click.Command, args: Sequence[str], path: str, loaded: Callable[[click.Command], click.Command]
) -> list[str]:
    """`args` with each option directly behind the name of its command, as `--name=value`, and the last of repeated ones.

    `path` is what `root` is called; `loaded` completes a sub-command that a group only lists. Raises ClickException with
    pflag's words.
    """
    chain, arguments, rest = _chain(root, args, loaded)
    leaf = chain[-1]
    if leaf.context_settings.get("ignore_unknown_options"):
        return [*arguments, *rest]
    flags = _flags(chain)
    if isinstance(leaf, click.Group) and (unknown := _commands_of(rest, flags)):
        # click, which knows the groups' own words for it, is left to refuse it
        return [*arguments, unknown[0]]
    given, positional = _parsed(rest, flags)
    if positional and not any(isinstance(param, click.Argument) for param in leaf.params):
        raise click.ClickException(f'unknown command "{positional[0]}" for "{" ".join((path, *arguments))}"')
    lines = [_level(given, level) for level in range(len(chain))]
    if HELP in given or isinstance(leaf, click.Group):
        lines[-1].append("--help")
    rewritten_arguments = [
        part for word, line in zip(("", *arguments), lines, strict=True) for part in (word, *line)
    ][1:]
    return [*rewritten_arguments, "--", *positional] if positional else rewritten_arguments


def _chain(
    root: click.Command, args: Sequence[str], loaded: Callable[[click.Command], click.Command]
) -> tuple[list[click.Command], list[str], list[str]]:
    """The commands that `args` name, from the root on, their names as written, and what else is in `args`."""
    chain, arguments, rest = [root], list[str](), list(args)
    while isinstance(group := chain[-1], click.Group):
        names = _commands_of(rest, _flags(chain))
        command = group.get_command(click.Context(group), names[0]) if names else None
        if command is None:
            break
        rest = _without(rest, names[0], _flags(chain))
        chain.append(loaded(command))
        arguments.append(names[0])
    return chain, arguments, rest


def _flags(chain: Sequence[click.Command]) -> Flags:
    flags: Flags = {"--help": HELP, "-h": HELP}
    for level, command in enumerate(chain):
        for option in (param for param in command.params if isinstance(param, click.Option)):
            flags |= dict.fromkeys(option.opts, Flag(option, level))
    return flags


def _takes_next(arg: str, flags: Mapping[str, Flag]) -> bool:
    """Whether the argument after this one is its value; an unknown option takes one, as cobra assumes."""
    if "=" in arg or not (arg.startswith("--") or (arg.startswith("-") and len(arg) == 2)):
        return False
    return arg not in flags or not flags[arg].is_bool


def _commands_of(args: Sequence[str], flags: Mapping[str, Flag]) -> list[str]:
    """Return the arguments that are neither an option nor its value. parity: cobra stripFlags."""
    return [args[place] for place in _places(args, flags)]


def _places(args: Sequence[str], flags: Mapping[str, Flag]) -> list[int]:
    places, place = list[int](), 0
    while place < len(args) and args[place] != "--":
        if not args[place].startswith("-"):
            places += [place] if args[place] else []
        elif _takes_next(args[place], flags):
            place += 1
        place += 1
    return places


def _without(args: list[str], word: str, flags: Mapping[str, Flag]) -> list[str]:
    place = next(place for place in _places(args, flags) if args[place] == word)
    return [*args[:place], *args[place + 1 :]]


def _parsed(args: Sequence[str], flags: Mapping[str, Flag]) -> tuple[dict[Flag, list[str]], list[str]]:
    """Values of each option in order, and the other arguments. parity: pflag parseArgs. Raises ClickException."""
    given: dict[Flag, list[str]] = {}
    positional, waiting = list[str](), list(args)
    while waiting:
        arg = waiting.pop(0)
        if arg == "--":
            return given, [*positional, *waiting]
        if arg.startswith("--"):
            _long(arg, waiting, flags, given)
        elif arg.startswith("-") and arg != "-":
            _short(arg, waiting, flags, given)
        else:
            positional.append(arg)
    return given, positional


def _long(arg: str, waiting: list[str], flags: Mapping[str, Flag], given: dict[Flag, list[str]]) -> None:
    name, equals, value = arg.partition("=")
    if name not in flags:
        raise click.ClickException(f"unknown flag: {name}")
    flag = flags[name]
    if not equals and not flag.is_bool and not waiting:
        raise click.ClickException(f"flag needs an argument: {name}")
    _add_value(given, flag, value if equals else "true" if flag.is_bool else waiting.pop(0))


def _short(arg: str, waiting: list[str], flags: Mapping[str, Flag], given: dict[Flag, list[str]]) -> None:
    letters = arg[1:]
    while letters:
        letter, rest = letters[0], letters[1:]
        flag = flags.get(f"-{letter}")
        if flag is None:
            raise click.ClickException(f"unknown shorthand flag: '{letter}' in -{letters}")
        if len(rest) > 1 and rest[0] == "=":
            return _add_value(given, flag, rest[1:])
        if flag.is_bool:
            _add_value(given, flag, "true")
            letters = rest
            continue
        if not rest and not waiting:
            raise click.ClickException(f"flag needs an argument: '{letter}' in -{letters}")
        return _add_value(given, flag, rest or waiting.pop(0))
    return None


def _add_value(given: dict[Flag, list[str]], flag: Flag, value: str) -> None:
    if flag.is_bool and value not in TRUE | FALSE:
        why = f'strconv.ParseBool: parsing "{value}": invalid syntax'
        raise click.ClickException(f'invalid argument "{value}" for "{flag.shown}" flag: {why}')
    if flag is HELP and value in FALSE:
        return
    given.setdefault(flag, []).append(value)


def _level(given: Mapping[Flag, Sequence[str]], level: int) -> list[str]:
    """The options of one command as click reads them."""
    words_of_level: list[str] = []
    for flag, values in given.items():
        if flag is HELP or flag.level != level:
            continue
        kept: Any = values if flag.option.multiple else values[-1:]
        if not flag.option.is_flag:
            words_of_level += [f"{flag.long}={value}" for value in kept]
        elif values[-1] in TRUE:
            words_of_level.append(flag.long)
    return words_of_level
