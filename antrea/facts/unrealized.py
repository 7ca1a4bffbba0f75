"""Refusals of entries, by the unit and the row that want them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import ClassVar

from antrea.facts.fact import Fact


class Unrealized(Fact, frozen=True):
    """An entry that a unit wants for a row was refused: all that it wants there is left out, or stays as it was before.

    The engine's feed writes it; `Facts.refusal` and `Facts.refusals` read it.
    """

    unit: str
    """Name of the unit."""
    row: str
    """Key."""
    why: str
    indexes: ClassVar[Mapping[str, Callable[[Unrealized], Iterable[Hashable]]]] = {
        "unit": lambda row: (row.unit,)
    }

    @property
    def key(self) -> str:
        return f"{self.unit} {self.row}"
