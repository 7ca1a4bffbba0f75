"""An Egress of several addresses: of each family a Pod leaves with one of those that live, by a hash of both.

So when an address comes or goes, only its own Pods change theirs. Beyond upstream, which has the lists in its API and refuses them.
"""

from __future__ import annotations

from hashlib import blake2b
from itertools import groupby
from typing import TYPE_CHECKING

import msgspec

from antrea.facts.egress import Egress, EgressOwner, EgressPod
from antrea.facts.member import GossipMember
from antrea.facts.node import LocalAddress, ThisNode
from antrea.features.egress.agent.address_condition import words_of
from antrea.features.egress.agent.allocated import families_of, why_unallocated
from antrea.features.egress.agent.failback import waiting_by
from antrea.features.egress.agent.owner import NO_MAJORITY
from antrea.features.egress.spec import lists
from antrea.features.framework.address import canonical
from antrea.features.framework.ip_range import usable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from antrea.apis.crd.egress import Egress as EgressObject
    from antrea.engine import Facts


def listed(one: Egress, found: EgressObject) -> tuple[Egress, ...]:
    """`one`, for each address of the lists that it has; empty without lists."""
    holders = {canonical(row.egress_ip): row.egress_node for row in found.status.addresses}
    words = {canonical(row.egress_ip): row.failback for row in found.status.addresses}
    wrong = {canonical(row.egress_ip): words_of(row) for row in found.status.addresses}
    entries = lists(found.spec)
    return tuple(
        msgspec.structs.replace(
            one, ip=(ip := usable(text)), invalid="" if ip else text, pool=pool,
            node=holders.get(ip, ""), held=ip if holders.get(ip) else "",
            slot=slot, of=len(entries), waiting=waiting_by(words.get(ip, "")),
            troubles=wrong.get(ip, ()),
        )
        for slot, (text, pool) in enumerate(entries)
    )  # fmt: skip


def egresses_of(facts: Facts, pod: str) -> Iterator[tuple[bool, Egress]]:
    """With which address a Pod leaves, in each family (is it IPv6?): of the oldest Egress for it, then the first by name.

    That may have no address to use (antrea/features/egress/agent/allocated.py): then nothing leaves.
    """
    names = {row.egress for row in facts.by(EgressPod, "pod", pod)}
    found = [
        (version6, row)
        for name in names
        for row in facts.by(Egress, "name", name)
        for version6 in families_of(facts, row)
    ]
    order = sorted(found, key=lambda one: (one[0], one[1].precedence))
    for version6, family in groupby(order, key=lambda one: one[0]):
        rows = [row for _, row in family]
        yield version6, chosen(facts, pod, [row for row in rows if row.name == rows[0].name])


def chosen(facts: Facts, pod: str, rows: Sequence[Egress]) -> Egress:
    """Of one Egress and family; if none of its addresses lives, the one that it would be if all did."""
    if len(rows) == 1:
        return rows[0]
    usable = [row for row in rows if row.ip and not why_unallocated(facts, row)]
    return first_for(pod, [row for row in usable if lives(facts, row)] or usable or rows)


def first_for(pod: str, rows: Iterable[Egress]) -> Egress:
    """The one of the highest hash with the Pod, so that none that leaves or comes moves the Pods of another."""
    return max(rows, key=lambda row: (_weight(pod, row.ip), row.ip))


def lives(facts: Facts, egress: Egress) -> bool:
    """Whether some Node holds it or is to; of a pool, also while that is not known (yet)."""
    if egress.pool:
        owner = facts.get(EgressOwner, egress.key)
        return owner is None or bool(owner.node) or owner.why == NO_MAJORITY
    if facts.get(LocalAddress, egress.ip):
        return True
    node, member = facts.get(ThisNode), facts.get(GossipMember, egress.node) if egress.node else None
    return bool(member and member.alive and node and egress.node != node.name)


def _weight(pod: str, ip: str) -> bytes:
    return blake2b(f"{pod} {ip}".encode(), digest_size=8).digest()
