"""Findings of `antctl doctor`: captures that cannot begin, ended early or have no file; captures while the gate is off in agents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from antrea.apis.crd.packet_capture import NO_NODE, STARTED
from antrea.features.framework.doctor import (
    CRD,
    SHOW_GATES,
    GatedKind,
    ObjectCheck,
    ObjectFinding,
    conditions_of,
    message_of,
    with_status,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

PATH = f"{CRD}/v1alpha1/packetcaptures"


def has_no_node(capture: Mapping[str, Any]) -> bool:
    """Return True if the controller has found that no Node can make this capture, so that no agent has read it."""
    conditions = capture.get("status", {}).get("conditions", ())
    return any(
        (condition.get("type"), condition.get("reason")) == (STARTED, NO_NODE) for condition in conditions
    )


def capture_findings(item: Mapping[str, Any]) -> Iterator[ObjectFinding]:
    """Yield why a capture cannot begin, ended early, or has no file at the server."""
    conditions = conditions_of(item)
    if not conditions:
        text = "nothing acts on it: no Node with the feature gate PacketCapture has its Pod"
        yield ObjectFinding("warning", text, SHOW_GATES, waits=True)
    if late := with_status(conditions, STARTED, "False"):
        no_agent = late.get("reason") == NO_NODE
        yield ObjectFinding("warning", f"has not begun: {message_of(late)}", waits=no_agent)
    ended = with_status(conditions, "PacketCaptureComplete", "True")
    if ended.get("reason") == "Failed":
        yield ObjectFinding("warning", f"ended early: {message_of(ended)}")
    if kept := with_status(conditions, "PacketCaptureFileUploaded", "False"):
        yield ObjectFinding("warning", f"its file is not at the file server: {message_of(kept)}")


OBJECT_CHECKS = (ObjectCheck("captures", PATH, "PacketCapture", "packetcaptures", capture_findings),)
GATED_KINDS = (
    GatedKind(
        PATH,
        *("PacketCapture", "PacketCapture"),
        lambda item: bool(item.get("status", {}).get("conditions")),
        has_no_node,
    ),
)
