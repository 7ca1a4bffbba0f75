"""Failback of an address to the better Node: immediate, never, or when no connection uses it.

The holder sees the connections of an address. Its status shows whether the address waits to go back or is idle; all agents read
that, and so place it alike.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from antrea.apis.crd.part import Condition
from antrea.facts.egress import EgressOwner, UnusedAddress
from antrea.features.external_ip_pool.pool import IDLE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Collection

    from antrea.engine import Facts
    from antrea.facts.egress import Egress

WAITS: Final = "FailbackWaits"
"""Type of a condition beyond upstream's."""
IN_USE, IDLE = "waits", "idle"
"""Values of one of several addresses, which have no condition of their own."""


def stays_at(egress: Egress) -> str:
    """Return the Node that is to keep its address as long as it can, by the status, which all agents read; empty if none."""
    waits = egress.waits and egress.waiting != "False"
    return egress.node if (egress.stays or waits) and egress.held == egress.ip else ""


def waiting_of(conditions: Collection[Condition]) -> str:
    """Return True, or False once it is idle, by the status; empty if neither."""
    return next((condition.status for condition in conditions if condition.type == WAITS), "")


def failback_word(facts: Facts, egress: Egress) -> str:
    """Return the value of one of several addresses, for its entry in the status; empty if it does not wait."""
    owner = facts.get(EgressOwner, egress.key)
    if owner is None or not owner.home:
        return ""
    return IDLE if facts.get(UnusedAddress, egress.ip) else IN_USE


def waiting_by(word: str) -> str:
    """Return the status of the condition for an entry's value."""
    return {IN_USE: "True", IDLE: "False"}.get(word, "")


def failback_conditions(facts: Facts, egress: Egress, owner: EgressOwner) -> tuple[Condition, ...]:
    """Return the condition on whether connections keep the address from a better Node; for the holder."""
    if not owner.home:
        return (Condition(WAITS),) if egress.waiting else ()
    if facts.get(UnusedAddress, egress.ip):
        message = f"no connection has used the address for {IDLE_SECONDS} s: it goes to Node {owner.home}"
        return (Condition(WAITS, "False", reason="Idle", message=message),)
    message = f"it goes to Node {owner.home} when no connection has used the address for {IDLE_SECONDS} s"
    return (Condition(WAITS, "True", reason="InUse", message=message),)
