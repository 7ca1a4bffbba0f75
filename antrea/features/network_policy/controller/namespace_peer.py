"""Peers in relation to the Namespace of whom a policy is for: one rule for each Namespace, or for all with the same labels.

Upstream forgets Namespaces of all but the last element of `appliedTo`, and in a ClusterGroup all but its
`namespaceSelector`; here all of them count.
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
    """Whom a rule is for, and its peers."""


def related(facts: Facts, applied: Iterable[AppliedTo], peers: Sequence[Peer]) -> Iterator[Pair]:
    """Those of `namespaces.match: Self`, then those of `namespaces.sameLabels`, sorted."""
    spaces = _affected(facts, applied)
    own = [one for one in peers if one.namespaces and one.namespaces.match == "Self"]
    for space in sorted(spaces) if own else ():
        yield tuple(spaces[space]), tuple(_near(space, one) for one in own)
    for one in peers:
        if one not in own and one.namespaces and one.namespaces.same_labels:
            yield from _alike(facts, spaces, one, one.namespaces.same_labels)


def _near(space: str, peer: Peer) -> ChosenGroup:
    selector = group_selector(space, peer.pod_selector, entities=peer.external_entity_selector)
    return by_selector(ADDRESS, selector)


def _alike(
    facts: Facts, spaces: dict[str, list[ChosenGroup]], peer: Peer, keys: tuple[str, ...]
) -> Iterator[Pair]:
    """Namespaces that lack one of the labels are like no other."""
    by_values: dict[tuple[str, ...], list[str]] = {}
    for space in sorted(spaces):
        home = facts.get(Namespace, space)
        labels = dict(home.labels) if home else {}
        if all(key in labels for key in keys):
            by_values.setdefault(tuple(labels[key] for key in keys), []).append(space)
    for values in sorted(by_values):
        same = LabelSelector(match_labels=dict(zip(keys, values, strict=True)))
        selector = group_selector("", peer.pod_selector, same, entities=peer.external_entity_selector)
        chosen = tuple(one for space in by_values[values] for one in spaces[space])
        yield chosen, (by_selector(ADDRESS, selector),)


def _affected(facts: Facts, applied: Iterable[AppliedTo]) -> dict[str, list[ChosenGroup]]:
    """By Namespace, the groups that split `appliedTo`."""
    found: dict[str, list[ChosenGroup]] = {}
    for one in applied:
        for space, selector in _split(facts, one):
            found.setdefault(space, []).append(by_selector(APPLIED, selector))
    return found


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
    for one in whole:
        if one.kind != NODE:
            spaces = [one.namespace] if one.namespace else _named(facts, one.namespaces or ())
            for space in spaces:
                yield space, selector_of(space, None, one.labels, one.kind)


def _named(facts: Facts, wanted: tuple[Requirement, ...]) -> list[str]:
    return [space.name for space in facts.all(Namespace) if meets(dict(space.labels), wanted)]
