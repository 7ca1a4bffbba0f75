"""The page on a run of an end-to-end suite: versions, command line, skip list, result and seconds of each spec."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import msgspec

from lab.conformance import SKIPPED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lab.conformance import Skip, Spec


class About(msgspec.Struct, frozen=True):
    """Heading of a page: its title and the program that writes it; name and value of where and when it ran; the command line."""

    title: str
    written_by: str
    rows: tuple[tuple[str, str], ...]
    command: str


def counted(specs: Sequence[Spec]) -> str:
    """`45 passed, 1 failed, 3 skipped`, by the last run of each; most frequent first."""
    results = Counter(spec.runs[-1].status if spec.runs else spec.result for spec in specs)
    return ", ".join(f"{number} {result}" for result, number in results.most_common())


def page(specs: Sequence[Spec], skip: Sequence[Skip], about: About) -> str:
    """It as Markdown."""
    return "\n".join(
        [
            f"# {about.title}",
            "",
            f"Written by {about.written_by}",
            "",
            *(f"- {name}: {value}" for name, value in about.rows),
            f"- Result: {counted(specs)}",
            "",
            f"    {about.command}",
            "",
            "| Left out | Because |",
            "|---|---|",
            *(f"| `{_cell(skipped.match)}` | {_cell(skipped.why)} |" for skipped in skip),
            "",
            "| Spec | Result | Seconds | Why |",
            "|---|---|---|---|",
            *map(_row, specs),
            "",
        ]
    )


def _row(spec: Spec) -> str:
    last = spec.runs[-1] if spec.runs else None
    why = spec.skipped if spec.result == SKIPPED else last.why if last else ""
    return f"| {_cell(spec.name)} | {spec.result} | {f'{last.seconds:.0f}' if last else ''} | {_cell(why)[:200]} |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
