"""Finding of `antctl doctor`: PacketCaptures while the gate is off in agents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from antrea.apis.crd.packet_capture import NO_NODE, STARTED
from antrea.features.framework.doctor import CRD, GatedKind

if TYPE_CHECKING:
    from collections.abc import Mapping


def has_no_node(capture: Mapping[str, Any]) -> bool:
    """Return True if the controller has found that no Node can make this capture, so that no agent has read it."""
    conditions = capture.get("status", {}).get("conditions", ())
    return any(
        (condition.get("type"), condition.get("reason")) == (STARTED, NO_NODE) for condition in conditions
    )


GATED_KINDS = (
    GatedKind(
        f"{CRD}/v1alpha1/packetcaptures",
        *("PacketCapture", "PacketCapture"),
        lambda item: bool(item.get("status", {}).get("conditions")),
        has_no_node,
    ),
)
