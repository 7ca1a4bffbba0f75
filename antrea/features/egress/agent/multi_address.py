"""Egress of several addresses: in each family a Pod leaves with one of those that live, by a hash of both.

So when an address comes or goes, only its own Pods change theirs. Upstream has the lists in its API and rejects them.
"""

from __future__ import annotations

from hashlib import blake2b
from itertools import groupby
from typing import TYPE_CHECKING

import msgspec

from antrea.facts.egress import Egress, EgressOwner, EgressPod
from antrea.facts.member import GossipMember
from antrea.facts.node import LocalAddress, ThisNode
from antrea.features.egress.agent.address_report import words_of
from antrea.features.egress.agent.allocated import families_of, unallocated_reason
from antrea.features.egress.agent.owner import NO_MAJORITY, waiting_by
from antrea.features.egress.spec import requested_entries
from antrea.features.framework.address import canonical
from antrea.features.framework.ip_range import usable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from antrea.apis.crd.egress import Egress as EgressObject
    from antrea.engine import Facts


def listed(template: Egress, stored: EgressObject) -> tuple[Egress, ...]:
    """Make a row for each address of the lists; empty without lists."""
    holders = {canonical(row.egress_ip): row.egress_node for row in stored.status.addresses}
    failbacks = {canonical(row.egress_ip): row.failback for row in stored.status.addresses}
    wrong = {canonical(row.egress_ip): words_of(row) for row in stored.status.addresses}
    entries = requested_entries(stored.spec)
    return tuple(
        msgspec.structs.replace(
            template, ip=(ip := usable(text)), invalid="" if ip else text, pool=pool,
            node=holders.get(ip, ""), held=ip if holders.get(ip) else "",
            slot=slot, of=len(entries), waiting=waiting_by(failbacks.get(ip, "")),
            troubles=wrong.get(ip, ()),
        )
        for slot, (text, pool) in enumerate(entries)
    )  # fmt: skip


def egresses_of(facts: Facts, pod: str) -> Iterator[tuple[bool, Egress]]:
    """Yield the address with which a Pod leaves, in each family (True for IPv6): of its oldest Egress, then the first by name.

    That may have no usable address (antrea/features/egress/agent/allocated.py): then nothing leaves.
    """
    names = {row.egress for row in facts.by(EgressPod, "pod", pod)}
    candidates = [
        (version6, row)
        for name in names
        for row in facts.by(Egress, "name", name)
        for version6 in families_of(facts, row)
    ]
    order = sorted(candidates, key=lambda pair: (pair[0], pair[1].precedence))
    for version6, family in groupby(order, key=lambda candidate: candidate[0]):
        rows = [row for _, row in family]
        yield version6, chosen(facts, pod, [row for row in rows if row.name == rows[0].name])


def chosen(facts: Facts, pod: str, rows: Sequence[Egress]) -> Egress:
    """Choose among the addresses of one Egress and family; if none lives, the one that would be chosen if all did."""
    if len(rows) == 1:
        return rows[0]
    usable = [row for row in rows if row.ip and not unallocated_reason(facts, row)]
    return first_for(pod, [row for row in usable if lives(facts, row)] or usable or rows)


def first_for(pod: str, rows: Iterable[Egress]) -> Egress:
    """Return the row with the highest hash with the Pod, so that rows that come or go do not move the Pods of another."""
    return max(rows, key=lambda row: (_weight(pod, row.ip), row.ip))


def lives(facts: Facts, egress: Egress) -> bool:
    """Whether some Node holds it or is to; for a pool, also while that is unknown."""
    if egress.pool:
        owner = facts.get(EgressOwner, egress.key)
        return owner is None or bool(owner.node) or owner.why == NO_MAJORITY
    if facts.get(LocalAddress, egress.ip):
        return True
    node, member = facts.get(ThisNode), facts.get(GossipMember, egress.node) if egress.node else None
    return bool(member and member.alive and node and egress.node != node.name)


def _weight(pod: str, ip: str) -> bytes:
    return blake2b(f"{pod} {ip}".encode(), digest_size=8).digest()
