"""Next steps of the controller for Traceflows: they get a tag, and end with their results or their time.

parity: pkg/controller/traceflow/controller.go; beyond it, a Traceflow that waits for a tag shows that, and they begin in order
of age
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec.structs import replace

from antrea.apis.crd.traceflow import DIVERSION
from antrea.features.traceflow.trace import DEFAULT_TIMEOUT, FAILED, RUNNING, SUCCEEDED, TAGS, TraceRow

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from antrea.apis.crd.traceflow import Observation, TraceflowStatus

ENDS: Final = ("Delivered", "Dropped", "Rejected", "ForwardedOutOfNetwork", "Redirected")
"""Actions after which no other Node sees the packet."""
REST: Final = 1.0
"""Seconds for which a tag is not reused after a trace: its packets may be in transit."""
WAITING: Final = f"waiting: {len(TAGS)} Traceflows are running, and no more can at a time"
TIMEOUT: Final = "Traceflow timeout"
MAX_AHEAD: Final = 300.0
"""Seconds by which a start may be in the future, by the clock of another leader; one further ahead is of a clock that was set back."""


class Change(NamedTuple):
    """A Traceflow, and the status that it is to have."""

    row: TraceRow
    status: TraceflowStatus


class Step(NamedTuple):
    """Changes to write, and the seconds until something is due; None if nothing is."""

    changes: list[Change]
    again: float | None


def next_step(rows: Iterable[TraceRow], resting: Mapping[int, float], now: float) -> Step:
    """Compute the next step; `resting` has the last use of each tag; `now` is in seconds since 1970, as they are."""
    changes: list[Change] = []
    due: list[float] = []
    taken: set[int] = set()
    waiting: list[TraceRow] = []
    for row in sorted(rows, key=lambda row: (row.created, row.name)):
        if row.status.phase == RUNNING:
            if (status := ended(row, now, taken)) is not None:
                changes.append(Change(row, status))
            else:
                due.append(deadline(row))
            taken.add(row.status.dataplane_tag)
        elif not row.status.phase:
            waiting.append(row)
    free = [tag for tag in TAGS if tag not in taken]
    rested = sorted(
        (tag for tag in free if resting.get(tag, 0.0) <= now - REST), key=lambda tag: resting.get(tag, 0.0)
    )
    due += [resting[tag] + REST for tag in free if tag not in rested] if waiting else []
    for row, tag in zip(waiting, rested, strict=False):
        started = {"phase": RUNNING, "start_time": _stamp(now), "dataplane_tag": tag, "reason": ""}
        changes.append(Change(row, replace(row.status, **started)))
    others = (row for row in waiting[len(rested) :] if row.status.reason != WAITING)
    changes += (Change(row, replace(row.status, reason=WAITING)) for row in others)
    return Step(changes, max(0.0, min(due) - now) if due else None)


def ended(row: TraceRow, now: float, taken: set[int]) -> TraceflowStatus | None:
    """Return the last status of a running Traceflow; None if it continues."""
    status = row.status
    if status.dataplane_tag not in TAGS or status.dataplane_tag in taken:
        return _failed(
            status, f"status.dataplaneTag {status.dataplane_tag} is not a tag, or that of another Traceflow"
        )
    if _complete(row):
        return replace(status, phase=SUCCEEDED, dataplane_tag=0)
    if not 0 < deadline(row) - now <= _seconds(row) + MAX_AHEAD:
        return _failed(status, f"{TIMEOUT}{_missing(row)}")
    return None


def _failed(status: TraceflowStatus, reason: str) -> TraceflowStatus:
    return replace(status, phase=FAILED, reason=reason, dataplane_tag=0)


def _complete(row: TraceRow) -> bool:
    if row.spec.live_traffic and row.spec.dropped_only:
        return bool(row.status.results)
    return _arrived(row.status) and (_sent(row.status) or not row.spec.source.pod)


def _sent(status: TraceflowStatus) -> bool:
    return any(
        observation.component == "SpoofGuard"
        for result in status.results
        for observation in result.observations
    )


def _arrived(status: TraceflowStatus) -> bool:
    return any(_ends(observation) for result in status.results for observation in result.observations)


def _ends(observation: Observation) -> bool:
    """Whether the trace ends; redirected packets may come back: the last leave the switch as `Forwarding`."""
    return observation.action in ENDS and (
        observation.action != "Redirected" or observation.component == "Forwarding"
    )


def _missing(row: TraceRow) -> str:
    """Return which end has not reported; empty with live traffic, of which there may be none."""
    if row.spec.live_traffic:
        return ""
    source = row.spec.source
    if not _sent(row.status):
        return f": the Node of Pod {source.namespace or 'default'}/{source.pod} has not reported the packet"
    for observation in _redirected(row.status):
        return (
            f": {DIVERSION} {observation.component_info} has redirected the packet, and it has not come back"
        )
    return ": the packet has left its Node, and no other Node has reported it"


def _redirected(status: TraceflowStatus) -> Iterator[Observation]:
    for result in status.results:
        for observation in result.observations:
            if (observation.component, observation.action) == (DIVERSION, "Redirected"):
                yield observation


def deadline(row: TraceRow) -> float:
    """Return the deadline in seconds since 1970."""
    started = row.status.start_time or row.created
    return _time(started) + _seconds(row)


def _seconds(row: TraceRow) -> float:
    return row.spec.timeout or DEFAULT_TIMEOUT


def _time(text: str) -> float:
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return 0.0


def _stamp(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
