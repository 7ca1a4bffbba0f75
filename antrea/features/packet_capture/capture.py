"""Rows and entries of PacketCapture: requests, files of a Node, and their progress."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, ClassVar, Final, Literal

import msgspec

from antrea.apis.crd.packet_capture import COMPLETE, STARTED, PacketCapture, PacketCaptureSpec
from antrea.facts.fact import Fact
from antrea.features.framework.file_server import accepts_any_host_key
from antrea.rank import Rank

if TYPE_CHECKING:
    from antrea.apis.crd.packet_capture import PodReference

PATH = "/apis/crd.antrea.io/v1alpha1/packetcaptures"
SUFFIX: Final = ".pcapng"
MAX_STEM: Final = 240
"""Maximum number of characters of a file's name before the suffix: an object's name may be longer than a file's, which has 255.
"""


class CaptureRequest(Fact, frozen=True):
    """A PacketCapture as the user wrote it."""

    name: str
    uid: str
    spec: PacketCaptureSpec
    complete: bool = False
    """Whether by its status nothing more is captured."""
    begun: bool = False
    """Whether by its status a Node captures, or has captured."""
    any_host_key: bool = False
    """Whether its file may go to an SFTP server of any key, where the spec has none."""

    @property
    def key(self) -> str:
        return self.name


class CaptureProgress(Fact, frozen=True):
    """Progress of a capture on this Node; the part writes it, and it stays until the PacketCapture is deleted."""

    name: str
    uid: str
    phase: Literal["Pending", "Started", "Complete"] = "Pending"
    captured: int = 0
    path: str = ""
    """Place of the file in the status; empty without a packet."""
    failure: str = ""
    timed_out: bool = False
    upload: Literal["", "Succeed", "Failed"] = ""
    upload_failure: str = ""

    @property
    def key(self) -> str:
        return self.name


class CaptureFile(msgspec.Struct, frozen=True):
    """An entry: the file of a capture on this Node. Putting it begins the capture, dropping it ends it and removes the file."""

    name: str
    uid: str
    spec: PacketCaptureSpec
    any_host_key: bool
    complete: bool
    """Whether nothing is left to capture, on any Node."""

    rank: ClassVar[int] = Rank.REPORT
    category: ClassVar[int] = 0

    @property
    def key(self) -> str:
        return self.name


def capture_request(stored: PacketCapture) -> CaptureRequest:
    """Make the row of an object."""
    true = {condition.type for condition in stored.status.conditions if condition.status == "True"}
    meta = stored.metadata
    any_host_key = accepts_any_host_key(meta.annotations)
    return CaptureRequest(
        meta.name, meta.uid, stored.spec, COMPLETE in true, begun=STARTED in true, any_host_key=any_host_key
    )


def file_name(name: str) -> str:
    """The name of the file of the capture of this name; one that is too long for a file ends in its hash."""
    if len(name) > MAX_STEM:
        mark = hashlib.sha256(name.encode()).hexdigest()[:16]
        name = f"{name[: MAX_STEM - len(mark) - 1]}-{mark}"
    return name + SUFFIX


def capture_point(spec: PacketCaptureSpec) -> PodReference | None:
    """Return the Pod at whose interface packets are captured: without `capturePoint` the source, if that is a Pod."""
    if spec.capture_point is None:
        return spec.source.pod or spec.destination.pod
    return (spec.source if spec.capture_point == "Source" else spec.destination).pod
