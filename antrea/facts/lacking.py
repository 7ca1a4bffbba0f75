"""What of that which the agent's units want cannot be made."""

from __future__ import annotations

from antrea.facts.fact import Fact


class Lacking(Fact, frozen=True):
    """What a unit wants for a row was refused: all of it is left out, or stands as it was before; the engine's feed writes it."""

    unit: str
    row: str
    """Key."""
    why: str

    @property
    def key(self) -> str:
        return f"{self.unit} {self.row}"
