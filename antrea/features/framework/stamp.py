"""Category of a feature's entries: declared once, and stamped on all entries without one."""

from __future__ import annotations

from functools import cache, wraps
from typing import TYPE_CHECKING, Any

import msgspec

from antrea.host.nft import NftChain

if TYPE_CHECKING:
    from collections.abc import Iterator

    from antrea.engine import Facts, Unit
    from antrea.openflow.cookie import Category


def stamped(unit: Unit, category: Category) -> Unit:
    """Return the same unit, whose entries get `category` where they have none."""
    entries, number = unit.entries, int(category)

    @wraps(entries)
    def with_category(facts: Facts, row: Any) -> Iterator[Any]:
        for entry in entries(facts, row):
            if takes_category(entry.__class__) and not entry.category:
                yield msgspec.structs.replace(entry, category=number)
            else:
                yield entry

    return msgspec.structs.replace(unit, entries=with_category)


@cache
def takes_category(kind: type) -> bool:
    """Whether entries of this kind may leave their category out, and are of one feature.

    Flows never do (`flows_of`). A chain without a category is shared by all features that have rules in it.
    """
    if kind is NftChain or not issubclass(kind, msgspec.Struct):
        return False
    return any(field.name == "category" and field.default == 0 for field in msgspec.structs.fields(kind))
