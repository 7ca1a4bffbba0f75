"""Kind of PacketCapture, and how the API server serves it."""

from __future__ import annotations

from antrea.apis.crd import packet_capture
from antrea.apis.crd.definition import AGE, ANTREA, Column, Crd, Version


def _capture(condition: str) -> str:
    return f'.status.conditions[?(@.type=="PacketCapture{condition}")].status'


CAPTURE_COLUMNS = (
    Column("Source-Pod", "string", ".spec.source.pod", "Where packets come from.", 10),
    Column("Destination-Pod", "string", ".spec.destination.pod", "Where packets go.", 10),
    Column("Source-IP", "string", ".spec.source.ip", "Where packets come from.", 10),
    Column("Destination-IP", "string", ".spec.destination.ip", "Where packets go.", 10),
    Column("Timeout", "integer", ".spec.timeout", "Seconds until it ends anyhow.", 10),
    AGE,
    Column("Captured-Packets", "integer", ".status.numberCaptured", "Packets so far."),
    Column("Started", "string", _capture("Started"), "Whether it has started."),
    Column("Complete", "string", _capture("Complete"), "Whether it has ended."),
    Column("Uploaded", "string", _capture("FileUploaded"), "Whether the file server has the file.", 10),
)
CRDS = (
    Crd(
        "packetcaptures",
        ("pcap",),
        "Cluster",
        (Version("v1alpha1", packet_capture.PacketCapture, CAPTURE_COLUMNS, status=True),),
        ("PacketCapture",),
        ANTREA,
    ),
)
