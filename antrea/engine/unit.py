"""Units and the order they run in: makers of a derived fact before its readers, never in a circle."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from graphlib import CycleError, TopologicalSorter
from typing import Any

import msgspec

from antrea.facts.fact import Fact

FEATURES = "antrea.features."
"""Where nearly all units are: names of units leave it out."""


class Unit(msgspec.Struct, frozen=True):
    """`entries(facts, row)` for every row of kind `over`: pure, re-run when anything that it read changes.

    With `by`, `entries(facts, value)` for every value that rows have in that index, however many have it: what rows
    share is worked out once, and one more of them costs nothing.
    """

    over: type[Fact]
    entries: Callable[[Any, Any], Iterable[Any]]
    yields: tuple[type[Fact], ...] = ()
    """Kinds of fact that it derives; only units may write those."""
    by: str = ""
    """Name of an index of `over`, whose values are texts."""
    measured_as: tuple[str, ...] = ()
    """Name of its jobs in `Engine.workloads`; empty: they are not measured."""

    @property
    def name(self) -> str:
        """Identity: the qualified name of the function and what the unit is over, for logs, errors and refusals."""
        function = self.entries
        path = f"{function.__module__}.{getattr(function, '__qualname__', repr(function))}"
        over = f"{self.over.__name__} by {self.by}" if self.by else self.over.__name__
        return f"{path.removeprefix(FEATURES)}({over})"


class Graph:
    """The units by level. Levels follow `over` and `yields`, and every read of a derived kind seen since."""

    def __init__(self, units: Iterable[Unit]) -> None:
        """Raises ValueError if a unit is listed twice, is over an unknown index, or derived facts run in a circle."""
        self.units = tuple(units)
        self.over: dict[type, list[Unit]] = defaultdict(list)
        self.by: dict[tuple[type, str], list[Unit]] = defaultdict(list)
        self.makers: dict[type, list[Unit]] = defaultdict(list)
        self.level: dict[Unit, int] = {}
        self._needs: dict[Unit, set[type]] = {}
        names: set[str] = set()
        for unit in self.units:
            if unit.name in names:
                raise ValueError(f"unit {unit.name} is listed twice")
            names.add(unit.name)
            self._needs[unit] = {unit.over}
            if not unit.by:
                self.over[unit.over].append(unit)
            elif unit.by in unit.over.indexes:
                self.by[unit.over, unit.by].append(unit)
            else:
                raise ValueError(
                    f"unit {unit.name} is over {unit.by}, which is not an index of {unit.over.__name__}"
                )
            for kind in unit.yields:
                self.makers[kind].append(unit)
        self._sort()

    def learn(self, unit: Unit, kind: type) -> None:
        """`unit` reads the derived `kind`: from now on it runs after that kind's makers. Raises ValueError on a circle."""
        needs = self._needs[unit]
        if kind in needs:
            return
        needs.add(kind)
        try:
            self._sort()
        except ValueError:
            needs.discard(kind)
            raise

    def _sort(self) -> None:
        order = TopologicalSorter(
            {
                unit: [m for kind in needs for m in self.makers.get(kind, ())]
                for unit, needs in self._needs.items()
            }
        )
        try:
            order.prepare()
        except CycleError as error:
            raise ValueError("units run in a circle: " + " -> ".join(u.name for u in error.args[1])) from None
        level = 0
        while order.is_active():
            for unit in (ready := order.get_ready()):
                self.level[unit] = level
            order.done(*ready)
            level += 1
