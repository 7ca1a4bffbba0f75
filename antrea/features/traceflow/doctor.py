"""Findings of `antctl doctor`: traces that failed, or that nothing has read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from antrea.features.framework.doctor import CRD, SHOW_GATES, ObjectCheck, ObjectFinding

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


def traceflow_findings(item: Mapping[str, Any]) -> Iterator[ObjectFinding]:
    """Yield why a trace has no result."""
    status = item.get("status", {})
    phase, reason = status.get("phase", ""), status.get("reason", "")
    if phase == "Failed":
        yield ObjectFinding("warning", f"failed: {reason}")
    elif not phase and not reason:
        text = "nothing acts on it: antrea-controller has not read it"
        yield ObjectFinding("warning", text, SHOW_GATES, waits=True)


OBJECT_CHECKS = (
    ObjectCheck("traceflows", f"{CRD}/v1beta1/traceflows", "Traceflow", "traceflows", traceflow_findings),
)
