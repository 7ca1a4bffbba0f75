"""Rows of Traceflows for agents and controller.

parity: pkg/apis/crd/v1beta1/types.go, pkg/controller/traceflow/controller.go (tags)
"""

from __future__ import annotations

from typing import Final

from antrea.apis.crd.traceflow import Traceflow, TraceflowSpec, TraceflowStatus
from antrea.facts.fact import Fact
from antrea.features.framework.admission import Watched

TRACEFLOWS: Final = "/apis/crd.antrea.io/v1beta1/traceflows"
GATE: Final = "Traceflow"
RUNNING, SUCCEEDED, FAILED = "Running", "Succeeded", "Failed"
TAGS: Final = tuple(range(7, 60, 4))
"""Values of DSCP for traced packets: those of pool 2 of RFC 2474, for local use, without 3 and 63."""
DEFAULT_TIMEOUT: Final = 20
"""Seconds."""


class TraceRow(Fact, frozen=True):
    """A Traceflow, whatever its state."""

    name: str
    uid: str
    version: str
    """Its resourceVersion."""
    created: str
    spec: TraceflowSpec
    status: TraceflowStatus

    @property
    def key(self) -> str:
        return self.name


class RunningTrace(Fact, frozen=True):
    """A Traceflow that has a tag and is not over."""

    name: str
    uid: str
    tag: int
    spec: TraceflowSpec
    reported: tuple[str, ...] = ()
    """Nodes whose results it has."""

    @property
    def key(self) -> str:
        return self.name

    @property
    def ipv6(self) -> bool:
        """The family of its packet."""
        return self.spec.packet.ipv6_header is not None

    @property
    def timeout(self) -> int:
        """Seconds."""
        return self.spec.timeout or DEFAULT_TIMEOUT

    @property
    def receiver_only(self) -> bool:
        """Whether only the destination is known: packets are traced from where they get there."""
        return not self.spec.source.pod

    @property
    def dropped_only(self) -> bool:
        """Whether only a packet that is dropped counts."""
        return self.spec.live_traffic and self.spec.dropped_only

    @property
    def pod(self) -> str:
        """namespace/name of the Pod at which it begins."""
        at = self.spec.destination if self.receiver_only else self.spec.source
        return f"{at.namespace or 'default'}/{at.pod}"


def trace_row(stored: Traceflow) -> TraceRow:
    """Make the row of any object."""
    meta = stored.metadata
    return TraceRow(
        meta.name, meta.uid, meta.resource_version, meta.creation_timestamp, stored.spec, stored.status
    )


def running_trace(stored: Traceflow) -> RunningTrace | None:
    """Make the row; None if it has not begun, or is over."""
    status = stored.status
    if status.phase != RUNNING or status.dataplane_tag not in TAGS:
        return None
    reported = tuple(dict.fromkeys(result.node for result in status.results))
    return RunningTrace(
        stored.metadata.name, stored.metadata.uid, status.dataplane_tag, stored.spec, reported
    )


ALL_TRACES = Watched(TRACEFLOWS, Traceflow, TraceRow, trace_row)
RUNNING_TRACES = Watched(TRACEFLOWS, Traceflow, RunningTrace, running_trace)
