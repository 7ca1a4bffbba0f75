"""Findings of `antctl doctor`: Egresses whose Pods have no way out, or whose address another host answers for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from antrea.features.framework.doctor import (
    CRD,
    ObjectCheck,
    ObjectFinding,
    conditions_of,
    message_of,
    with_status,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


def egress_findings(item: Mapping[str, Any]) -> Iterator[ObjectFinding]:
    """Yield the faults that the conditions of an Egress name."""
    conditions, spec = conditions_of(item), item.get("spec", {})
    several = bool(spec.get("egressIPs") or spec.get("externalIPPools"))
    if lacks := with_status(conditions, "IPAllocated", "False") or with_status(
        conditions, "IPAssigned", "False"
    ):
        outcome = "lacks an address" if several else "its Pods get no packet out"
        yield ObjectFinding("warning" if several else "error", f"{outcome}: {message_of(lacks)}")
    if shared := with_status(conditions, "AddressConflict", "True"):
        yield ObjectFinding("error", f"another host has its address: {message_of(shared)}")
    if silent := with_status(conditions, "GatewayAnswers", "False"):
        yield ObjectFinding("warning", f"the gateway of its pool is silent: {message_of(silent)}")
    if limit := with_status(conditions, "BandwidthLimited", "False"):
        yield ObjectFinding("warning", f"its bandwidth is not limited: {message_of(limit)}")
    if uncovered := with_status(conditions, "ConnectionsSurvive", "False"):
        yield ObjectFinding("warning", f"not all connections outlive its gateway: {message_of(uncovered)}")


OBJECT_CHECKS = (ObjectCheck("egresses", f"{CRD}/v1beta1/egresses", "Egress", "egresses", egress_findings),)
