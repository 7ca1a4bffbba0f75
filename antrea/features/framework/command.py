"""Declarations of a feature for `antctl`, in module `antctl` of its folder: `COMMANDS` and `ACTIONS`.

Modes: A agent, C controller, F flow-aggregator, R remote.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from antrea.apis.shown import one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

Row: TypeAlias = "dict[str, Any]"
Column: TypeAlias = "tuple[str, Callable[[Row], str]]"
"""Title and cell of a row."""
MAX_LENGTH: Final = 50
"""Characters of a list in a cell."""


class PodOption(NamedTuple):
    """A Pod that an option of a command names."""

    option: str
    namespace: str
    name: str


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
    """Function that makes the output from the answer and the command's options; None prints the answer. Raises Invalid."""
    text: Callable[[Any], str] | None = None
    """The table, where it is none of rows and columns."""
    pods: Callable[[Mapping[str, str]], Iterable[PodOption]] | None = None
    """Pods that the options name: where the answer has no `response`, those that do not exist are the error. Raises Invalid."""
    body: Callable[[Mapping[str, str]], Any] | None = None
    """Function that makes the body of a POST from the options; None sends the options as the query of a GET. Raises Invalid."""

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


def table(rows: Sequence[dict[str, Any]], columns: Sequence[Column], *, ordered: bool) -> str:
    """Columns as wide as their widest cell; a single column is not padded; no rows give one empty line."""
    if not rows:
        return "\n"
    cells = [[_shown(cell(row)) for _, cell in columns] for row in rows]
    if ordered:
        cells.sort()
    lines = [[name for name, _ in columns], *cells]
    if len(columns) == 1:
        return "".join(f"{line[0]}\n" for line in lines)
    lines[1:] = [[cell or "<NONE>" for cell in line] for line in cells]
    widths = [max(len(line[place]) for line in lines) for place in range(len(columns))]
    return "".join(
        " ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) + "\n" for line in lines
    )


def _shown(cell: str) -> str:
    """Return the text of a cell on one line; other people may have written it."""
    return cell if cell.isprintable() else one_line(cell)


def listed(values: Sequence[str]) -> str:
    """Sorted and comma-joined; what is longer than MAX_LENGTH characters is cut to `a,b + 3 more...`, one value at least.

    Upstream (pkg/util/printers) counts too few where it cuts twice; we count what is hidden.
    """
    ordered = sorted(values)
    text = ",".join(ordered)
    shown = len(ordered)
    while len(text) > MAX_LENGTH and shown > 1:
        shown -= 1
        text = f"{','.join(ordered[:shown])} + {len(ordered) - shown} more..."
    return text
