"""Findings of this Node on one address of an Egress: whether it is here, and why no Node has or translates it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from antrea.facts.egress import Egress, EgressMark, EgressOwner
from antrea.facts.node import LocalAddress
from antrea.features.egress.agent.address import HELD_ADDRESSES
from antrea.features.egress.agent.handover_state import USABLE, assigned_here, state_of
from antrea.features.egress.agent.missing import reported_missing, reporting_node
from antrea.features.egress.agent.snat_mark import MAX_AS
from antrea.features.external_ip_pool.duplicate import other_host, sentence

if TYPE_CHECKING:
    from antrea.engine import Facts
    from antrea.facts.node import ThisNode

FULL: Final = (
    f"translates {MAX_AS} Egress IPs already, as many as there are marks: its Pods get no packet out"
)


class AddressReport(NamedTuple):
    """Findings on one address; nothing is set if another Node has it, or reports it."""

    row: Egress
    here: bool
    """Whether this Node has it, and its neighbors know."""
    why: str
    """Why no Node has it or, if it is here, translates it; empty if nothing is known against it."""
    missing: bool
    """Whether no Node has had it for a moment, or may use it."""

    @property
    def is_reported(self) -> bool:
        """Whether this Node writes where it is."""
        return self.here or bool(self.why)


def report_of(facts: Facts, first: Egress, row: Egress, node: ThisNode) -> AddressReport:
    """Make the report; `first` is the first address of the same Egress, often this one."""
    if why := reported_missing(facts, row, node):
        return AddressReport(row, here=False, why=why, missing=True)
    if _is_here(facts, row, node):
        full = "" if facts.get(EgressMark, row.ip) else f"Node {node.name} {FULL}"
        return AddressReport(row, here=True, why=full, missing=False)
    why = why_nowhere(facts, row)
    if not why or not reports_lost(facts, first, node):
        why = "" if facts.get(LocalAddress, row.ip) else _why_not_taken(facts, row, node)
    return AddressReport(row, here=False, why=why, missing=False)


def reports_lost(facts: Facts, first: Egress, node: ThisNode) -> bool:
    """Whether this Node reports for all addresses of an Egress; `first` is the first of them."""
    return reporting_node(facts, first, node.name) == node.name


def why_nowhere(facts: Facts, row: Egress) -> str:
    """Return why no Node is to hold an address of a pool; empty if one is, or it is not placed (yet)."""
    owner = facts.get(EgressOwner, row.key) if row.pool and row.ip else None
    return owner.why if owner and not owner.node else ""


def _is_here(facts: Facts, row: Egress, node: ThisNode) -> bool:
    if not row.ip or facts.get(LocalAddress, row.ip) is None:
        return False
    return not row.pool or state_of(facts, row, node) in USABLE


def _why_not_taken(facts: Facts, row: Egress, node: ThisNode) -> str:
    """Return why an address that this Node is to hold is not here; empty if nothing is known against it."""
    if not assigned_here(facts, row, node):
        return ""
    if mac := other_host(facts, row.key, row.ip):
        return sentence(row.ip, mac)
    why = facts.refusal(HELD_ADDRESSES, row.key)
    return f"Node {node.name} cannot take {row.ip}: {why}" if why else ""
