"""Feature gate L7FlowExporter.

Upstream removed it in v2.6; we keep it, in the controller, too.
"""

from __future__ import annotations

from antrea.features.framework.gate_row import BOTH, Gate

GATES = (
    Gate(
        "L7FlowExporter",
        BOTH,
        "ALPHA",
        False,
        "alpha v1.15",
        "Add requests of HTTP, TLS and DNS to the flow records (upstream removed it in v2.6).",
        built=True,
        needs="FlowExporter",
    ),
)
