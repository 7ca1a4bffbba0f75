"""Queries on members of a Group or ClusterGroup, and on the groups of an object, computed from rows on request.

parity: pkg/apiserver/registry/networkpolicy/{clustergroupmember,groupmember,groupassociation,ipgroupassociation}
"""

from __future__ import annotations

from ipaddress import IPv4Address, ip_address
from typing import TYPE_CHECKING, Any

from antrea.apis import controlplane_report as report
from antrea.apis.meta import ObjectMetadata
from antrea.errors import Invalid, Unavailable
from antrea.facts.cluster import ClusterNode, Entity, Namespace, Pod
from antrea.facts.group import Matches
from antrea.features.grouping.member import address_member, entity_member, node_member, packed
from antrea.features.network_policy.controller.group import (
    ClusterGroupObject,
    GroupObject,
    WholeGroup,
    group_key,
)
from antrea.features.network_policy.controller.peer import MAPPED

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from antrea.apis.controlplane import GroupMember, IPNet
    from antrea.engine import Facts
    from antrea.facts.fact import Fact

READS: frozenset[type[Fact]] = frozenset(
    (Pod, Namespace, ClusterNode, Entity, GroupObject, ClusterGroupObject)
)
BITS = 128
DIGITS = 18
"""Maximum number of digits of a page or its size, and of characters shown of an invalid one."""


def members(
    facts: Facts, namespace: str, name: str, query: Mapping[str, str]
) -> report.ClusterGroupMembers | report.GroupMembers | None:
    """Return a page of members, of a ClusterGroup if there is no Namespace; None if there is no such group.

    Raises Invalid for a bad page and for a group that cannot have members, Unavailable until everything has been listed.
    """
    page, limit = (_number(query, key) for key in ("page", "limit"))
    _known(facts)
    key = group_key(namespace, name)
    group = facts.get(WholeGroup, key)
    if group is None:
        return None
    if group.nested:
        why = f"no member can be computed for {key}: its childGroups must not have childGroups of their own"
        raise Invalid("spec.childGroups", why)
    sorted_members = _members(facts, group)
    pages, shown = 1 if sorted_members else 0, sorted_members
    if sorted_members and limit:
        pages = -(-len(sorted_members) // limit)
        shown = sorted_members[(page - 1) * limit : page * limit] if page else sorted_members
    kind = report.GroupMembers if namespace else report.ClusterGroupMembers
    return kind(
        metadata=ObjectMetadata(name=name, namespace=namespace),
        effective_members=tuple(shown) if sorted_members else None,
        effective_ip_blocks=tuple(block.cidr for block in group.blocks) or None,
        total_members=len(sorted_members),
        total_pages=pages,
        current_page=page if sorted_members and limit else pages,
    )


def _number(query: Mapping[str, str], key: str) -> int:
    value = query.get(key, "0") or "0"
    if not value.isdecimal() or len(value) > DIGITS:
        what = "number" if key == "page" else key
        raise Invalid(key, f"received invalid page {what} {value[:DIGITS]} for pagination")
    return int(value)


def _known(facts: Facts) -> None:
    if not facts.feeds.synced >= READS:
        raise Unavailable("the lists of groups and their members are not complete yet, try again")


def _members(facts: Facts, group: WholeGroup) -> list[GroupMember]:
    """List the members sorted by name."""
    wanted = {selector.key for selector in group.selectors}
    if not wanted:
        return []
    labels = {matches.labels for matches in facts.all(Matches) if not wanted.isdisjoint(matches.selectors)}
    pairs: list[tuple[Pod | Entity | ClusterNode, GroupMember | None]] = [
        *((pod, address_member(pod)) for pod in facts.all(Pod) if pod.labels in labels),
        *(
            (entity, entity_member(entity, addresses=True))
            for entity in facts.all(Entity)
            if entity.labels in labels
        ),
        *(
            (node, node_member(node, addresses=True))
            for node in facts.all(ClusterNode)
            if node.labels in labels
        ),
    ]
    pairs.sort(key=lambda pair: (pair[0].name, pair[0].key))
    return [member for _, member in pairs if member is not None]


def associations(facts: Facts, namespace: str, name: str) -> report.GroupAssociation:
    """Return the groups of a Pod or, if there are none, of an ExternalEntity of that name. Raises Unavailable."""
    _known(facts)
    key = f"{namespace}/{name}"
    groups = _of_pod(facts, facts.get(Pod, key)) or _of(facts, facts.get(Entity, key))
    return report.GroupAssociation(metadata=ObjectMetadata(), associated_groups=_references(groups))


def ip_associations(facts: Facts, ip: str) -> report.IPGroupAssociation:
    """Return the groups of the Pod, the ExternalEntities or the Node with this address, and those whose blocks have it.

    Raises Invalid for a text that is not an address, Unavailable until everything has been listed.
    """
    try:
        address = ip_address(ip)
    except ValueError as error:
        raise Invalid("name", f"IP {ip} is not a valid IP address") from error
    _known(facts)
    text = str(address)
    pod = next((candidate for candidate in facts.all(Pod) if text in candidate.ips), None)
    groups = _of_pod(facts, pod)
    if pod is None:
        groups += [
            group for entity in facts.all(Entity) if text in entity.ips for group in _of(facts, entity)
        ]
    groups += [group for node in facts.all(ClusterNode) if text in node.ips for group in _of(facts, node)]
    groups += _with(facts, packed(text), ipv4=isinstance(address, IPv4Address))
    return report.IPGroupAssociation(metadata=ObjectMetadata(), associated_groups=_references(groups))


def _of_pod(facts: Facts, pod: Pod | None) -> list[WholeGroup]:
    return _of(facts, pod) if pod and address_member(pod) else []


def _of(facts: Facts, row: Pod | Entity | ClusterNode | None) -> list[WholeGroup]:
    matches = facts.get(Matches, row.labels) if row else None
    selectors = matches.selectors if matches else ()
    return [group for selector in selectors for group in facts.by(WholeGroup, "selector", selector)]


def _with(facts: Facts, address: bytes, *, ipv4: bool) -> Iterator[WholeGroup]:
    for group in facts.all(WholeGroup):
        for block in group.blocks:
            if _within(address, block.cidr, ipv4=ipv4) and not any(
                _within(address, hole, ipv4=ipv4) for hole in block.except_
            ):
                yield group


def _within(address: bytes, network: IPNet, *, ipv4: bool) -> bool:
    if network.ip.startswith(MAPPED) != ipv4:
        return False
    rest = (32 if ipv4 else BITS) - network.prefix_length
    return int.from_bytes(address) >> rest == int.from_bytes(network.ip) >> rest


def _references(groups: Iterable[WholeGroup]) -> tuple[report.GroupReference, ...]:
    once: dict[str, Any] = {group.key: group for group in groups}
    return tuple(
        report.GroupReference(namespace=whole.namespace, name=whole.name, uid=whole.uid)
        for whole in sorted(once.values(), key=lambda group: (group.namespace, group.name))
    )
