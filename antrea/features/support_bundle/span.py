"""Nodes of a SupportBundleCollection, and which of several collections goes first.

parity: pkg/controller/supportbundlecollection/controller.go getBundleNodes, isCollectionAvailable. Nodes that come and go
while a collection runs join and leave it; upstream's list is made once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from antrea.features.grouping.selector import meets, requirements
from antrea.features.support_bundle.collection import CollectedNode, CollectionTerms, OpenCollection

if TYPE_CHECKING:
    from antrea.engine import Facts


def chosen_nodes(facts: Facts, row: OpenCollection) -> tuple[str, ...]:
    """Names, sorted: of all Nodes if neither names nor a selector are given, else of those that one of them means."""
    wanted = row.spec.nodes
    if wanted is None:
        return ()
    nodes = facts.all(CollectedNode)
    if not wanted.node_names and wanted.node_selector is None:
        return tuple(node.name for node in nodes)
    names = frozenset(wanted.node_names)
    conditions = None if wanted.node_selector is None else requirements(wanted.node_selector)
    return tuple(
        node.name
        for node in nodes
        if node.name in names or (conditions is not None and meets(dict(node.labels), conditions))
    )


def unknown_nodes(facts: Facts, row: OpenCollection) -> tuple[str, ...]:
    """Names that the collection lists and no Node has, sorted."""
    names = row.spec.nodes.node_names if row.spec.nodes else ()
    return tuple(sorted(name for name in {*names} if facts.get(CollectedNode, name) is None))


def terms_of(facts: Facts, row: OpenCollection) -> CollectionTerms | None:
    """None: they are not known yet."""
    terms = facts.get(CollectionTerms, row.name)
    return terms if terms is not None and terms.uid == row.uid else None


def first(facts: Facts, row: OpenCollection) -> str:
    """Name of the collection that Nodes work on before this one; empty if it is this one's turn."""
    ours = _order(row)
    ahead = sorted((one for one in facts.all(OpenCollection) if _order(one) < ours), key=_order)
    return next((one.name for one in ahead if _may_run(facts, one)), "")


def _order(row: OpenCollection) -> tuple[bool, str, str]:
    return (not row.started, row.created, row.name)


def _may_run(facts: Facts, row: OpenCollection) -> bool:
    terms = terms_of(facts, row)
    has_credentials = terms is not None and not terms.expired and terms.credentials is not None
    return has_credentials and bool(chosen_nodes(facts, row))
