"""PacketCapture in the controller: the reason why no Node makes a capture; what a Node makes is reported by its agent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from antrea.apis.crd.packet_capture import NO_NODE, STARTED, PacketCapture
from antrea.apis.crd.part import Condition
from antrea.apis.status import Status
from antrea.engine import Unit
from antrea.facts.cluster import Pod
from antrea.facts.external_ip import FencedLeadership
from antrea.features.framework.admission import Watched
from antrea.features.framework.controller_feature import ControllerFeature
from antrea.features.framework.disabled import MANAGER
from antrea.features.packet_capture.capture import (
    PATH,
    CaptureRequest,
    capture_point,
    capture_request,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from antrea.engine import Facts


def captureless_status(facts: Facts, request: CaptureRequest) -> Iterator[Status]:
    """Yield the reason why no agent acts on a capture, in the replica that leads."""
    if facts.get(FencedLeadership) is None or request.begun or request.complete:
        return
    if why := _obstacle(facts, request):
        condition = Condition(STARTED, "False", reason=NO_NODE, message=why)
        path = f"{PATH}/{request.name}"
        yield Status(path=path, kind="PacketCapture", manager=MANAGER, conditions=(condition,))


def _obstacle(facts: Facts, request: CaptureRequest) -> str:
    """Return why no Node captures it now; empty if one does, or will."""
    point = capture_point(request.spec)
    if point is None:
        return "neither source nor destination is a Pod, where packets could be captured"
    pod = facts.get(Pod, f"{point.namespace}/{point.name}")
    if pod is None:
        return f"Pod {point.namespace}/{point.name} does not exist; the capture starts when it is created"
    if pod.host_network:
        return f"Pod {pod.key} is in the network of its Node, where packets are not captured"
    return "" if pod.node else f"Pod {pod.key} has no Node yet"


FEATURES = (
    ControllerFeature(
        name="PacketCapture",
        watched=(Watched(PATH, PacketCapture, CaptureRequest, capture_request, optional=True),),
        units=(Unit(CaptureRequest, captureless_status),),
    ),
)
