"""The one form in which benchmarks and tests state figures: a median with its spread, what it is compared with, and its target."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


class Against(msgspec.Struct, frozen=True):
    """What was measured in the same run to compare with."""

    name: str
    values: tuple[float, ...]


def number(value: float) -> str:
    """Three significant digits, never an exponent."""
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def text(
    name: str,
    unit: str,
    values: Sequence[float],
    *,
    against: Against | None = None,
    target: float | None = None,
) -> str:
    """`figure: <name> <median> <unit> [min..max] (compared with <name> <median>; target <= <value>: met|missed)`.

    The brackets at the end hold what there is to say; a missed target is said to be missed.
    """
    median = statistics.median(values)
    notes = []
    if against is not None:
        notes.append(f"compared with {against.name} {number(statistics.median(against.values))}")
    if target is not None:
        notes.append(f"target <= {number(target)}: {'met' if median <= target else 'missed'}")
    tail = f" ({'; '.join(notes)})" if notes else ""
    return f"figure: {name} {number(median)} {unit} [{number(min(values))}..{number(max(values))}]{tail}"


def show(
    name: str,
    unit: str,
    values: Sequence[float],
    *,
    against: Against | None = None,
    target: float | None = None,
) -> None:
    """Print the line at once, so that a long run shows what it has."""
    print(text(name, unit, values, against=against, target=target), flush=True)


def alternate(measures: Mapping[str, Callable[[], float]], times: int = 5) -> dict[str, list[float]]:
    """Every measure `times` times, in turn, so that what else the machine does meets all of them alike."""
    values: dict[str, list[float]] = {name: [] for name in measures}
    for _ in range(times):
        for name, measure in measures.items():
            values[name].append(measure())
    return values


def show_ratio(name: str, values: Mapping[str, Sequence[float]], unit: str, target: float) -> None:
    """Two lines for two alternating measures, the larger case first: its figure, and how many times the smaller it is."""
    (large, many), (small, few) = values.items()
    show(f"{name}_{large}", unit, many, against=Against(f"{name}_{small}", tuple(few)))
    ratios = [one / other for one, other in zip(many, few, strict=True)]
    show(f"{name}_{large}_to_{small}", "times", ratios, target=target)
