"""Peers in relation to the Namespace of a policy's target: one rule for each Namespace, or for all with the same labels.

Upstream considers only Namespaces of the last element of `appliedTo`, and in a ClusterGroup only its `namespaceSelector`; here
all of them count.
parity: pkg/controller/networkpolicy/antreaclusternetworkpolicy.go processAntreaClusterNetworkPolicy
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from antrea.apis.crd.part import LabelSelector
from antrea.facts.cluster import Namespace
from antrea.facts.group import NODE
from antrea.features.grouping.member import ADDRESS, APPLIED
from antrea.features.grouping.selector import account_selector, group_selector, meets, selector_of
from antrea.features.network_policy.controller.antrea_peer import by_selector
from antrea.features.network_policy.controller.group import WholeGroup

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from antrea.apis.crd.network_policy import AppliedTo, Peer
    from antrea.engine import Facts
    from antrea.facts.group import GroupSelector, Requirement
    from antrea.features.network_policy.controller.antrea_peer import ChosenGroup

    Pair = tuple[tuple[ChosenGroup, ...], tuple[ChosenGroup, ...]]
    """Targets of a rule, and its peers."""


def related(facts: Facts, applied: Iterable[AppliedTo], peers: Sequence[Peer]) -> Iterator[Pair]:
    """Yield pairs of `namespaces.match: Self`, then those of `namespaces.sameLabels`, sorted."""
    spaces = _affected(facts, applied)
    self_peers = [
        candidate for candidate in peers if candidate.namespaces and candidate.namespaces.match == "Self"
    ]
    for space in sorted(spaces) if self_peers else ():
        yield tuple(spaces[space]), tuple(_near(space, peer) for peer in self_peers)
    for relative in peers:
        if relative not in self_peers and relative.namespaces and relative.namespaces.same_labels:
            yield from _alike(facts, spaces, relative, relative.namespaces.same_labels)


def _near(space: str, peer: Peer) -> ChosenGroup:
    selector = group_selector(space, peer.pod_selector, entities=peer.external_entity_selector)
    return by_selector(ADDRESS, selector)


def _alike(
    facts: Facts, spaces: dict[str, list[ChosenGroup]], peer: Peer, keys: tuple[str, ...]
) -> Iterator[Pair]:
    """Yield pairs of Namespaces with equal labels; those that lack one of the labels are in none."""
    by_values: dict[tuple[str, ...], list[str]] = {}
    for space in sorted(spaces):
        home = facts.get(Namespace, space)
        labels = dict(home.labels) if home else {}
        if all(key in labels for key in keys):
            by_values.setdefault(tuple(labels[key] for key in keys), []).append(space)
    for values in sorted(by_values):
        same = LabelSelector(match_labels=dict(zip(keys, values, strict=True)))
        selector = group_selector("", peer.pod_selector, same, entities=peer.external_entity_selector)
        chosen = tuple(group for space in by_values[values] for group in spaces[space])
        yield chosen, (by_selector(ADDRESS, selector),)


def _affected(facts: Facts, applied: Iterable[AppliedTo]) -> dict[str, list[ChosenGroup]]:
    """Return the groups that split `appliedTo`, by Namespace."""
    by_namespace: dict[str, list[ChosenGroup]] = {}
    for target in applied:
        for space, selector in _split(facts, target):
            by_namespace.setdefault(space, []).append(by_selector(APPLIED, selector))
    return by_namespace


def _split(facts: Facts, applied: AppliedTo) -> Iterator[tuple[str, GroupSelector]]:
    if (account := applied.service_account) is not None:
        yield account.namespace, account_selector(account.namespace, account.name)
        return
    if applied.group:
        group = facts.get(WholeGroup, applied.group)
        whole = group.applied() if group else ()
    else:
        selector = group_selector(
            "",
            applied.pod_selector,
            applied.namespace_selector,
            entities=applied.external_entity_selector,
        )
        whole = (selector,) if selector else ()
    for chosen in whole:
        if chosen.kind != NODE:
            spaces = [chosen.namespace] if chosen.namespace else _named(facts, chosen.namespaces or ())
            for space in spaces:
                yield space, selector_of(space, None, chosen.labels, chosen.kind)


def _named(facts: Facts, wanted: tuple[Requirement, ...]) -> list[str]:
    return [space.name for space in facts.all(Namespace) if meets(dict(space.labels), wanted)]
