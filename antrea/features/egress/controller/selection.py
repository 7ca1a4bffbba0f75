"""Pods that an Egress selects in vain: those that follow an older Egress, and those in the host network.

Among the Egresses of one family that select a Pod the oldest counts, then the first by name
(antrea/features/egress/agent/flow.py). Upstream reports neither. Pods with `hostNetwork` are not a fault of the Egress, and
come and go with its selector: an Event reports them, since a status that is written whenever they do conflicts with clients
that update the Egress without a retry.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from antrea.apis.crd.part import Condition
from antrea.apis.egress_address import EGRESSES
from antrea.apis.status import Status
from antrea.engine import Unit
from antrea.facts.cluster import Pod
from antrea.facts.egress import EgressRow, SelectionConflict
from antrea.facts.external_ip import FencedLeadership
from antrea.facts.family import is_ipv6
from antrea.facts.group import Matches
from antrea.features.egress.controller.allocation import all_of
from antrea.features.framework.event import RecordEvent
from antrea.features.grouping.member import EGRESS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from antrea.engine import Facts

OVERLAPPED: Final = "Overlapped"
HOST_NETWORK: Final = "HostNetworkPods"
TYPES: Final = (OVERLAPPED, HOST_NETWORK)
"""Types of conditions beyond upstream's; earlier versions wrote the one on Pods with `hostNetwork`, and it is removed."""
MANAGER: Final = "antrea-controller-selection"
MAX_NAMED: Final = 5


def egress_selection(facts: Facts, labels: str) -> Iterator[SelectionConflict]:
    """Yield the conflicts of all Pods with these labels at once."""
    matching = facts.get(Matches, labels)
    names = dict(matching.group_names).get(EGRESS, ()) if matching else ()
    chosen = (row for name in names if (row := facts.get(EgressRow, name)))
    older = _older(address for row in chosen for address in all_of(facts, row))
    if older and all(pod.host_network for pod in facts.by(Pod, "labels", labels)):
        older = ()
    host = names if names and facts.by(Pod, "host", labels) else ()
    if older or host:
        yield SelectionConflict(labels, older, host)


def _older(rows: Iterable[EgressRow]) -> tuple[tuple[str, str], ...]:
    """Return each Egress that does not count, with the one of its family that does."""
    first: dict[bool, str] = {}
    pairs: dict[tuple[str, str], None] = {}
    for row in sorted((row for row in rows if row.address), key=lambda row: row.precedence):
        counts = first.setdefault(is_ipv6(row.address), row.name)
        if counts != row.name:
            pairs[row.name, counts] = None
    return tuple(pairs)


def selection_status(facts: Facts, egress: EgressRow) -> Iterator[Status | RecordEvent]:
    """Yield the status, unless another replica leads."""
    if facts.get(FencedLeadership) is None or egress.slot:
        return
    rows = facts.by(SelectionConflict, "egress", egress.name)
    older = {counts for row in rows for name, counts in row.older if name == egress.name}
    spaces = {row.labels.partition("/")[0] for row in rows if egress.name in row.host}
    if spaces:
        yield _host_network(egress, spaces)
    conditions = [
        Condition(kind) for kind in TYPES if kind in egress.reported and not (kind == OVERLAPPED and older)
    ]
    if older:
        message = f"Pods that it selects follow an older Egress: {_named(older)}"
        conditions.append(Condition(OVERLAPPED, "True", reason="OlderEgress", message=message))
    if conditions:
        path = f"{EGRESSES}/{egress.name}"
        yield Status(path=path, kind="Egress", manager=MANAGER, conditions=tuple(conditions))


def _host_network(egress: EgressRow, spaces: set[str]) -> RecordEvent:
    """Make the Event, once until it selects none of them."""
    message = (
        "Pods that it selects are in their Node's network and leave with the Node's address, in Namespaces: "
        + _named(spaces)
    )
    return RecordEvent(
        f"{egress.uid} {HOST_NETWORK}", True, "crd.antrea.io/v1beta1", "Egress", egress.name, egress.uid,
        HOST_NETWORK, message, warning=True,
    )  # fmt: skip


def _named(names: set[str]) -> str:
    ordered = sorted(names)
    more = f" and {len(ordered) - MAX_NAMED} more" if len(ordered) > MAX_NAMED else ""
    return ", ".join(ordered[:MAX_NAMED]) + more


UNITS = (
    Unit(Matches, egress_selection, yields=(SelectionConflict,), by=EGRESS),
    Unit(EgressRow, selection_status),
)
