"""What is wrong with one of several addresses: its Node reports it in the address's entry, and one Node in conditions of the Egress.

Several Nodes may have addresses of an Egress, and a condition is one for all of them. So each Node writes what it has found where
no other writes, and the reporting Node gathers it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from antrea.apis.crd.part import Condition
from antrea.features.egress.duplicate_address import CONFLICT
from antrea.features.egress.gateway_reachability import ANSWERS, silence
from antrea.features.external_ip_pool.duplicate import other_host, sentence

if TYPE_CHECKING:
    from collections.abc import Sequence

    from antrea.apis.crd.egress import AddressStatus
    from antrea.engine import Facts
    from antrea.facts.egress import Egress

Words = tuple[tuple[str, str], ...]
"""Fields of an entry with their values."""
CONFLICT_FIELD: Final = "conflict"
SILENCE_FIELD: Final = "unanswered"


def words_of(entry: AddressStatus) -> Words:
    """The fault that an entry of the status names."""
    return _words(entry.conflict, entry.unanswered)


def troubles(facts: Facts, egress: Egress, node: str) -> Words:
    """What the Node that has the address, or is to hold it, reports of it."""
    mac = other_host(facts, egress.key, egress.ip)
    return _words(sentence(egress.ip, mac) if mac else "", silence(facts, egress, node))


def _words(conflict: str, unanswered: str) -> Words:
    """Empty texts count for nothing."""
    return tuple(
        (field, text) for field, text in ((CONFLICT_FIELD, conflict), (SILENCE_FIELD, unanswered)) if text
    )


def shared_conditions(rows: Sequence[Egress]) -> tuple[Condition, ...]:
    """Of all addresses of one Egress, by their entries; of the one reporting Node."""
    first = rows[0]
    kinds = (
        (CONFLICT_FIELD, Condition(CONFLICT, "True", reason="OtherHost"), first.conflicts),
        (SILENCE_FIELD, Condition(ANSWERS, "False", reason="NoAnswer"), first.unanswered),
    )
    found = []
    for field, condition, told in kinds:
        texts = dict.fromkeys(text for row in rows for name, text in row.troubles if name == field)
        if texts:
            found.append(
                Condition(condition.type, condition.status, reason=condition.reason, message="; ".join(texts))
            )
        elif told:
            found.append(Condition(condition.type))
    return tuple(found)
