"""What the controller does with Traceflows next: they get a tag, and end with their results or their time.

parity: pkg/controller/traceflow/controller.go; beyond it, what waits for a tag shows that, and begins in order of age
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec.structs import replace

from antrea.features.traceflow.trace import DEFAULT_TIMEOUT, FAILED, RUNNING, SUCCEEDED, TAGS, TraceRow

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from antrea.apis.crd.traceflow import Observation, TraceflowStatus

ENDS: Final = ("Delivered", "Dropped", "Rejected", "ForwardedOutOfNetwork", "Redirected")
"""Actions after which no other Node sees the packet."""
REST: Final = 1.0
"""Seconds that a tag is not used after a trace had it: its packets may be under way."""
WAITING: Final = f"waiting: {len(TAGS)} Traceflows are running, and no more can at a time"
TIMEOUT: Final = "Traceflow timeout"


class Change(NamedTuple):
    """A Traceflow, and the status that it is to have."""

    row: TraceRow
    status: TraceflowStatus


class Step(NamedTuple):
    """What is to be written, and how many seconds later something is due; None: nothing is."""

    changes: list[Change]
    again: float | None


def next_step(rows: Iterable[TraceRow], resting: Mapping[int, float], now: float) -> Step:
    """`resting`: when each tag was used last; `now` is in seconds since 1970, as they are."""
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
    """The last status of a running Traceflow; None: it goes on."""
    status = row.status
    if status.dataplane_tag not in TAGS or status.dataplane_tag in taken:
        return _failed(
            status, f"status.dataplaneTag {status.dataplane_tag} is no tag, or that of another Traceflow"
        )
    if _complete(row):
        return replace(status, phase=SUCCEEDED, dataplane_tag=0)
    if now >= deadline(row):
        return _failed(status, f"{TIMEOUT}{_missing(row)}")
    return None


def _failed(status: TraceflowStatus, reason: str) -> TraceflowStatus:
    return replace(status, phase=FAILED, reason=reason, dataplane_tag=0)


def _complete(row: TraceRow) -> bool:
    if row.spec.live_traffic and row.spec.dropped_only:
        return bool(row.status.results)
    return _arrived(row.status) and (_sent(row.status) or not row.spec.source.pod)


def _sent(status: TraceflowStatus) -> bool:
    return any(one.component == "SpoofGuard" for result in status.results for one in result.observations)


def _arrived(status: TraceflowStatus) -> bool:
    return any(_ends(one) for result in status.results for one in result.observations)


def _ends(one: Observation) -> bool:
    """What a TrafficControl redirects may come back: then it leaves the switch as `Forwarded`."""
    return one.action in ENDS and (one.action != "Redirected" or one.component == "Forwarding")


def _missing(row: TraceRow) -> str:
    """Which end has not reported; empty with live traffic, of which there may be none."""
    if row.spec.live_traffic:
        return ""
    source = row.spec.source
    if not _sent(row.status):
        return f": the Node of Pod {source.namespace or 'default'}/{source.pod} has not reported the packet"
    for one in _redirected(row.status):
        return f": TrafficControl {one.component_info} has redirected the packet, and it has not come back"
    return ": the packet has left its Node, and no other Node has reported it"


def _redirected(status: TraceflowStatus) -> Iterator[Observation]:
    for result in status.results:
        for one in result.observations:
            if (one.component, one.action) == ("TrafficControl", "Redirected"):
                yield one


def deadline(row: TraceRow) -> float:
    """Seconds since 1970."""
    started = row.status.start_time or row.created
    return _time(started) + (row.spec.timeout or DEFAULT_TIMEOUT)


def _time(text: str) -> float:
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return 0.0


def _stamp(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
