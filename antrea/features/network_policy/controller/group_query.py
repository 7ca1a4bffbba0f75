"""Who is in a Group or ClusterGroup, and in which of these something is: answered from the rows, when it is asked.

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
"""Of a number of members or of a page, and of what is shown of one that is none."""


def members(
    facts: Facts, namespace: str, name: str, query: Mapping[str, str]
) -> report.ClusterGroupMembers | report.GroupMembers | None:
    """A page of them, of a ClusterGroup if there is no Namespace; None if there is no such group.

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
    found = _members(facts, group)
    pages, shown = 1 if found else 0, found
    if found and limit:
        pages = -(-len(found) // limit)
        shown = found[(page - 1) * limit : page * limit] if page else found
    kind = report.GroupMembers if namespace else report.ClusterGroupMembers
    return kind(
        metadata=ObjectMetadata(name=name, namespace=namespace),
        effective_members=tuple(shown) if found else None,
        effective_ip_blocks=tuple(one.cidr for one in group.blocks) or None,
        total_members=len(found),
        total_pages=pages,
        current_page=page if found and limit else pages,
    )


def _number(query: Mapping[str, str], key: str) -> int:
    value = query.get(key, "0") or "0"
    if not value.isdecimal() or len(value) > DIGITS:
        what = "number" if key == "page" else key
        raise Invalid(key, f"received invalid page {what} {value[:DIGITS]} for pagination")
    return int(value)


def _known(facts: Facts) -> None:
    if not facts.feeds.synced >= READS:
        raise Unavailable("groups are not known for certain now, try again")


def _members(facts: Facts, group: WholeGroup) -> list[GroupMember]:
    """Sorted by name."""
    wanted = {one.key for one in group.selectors}
    if not wanted:
        return []
    labels = {one.labels for one in facts.all(Matches) if not wanted.isdisjoint(one.selectors)}
    found: list[tuple[Pod | Entity | ClusterNode, GroupMember | None]] = [
        *((pod, address_member(pod)) for pod in facts.all(Pod) if pod.labels in labels),
        *((one, entity_member(one, addresses=True)) for one in facts.all(Entity) if one.labels in labels),
        *((one, node_member(one, addresses=True)) for one in facts.all(ClusterNode) if one.labels in labels),
    ]
    found.sort(key=lambda pair: (pair[0].name, pair[0].key))
    return [member for _, member in found if member is not None]


def associations(facts: Facts, namespace: str, name: str) -> report.GroupAssociation:
    """Groups that a Pod is in, or, if there are none, an ExternalEntity of that name. Raises Unavailable."""
    _known(facts)
    key = f"{namespace}/{name}"
    found = _of_pod(facts, facts.get(Pod, key)) or _of(facts, facts.get(Entity, key))
    return report.GroupAssociation(metadata=ObjectMetadata(), associated_groups=_references(found))


def ip_associations(facts: Facts, ip: str) -> report.IPGroupAssociation:
    """Groups that the Pod, the ExternalEntities or the Node with this address are in, and those whose blocks have it.

    Raises Invalid for a text that is no address, Unavailable until everything has been listed.
    """
    try:
        address = ip_address(ip)
    except ValueError as error:
        raise Invalid("name", f"IP {ip} is not a valid IP address") from error
    _known(facts)
    text = str(address)
    pod = next((one for one in facts.all(Pod) if text in one.ips), None)
    found = _of_pod(facts, pod)
    if pod is None:
        found += [group for one in facts.all(Entity) if text in one.ips for group in _of(facts, one)]
    found += [group for one in facts.all(ClusterNode) if text in one.ips for group in _of(facts, one)]
    found += _with(facts, packed(text), ipv4=isinstance(address, IPv4Address))
    return report.IPGroupAssociation(metadata=ObjectMetadata(), associated_groups=_references(found))


def _of_pod(facts: Facts, pod: Pod | None) -> list[WholeGroup]:
    return _of(facts, pod) if pod and address_member(pod) else []


def _of(facts: Facts, found: Pod | Entity | ClusterNode | None) -> list[WholeGroup]:
    matches = facts.get(Matches, found.labels) if found else None
    selectors = matches.selectors if matches else ()
    return [group for one in selectors for group in facts.by(WholeGroup, "selector", one)]


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
    once: dict[str, Any] = {one.key: one for one in groups}
    return tuple(
        report.GroupReference(namespace=one.namespace, name=one.name, uid=one.uid)
        for one in sorted(once.values(), key=lambda one: (one.namespace, one.name))
    )
