"""Definitions that agent, controller and admission share for an Egress: its lists, and types of conditions that one program
writes and another reads.
"""

from __future__ import annotations

from itertools import zip_longest
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Collection

    from antrea.apis.crd.egress import EgressSpec
    from antrea.apis.crd.part import Condition

IP_ASSIGNED: Final = "IPAssigned"
"""Type of a condition that agents write, as upstream's."""
ANSWERS: Final = "GatewayAnswers"
"""Type of a condition beyond upstream's, of Egresses and pools: present while the gateway of a VLAN does not answer."""
KILO: Final = 1000
MAX_KILOBITS: Final = 2**32 - 1
"""Maximum rate that a meter of the switch can count."""


def requested_entries(spec: EgressSpec) -> list[tuple[str, str]]:
    """Return address and pool of each entry; one of them may be empty. An Egress of one address has none."""
    return list(zip_longest(spec.egress_ips, spec.external_ip_pools, fillvalue=""))


def unanswered(conditions: Collection[Condition]) -> str:
    """Return the gateway without an answer that a status names; empty if none."""
    return next(
        (
            condition.message
            for condition in conditions
            if condition.type == ANSWERS and condition.status == "False"
        ),
        "",
    )
