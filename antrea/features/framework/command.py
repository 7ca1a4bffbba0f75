"""Declarations of a feature for `antctl`, in module `antctl` of its folder: `COMMANDS` and `ACTIONS`.

Modes: A agent, C controller, F flow-aggregator, R remote.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Row: TypeAlias = "dict[str, Any]"
Column: TypeAlias = "tuple[str, Callable[[Row], str]]"
"""Title and cell of a row."""


class Flag(NamedTuple):
    """An option of a command; `names` without dashes are the key of the query."""

    key: str
    short: str
    help: str
    is_bool: bool = False


class DataCommand(NamedTuple):
    """Prints what a program answers under `path`; `group` is get, query or empty."""

    group: str
    name: str
    modes: str
    short: str
    path: str
    """Path of the program's own API, or group/version/resource of the aggregated API."""
    aliases: tuple[str, ...] = ()
    long: str = ""
    example: str = ""
    argument: str = ""
    """Key of the query that the optional argument becomes."""
    flags: tuple[Flag, ...] = ()
    columns: tuple[Column, ...] = ()
    ordered: bool = True
    """Whether rows of a table are sorted."""
    form: str = "table"
    """Output format if none is asked for."""
    shape: Callable[[Any, Mapping[str, str]], Any] | None = None
    """Function that makes the output from the answer and the command's options; None prints the answer."""
    text: Callable[[Any], str] | None = None
    """The table, where it is none of rows and columns."""
    doubt: Callable[[Any, Any, Mapping[str, str]], None] | None = None
    """Function of the server, the answer and the options that raises for an answer that means nothing, such as one about Pods that do not exist."""
    body: Callable[[Mapping[str, str]], Any] | None = None
    """Function that makes the body of a POST from the options; None sends the options as the query of a GET."""

    @property
    def is_resource(self) -> bool:
        """Whether kube-apiserver serves it, too."""
        return not self.path.startswith("/")


class Action(NamedTuple):
    """Does more than print an answer; `module` has it as `command()` and is loaded when it is asked for."""

    group: str
    name: str
    modes: str
    short: str
    module: str
    aliases: tuple[str, ...] = ()


def field(key: str) -> Callable[[Row], str]:
    """Return a cell with the value of a row under `key`; empty where there is none."""
    return lambda row: str(row.get(key, ""))
