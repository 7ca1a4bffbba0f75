"""What the controller knows of Egresses."""

from __future__ import annotations

from antrea.facts.fact import Fact
from antrea.facts.group import GroupSelector


class EgressRow(Fact, frozen=True):
    """An Egress; the Egress feed writes it."""

    name: str
    uid: str
    selector: GroupSelector | None
    """None: it selects nothing."""

    @property
    def key(self) -> str:
        return self.name
