"""How many bundles of flows the switch took or refused, and how long each was under way.

parity: pkg/agent/openflow/operations/operations.go (one operation for each bundle and kind; ours never modifies: an add
replaces what stands)
"""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING, TypeVar

from antrea.outside.log.metrics import Histogram, Metric, Sample

if TYPE_CHECKING:
    from collections.abc import Awaitable, Collection

T = TypeVar("T")
KINDS = ("add", "modify", "delete")
BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
"""Upper ends in milliseconds, as upstream's."""
_BY = "partitioned by operation type (add, modify and delete)."
COUNT = Metric("antrea_agent_ovs_flow_ops_count", "counter", "ALPHA", f"Number of OVS flow operations, {_BY}")
ERRORS = Metric(
    "antrea_agent_ovs_flow_ops_error_count", "counter", "ALPHA", f"Number of OVS flow operation errors, {_BY}"
)
LATENCY = Metric(
    "antrea_agent_ovs_flow_ops_latency_milliseconds",
    "histogram",
    "ALPHA",
    f"The latency of OVS flow operations, {_BY}",
)


class FlowOperations:
    """Counts since the agent started."""

    def __init__(self) -> None:
        self._done: Counter[str] = Counter()
        self._failed: Counter[str] = Counter()
        self._milliseconds = {kind: Histogram(BOUNDS) for kind in KINDS}

    async def measured(self, kinds: Collection[str], bundle: Awaitable[T | None]) -> T | None:
        """The outcome of `bundle`, which has operations of these kinds; anything but None is an error."""
        began, failed = time.monotonic(), True
        try:
            outcome = await bundle
            failed = outcome is not None
        finally:
            self._note(kinds, (time.monotonic() - began) * 1000, failed=failed)
        return outcome

    def _note(self, kinds: Collection[str], milliseconds: float, *, failed: bool) -> None:
        for kind in kinds:
            (self._failed if failed else self._done)[kind] += 1
            self._milliseconds[kind].note(milliseconds, int(milliseconds))

    def text(self) -> str:
        """In Prometheus' format."""
        return "".join(
            (
                COUNT.text(Sample(self._done[kind], {"operation": kind}) for kind in KINDS),
                ERRORS.text(Sample(self._failed[kind], {"operation": kind}) for kind in KINDS),
                LATENCY.text(
                    sample
                    for kind in KINDS
                    for sample in self._milliseconds[kind].samples({"operation": kind})
                ),
            )
        )
