"""Errors of probes of neighbours. Those of the link mean that no neighbour answers; all others are failures of this Node.

The others, such as too many open files, are counted, and each is logged once.
"""

from __future__ import annotations

import errno
import os
from collections import Counter
from typing import Final

from antrea.outside.log import klog
from antrea.outside.log.metrics import Metric, Sample

log = klog.logger(__name__)

FAILED_PROBES: Final = Metric(
    "antrea_agent_neighbour_probe_failure_count",
    "counter",
    "ALPHA",
    "Number of probes of neighbours that this Node failed to make, by error.",
)
_LINK_ERRORS: Final = frozenset({errno.ENODEV, errno.ENETDOWN, errno.ENXIO})
_counts: Counter[str] = Counter()


def is_link_down(error: OSError) -> bool:
    """Whether the device is down, or has gone."""
    return error.errno in _LINK_ERRORS


def note_failed_probe(error: OSError) -> None:
    """Count an error of this Node."""
    number = error.errno or 0
    name = errno.errorcode.get(number, str(number))
    _counts[name] += 1
    if _counts[name] == 1:
        log.warning(
            "Failed to probe neighbours; the last results stay in effect, later failures are only counted",
            err=os.strerror(number), metric=FAILED_PROBES.name,
        )  # fmt: skip


def failed_probe_metrics() -> str:
    """Metrics in Prometheus' format; empty while no probe has failed."""
    counts = sorted(_counts.items())
    return FAILED_PROBES.text(Sample(count, {"error": name}) for name, count in counts) if counts else ""
