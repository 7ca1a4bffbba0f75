"""Fields that this process writes into the status of an object, for as long as it is responsible for it."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from antrea.apis.crd.part import Condition
from antrea.rank import Rank

Scalar = str | int | bool
Value = Scalar | tuple[str, ...]
"""Value of a field of an item."""


class Items(msgspec.Struct, frozen=True):
    """Items of one list of a status, which several managers write: each writes its own items, and leaves those of others."""

    name: str
    """Name of the list, beneath `status`."""
    by: str
    """Field of an item that identifies it in the list."""
    items: tuple[tuple[tuple[str, Value], ...], ...]
    """Fields of each."""
    known: tuple[Scalar, ...]
    """Values of `by` in the order of the list; items of others are taken away."""


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """An entry that any unit may yield: fields and conditions of one object's status.

        Status(
            path="/apis/crd.antrea.io/v1beta1/egresses/web",
            kind="Egress",
            manager="antrea-agent-node-1",
            fields=(("egressNode", "node-1"), ("egressIP", "10.1.1.1")),
            conditions=(Condition("IPAssigned", "True", reason="Assigned", message="..."),),
        )

    Dropping it forgets and erases nothing: a status that must be empty is an entry with empty values.
    """

    path: str
    """Path of the object, not of its subresource."""
    kind: str
    manager: str
    """Owns the fields: antrea-controller, or antrea-agent-<Node>. Each manager is an entry of its own."""
    fields: tuple[tuple[str, Scalar], ...] = ()
    """Dotted names beneath `status`: ("usage.total", 5). Name the same ones each time, but those that
    it keeps; others stay as they are."""
    keeps: tuple[str, ...] = ()
    """Names beneath `status` that stay as they are while `fields` do not name them. An older CRD may lack them: then they are
    left out."""
    conditions: tuple[Condition, ...] = ()
    """Without their times, which the sink adds. One without a `status` means that there is none of that type;
    conditions of other types stay as they are."""
    ahead: bool = False
    """Conditions that are new stand before those of others, not after them."""
    keyed: bool = False
    """The list of conditions is a map by type to the API server, as that of a Service: those of others are not written along."""
    items: Items | None = None

    rank: ClassVar[int] = Rank.REPORT
    category: ClassVar[int] = 0
    forgets: ClassVar[bool] = True

    @property
    def key(self) -> tuple[str, str]:
        return (self.path, self.manager)
