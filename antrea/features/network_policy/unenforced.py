"""Rules that are not enforced as they are written, because they have no room or the switch refused a part of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from antrea.facts.lacking import Lacking
from antrea.facts.ovs import PodInterface
from antrea.features.network_policy.peer_class import SharedAddress
from antrea.features.network_policy.place import has_place
from antrea.features.network_policy.rule import Conjunction
from antrea.features.network_policy.sent import SentAddressMember, SentAppliedMember

if TYPE_CHECKING:
    from collections.abc import Callable

    from antrea.engine import Facts
    from antrea.features.network_policy.rule import Rule

FULL = "no priority is free"


class Missing(NamedTuple):
    """What was refused, and why: of rules by name, of interfaces, of groups that rules are for, of groups of peers, of Services."""

    rules: dict[str, str]
    interfaces: dict[str, str]
    applied: dict[str, str]
    peers: dict[str, str]
    services: dict[str, str]


def missing(facts: Facts) -> Missing:
    """All there is: mostly nothing."""
    found = Missing({}, {}, {}, {}, {})
    note: dict[str, Callable[[Facts, Missing, Lacking], None]] = {
        "conjunction_flows": _conjunction,
        "target_flows": _target,
        "peer_flows": _peer,
        "class_flows": _class,
        "service_flows": _service,
    }
    for row in facts.all(Lacking):
        if row.unit in note:
            note[row.unit](facts, found, row)
    return found


def _conjunction(facts: Facts, found: Missing, row: Lacking) -> None:
    if (known := facts.get(Conjunction, row.row)) is not None:
        found.rules[known.rule] = row.why


def _target(facts: Facts, found: Missing, row: Lacking) -> None:
    found.interfaces[row.row] = row.why
    if (pod := facts.get(PodInterface, row.row)) is not None:
        found.applied.update((one.group, row.why) for one in facts.by(SentAppliedMember, "pod", pod.pod))


def _peer(facts: Facts, found: Missing, row: Lacking) -> None:
    if (member := facts.get(SentAddressMember, row.row)) is not None:
        found.peers[member.group] = row.why


def _class(facts: Facts, found: Missing, row: Lacking) -> None:
    known = facts.by(SharedAddress, "end", row.row)
    found.peers.update((one.named.rpartition(" ")[0], row.why) for one in known)


def _service(_: Facts, found: Missing, row: Lacking) -> None:
    found.services[row.row] = row.why


def why_not(facts: Facts, lacks: Missing, rule: Rule, interface: str | None = None) -> str:
    """Why `rule` is not enforced, for one Pod's interface or for any Pod; empty if it is."""
    if not has_place(facts, rule):
        return FULL
    if why := lacks.rules.get(rule.name):
        return why
    here = [lacks.interfaces.get(interface)] if interface else map(lacks.applied.get, rule.applied)
    others = (*map(lacks.peers.get, rule.peer.address_groups), *map(lacks.services.get, rule.to_services))
    return next(filter(None, (*here, *others)), "")
