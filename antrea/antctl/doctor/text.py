"""Findings as a person reads them: what is wrong, and below it the command that repairs it and where to run it."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from antrea.antctl.doctor.state import Finding
from antrea.apis.shown import one_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

MAX_ROWS: Final = 20
"""Findings of a check that are shown; a last one counts the rest."""
WORKSTATION: Final = ("kubectl", "helm", "antctl")
"""First words of commands that do not need a shell of the Node."""


def blocks(rows: Iterable[Finding]) -> str:
    """Return a block of lines for each finding, with an empty line between two."""
    return "\n".join(_block(row) for row in limited(rows))


def _block(row: Finding) -> str:
    place = f" on Node {row.node}" if row.node else ""
    lines = [f"{row.severity}: {row.check}{place}", f"  {row.finding}"]
    if row.repair:
        shell = row.peer or row.node
        is_remote = row.repair.startswith(WORKSTATION) or not shell
        lines.append(
            f"  {'Repair' if is_remote else f'Repair, in a root shell of Node {shell}'}: {row.repair}"
        )
    # a command is to be copied as it is, so that only what moves a terminal is escaped
    return "".join(f"{line if line.isprintable() else one_line(line)}\n" for line in lines)


def total(rows: Sequence[Finding]) -> str:
    """Return the number of errors and of warnings."""
    numbers = Counter(row.severity for row in rows)
    counts = [
        f"{number} {kind}{'' if number == 1 else 's'}"
        for kind in ("error", "warning")
        if (number := numbers[kind])
    ]
    return " and ".join(counts)


def limited(rows: Iterable[Finding]) -> list[Finding]:
    """Return the first findings of each check, and a finding that counts the rest."""
    by_check: dict[str, list[Finding]] = {}
    for row in rows:
        by_check.setdefault(row.check, []).append(row)
    shown: list[Finding] = []
    for check, group in by_check.items():
        shown += group[:MAX_ROWS]
        if rest := group[MAX_ROWS:]:
            shown.append(Finding("", rest[0].severity, check, f"{len(rest)} more; -o json has all", ""))
    return shown
