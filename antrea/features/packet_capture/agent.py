"""PacketCapture in the agent: the Node of the captured Pod makes the file, and writes the status.

parity: pkg/agent/packetcapture/packetcapture_controller.go syncPacketCapture, updateStatus
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from antrea.apis.crd.packet_capture import COMPLETE, NOT_STARTED, STARTED, UPLOADED, PacketCapture
from antrea.apis.crd.part import Condition
from antrea.apis.status import Status
from antrea.engine import Unit
from antrea.facts.node import ThisNode
from antrea.facts.ovs import PodInterface
from antrea.features.framework.admission import Watched
from antrea.features.framework.agent_feature import AgentFeature, RealizedPipeline
from antrea.features.packet_capture.capture import (
    PATH,
    CaptureFile,
    CaptureProgress,
    CaptureRequest,
    capture_point,
    capture_request,
)
from antrea.features.packet_capture.drop import capture_meter, copy_flow, dropped_packet_flows
from antrea.openflow.cookie import Category

if TYPE_CHECKING:
    from collections.abc import Iterator

    from antrea.engine import Facts


def capture_file(facts: Facts, request: CaptureRequest) -> Iterator[CaptureFile]:
    """Yield the file on the Node that has the Pod when the capture begins, or that has begun it; once it is complete, only for
    its removal.
    """
    progress = facts.get(CaptureProgress, request.name)
    begun = progress is not None and progress.uid == request.uid
    point = capture_point(request.spec)
    here = point is not None and bool(facts.by(PodInterface, "pod", f"{point.namespace}/{point.name}"))
    if begun or request.complete or here:
        yield CaptureFile(request.name, request.uid, request.spec, request.any_host_key, request.complete)


def capture_status(facts: Facts, request: CaptureRequest) -> Iterator[Status]:
    """Yield the status of a capture of this Node."""
    progress = facts.get(CaptureProgress, request.name)
    node = facts.get(ThisNode)
    if progress is None or progress.uid != request.uid or node is None:
        return
    yield Status(
        path=f"{PATH}/{request.name}",
        kind="PacketCapture",
        manager=f"antrea-agent-{node.name}",
        fields=(("numberCaptured", progress.captured), ("filePath", progress.path)),
        conditions=tuple(conditions(progress)),
    )


def conditions(progress: CaptureProgress) -> Iterator[Condition]:
    """Type, status, reason and message as upstream's."""
    if progress.phase == "Pending":
        reason = NOT_STARTED if progress.failure else "Pending"
        yield Condition(STARTED, "False", reason=reason, message=progress.failure)
        return
    yield Condition(STARTED, "True", reason="Started")
    if progress.phase == "Started":
        yield Condition(COMPLETE, "False", reason="Progressing")
        return
    reason = "Timeout" if progress.timed_out else "Failed" if progress.failure else "Succeed"
    yield Condition(COMPLETE, "True", reason=reason, message=progress.failure)
    if progress.upload:
        done = "True" if progress.upload == "Succeed" else "False"
        yield Condition(UPLOADED, done, reason=progress.upload, message=progress.upload_failure)


FEATURES = (
    AgentFeature(
        name="PacketCapture",
        gate="PacketCapture",
        watched=(Watched(PATH, PacketCapture, CaptureRequest, capture_request),),
        units=(
            Unit(CaptureRequest, capture_file),
            Unit(CaptureRequest, capture_status),
            Unit(RealizedPipeline, capture_meter),
            Unit(RealizedPipeline, copy_flow),
            Unit(CaptureRequest, dropped_packet_flows),
        ),
        category=Category.TRACEFLOW,
        sweep_after=(CaptureRequest,),
    ),
)
