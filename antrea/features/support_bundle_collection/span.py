"""Nodes and ExternalNodes of a SupportBundleCollection, and the order of several collections.

parity: pkg/controller/supportbundlecollection/controller.go getBundleNodes, getBundleExternalNodes, isCollectionAvailable.
Nodes that come and go while a collection runs join and leave it; upstream's list is made once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from antrea.features.grouping.selector import meets, requirements
from antrea.features.support_bundle_collection.collection import (
    CollectedMachine,
    CollectedNode,
    CollectionTerms,
    OpenCollection,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from antrea.apis.crd.part import LabelSelector
    from antrea.engine import Facts


class _Labelled(Protocol):
    """A Node or an ExternalNode."""

    @property
    def key(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def labels(self) -> tuple[tuple[str, str], ...]: ...


class _Wanted(Protocol):
    """Selection of the Nodes of a collection."""

    @property
    def node_names(self) -> tuple[str, ...]: ...
    @property
    def node_selector(self) -> LabelSelector | None: ...


def chosen_nodes(facts: Facts, row: OpenCollection) -> tuple[str, ...]:
    """Names, sorted: of all Nodes if neither names nor a selector are given, else of those that one of them means; the same of the
    ExternalNodes of a Namespace, which have it before their names."""
    nodes, machines = row.spec.nodes, row.spec.external_nodes
    names = [] if nodes is None else [*_selected_names(nodes, facts.all(CollectedNode))]
    if machines is not None:
        names += _selected_names(machines, facts.by(CollectedMachine, "namespace", machines.namespace))
    return tuple(sorted(names))


def _selected_names(wanted: _Wanted, rows: Iterable[_Labelled]) -> Iterator[str]:
    names = frozenset(wanted.node_names)
    conditions = None if wanted.node_selector is None else requirements(wanted.node_selector)
    takes_all = not names and conditions is None
    for row in rows:
        is_selected = conditions is not None and meets(dict(row.labels), conditions)
        if takes_all or row.name in names or is_selected:
            yield row.key


def unknown_nodes(facts: Facts, row: OpenCollection) -> tuple[str, ...]:
    """Names that the collection lists and no Node has, sorted."""
    names = row.spec.nodes.node_names if row.spec.nodes else ()
    return tuple(sorted(name for name in {*names} if facts.get(CollectedNode, name) is None))


def unknown_machines(facts: Facts, row: OpenCollection) -> tuple[str, ...]:
    """The same of ExternalNodes, with their Namespace."""
    wanted = row.spec.external_nodes
    names = () if wanted is None else {f"{wanted.namespace}/{name}" for name in wanted.node_names}
    return tuple(sorted(name for name in names if facts.get(CollectedMachine, name) is None))


def terms_of(facts: Facts, row: OpenCollection) -> CollectionTerms | None:
    """Return the terms; None if they are not known yet."""
    terms = facts.get(CollectionTerms, row.name)
    return terms if terms is not None and terms.uid == row.uid else None


def first(facts: Facts, row: OpenCollection) -> str:
    """Return the collection that Nodes, or machines of its Namespace, work on before this one; empty if it is this one's turn."""
    ours = _order(row)
    meet = (
        candidate
        for candidate in facts.all(OpenCollection)
        if _order(candidate) < ours and _meet(candidate, row)
    )
    ahead = sorted(meet, key=_order)
    return next((candidate.name for candidate in ahead if _may_run(facts, candidate)), "")


def _meet(candidate: OpenCollection, other: OpenCollection) -> bool:
    """Whether both are of Nodes, or both of ExternalNodes of one Namespace."""
    if candidate.spec.nodes is not None and other.spec.nodes is not None:
        return True
    mine, theirs = candidate.spec.external_nodes, other.spec.external_nodes
    return mine is not None and theirs is not None and mine.namespace == theirs.namespace


def _order(row: OpenCollection) -> tuple[bool, str, str]:
    return (not row.started, row.created, row.name)


def _may_run(facts: Facts, row: OpenCollection) -> bool:
    terms = terms_of(facts, row)
    has_credentials = terms is not None and not terms.expired and terms.credentials is not None
    return has_credentials and bool(chosen_nodes(facts, row))
