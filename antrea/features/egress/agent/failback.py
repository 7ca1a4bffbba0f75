"""When an address goes back to the better Node: at once, never, or when no connection uses it.

Who has an address sees its connections. Its status shows whether the address waits to go back or is idle; all agents
read that, and so place it alike.
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
"""Type of a condition of ours."""
IN_USE, IDLE = "waits", "idle"
"""Of one of several addresses, which have no condition of their own."""


def stays_at(egress: Egress) -> str:
    """The Node that is to keep its address as long as it can, by the status, which all agents read; empty: none."""
    waits = egress.waits and egress.waiting != "False"
    return egress.node if (egress.stays or waits) and egress.held == egress.ip else ""


def waiting_of(conditions: Collection[Condition]) -> str:
    """True, or False once it is idle, by the status; empty: neither."""
    return next((one.status for one in conditions if one.type == WAITS), "")


def failback_word(facts: Facts, egress: Egress) -> str:
    """The same of one of several addresses, for its entry in the status; empty: it does not wait."""
    owner = facts.get(EgressOwner, egress.key)
    if owner is None or not owner.home:
        return ""
    return IDLE if facts.get(UnusedAddress, egress.ip) else IN_USE


def waiting_by(word: str) -> str:
    """The entry of one of several addresses, in words of the condition."""
    return {IN_USE: "True", IDLE: "False"}.get(word, "")


def failback_conditions(facts: Facts, egress: Egress, owner: EgressOwner) -> tuple[Condition, ...]:
    """Of who has the address: whether that keeps it from a better Node."""
    if not owner.home:
        return (Condition(WAITS),) if egress.waiting else ()
    if facts.get(UnusedAddress, egress.ip):
        told = f"no connection has used the address for {IDLE_SECONDS} s: it goes to Node {owner.home}"
        return (Condition(WAITS, "False", reason="Idle", message=told),)
    told = f"it goes to Node {owner.home} when no connection has used the address for {IDLE_SECONDS} s"
    return (Condition(WAITS, "True", reason="InUse", message=told),)
