"""What controller and agent know of Egresses."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import ClassVar

from antrea.facts.fact import Fact
from antrea.facts.group import GroupSelector


class EgressRow(Fact, frozen=True):
    """An Egress as the controller sees it; its Egress feed writes it."""

    name: str
    uid: str
    selector: GroupSelector | None
    """None: it selects nothing."""

    @property
    def key(self) -> str:
        return self.name


class EgressPod(Fact, frozen=True):
    """A Pod of this Node that an Egress selects; the agent's feed of EgressGroups writes it."""

    egress: str
    pod: str
    """namespace/name"""
    indexes: ClassVar[Mapping[str, Callable[[EgressPod], Iterable[Hashable]]]] = {
        "pod": lambda row: (row.pod,),
        "egress": lambda row: (row.egress,),
    }

    @property
    def key(self) -> str:
        return f"{self.egress} {self.pod}"
