"""Plan and reports of a capturing process: lines of JSON on its standard input and output."""

from __future__ import annotations

import msgspec

from antrea.host.bpf import Instruction


class CaptureLimits(msgspec.Struct, frozen=True):
    """How much a capture may take of its Node."""

    file_bytes: int = 1 << 30
    free_bytes: int = 64 << 20
    """Bytes that have to stay free on the disk."""
    buffer_bytes: int = 16 << 20
    """Kernel memory for packets that wait to be written, in bytes."""


class CaptureOrder(msgspec.Struct, frozen=True):
    """One capture, the first line; the process ends early when its standard input is closed."""

    device: str
    path: str
    """The file, which is there and empty."""
    program: tuple[Instruction, ...]
    """BPF program that filters packets."""
    number: int
    """Packets after which it is complete; less than 1: as many as come in time."""
    seconds: float
    snap_length: int = 65536
    report_seconds: float = 10.0
    """Between two reports, of which the first one comes with the first packet."""
    limits: CaptureLimits = CaptureLimits()


class DroppedPacket(msgspec.Struct, frozen=True):
    """A packet of the Pod that the switch has dropped: lines that follow the order. The capture takes those that fit its filter."""

    frame: bytes
    reason: str


class CaptureReport(msgspec.Struct, frozen=True):
    """How far it is; the last line is `done`."""

    captured: int = 0
    refused: int = 0
    """Packets that the switch has dropped, and that are in the file with the reason."""
    dropped: int = 0
    """Packets that fitted the filter, and came faster than they could be written."""
    done: bool = False
    timed_out: bool = False
    why: str = ""
    """Why it has failed; empty if it has not."""
