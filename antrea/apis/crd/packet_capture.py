"""PacketCapture of crd.antrea.io/v1alpha1.

Source: upstream pkg/apis/crd/v1alpha1/types.go, build/charts/antrea/crds/packetcapture.yaml
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from antrea.apis.crd.part import Address, Byte, Condition, CrdStruct, Int32, Metadata, Port
from antrea.apis.schema import Schema, cel, doc, one_of

POD_OR_IP = cel("!(has(self.pod) && has(self.ip))", "At most one of 'pod' or 'ip' may be set")
ONE_PROTOCOL = cel(
    "(has(self.icmp) ? 1 : 0) + (has(self.icmpv6) ? 1 : 0) + (has(self.udp) ? 1 : 0) + (has(self.tcp) ? 1: 0) <= 1",
    "At most one of 'ICMP', 'ICMPv6', 'UDP', or 'TCP' may be set",
)
STARTED, COMPLETE, UPLOADED = "PacketCaptureStarted", "PacketCaptureComplete", "PacketCaptureFileUploaded"
"""Types of conditions."""
NOT_STARTED = "NotStarted"
"""Reason of the agent whose Node has the Pod: it cannot begin the capture now."""
NO_NODE = "NoNode"
"""Reason of the controller: no Node can make the capture now, so that no agent acts on it."""
SFTP = r"sftp:\/\/([\w-_./]+|\[[\w-_.:/]+\]):\d+"


def _pod_of(side: str) -> dict[str, str]:
    return {
        "rule": f"!(has(self.capturePoint) && self.capturePoint == '{side}') || has(self.{side.lower()}.pod)",
        "message": f"{side.lower()}.pod must be set when capturePoint is '{side}'",
    }


class PodReference(CrdStruct, frozen=True):
    """A Pod by name."""

    name: Annotated[str, doc("Name of the Pod.")]
    namespace: Annotated[str, doc("Namespace of the Pod.", default="default")] = "default"


class End(CrdStruct, frozen=True):
    """One end of the traffic: a Pod, an address, or anything."""

    schema_keywords: ClassVar[Schema] = POD_OR_IP

    pod: PodReference | None = None
    ip: Annotated[Address, doc("An address.")] = ""


class UdpPorts(CrdStruct, frozen=True):
    """UDP."""

    src_port: Annotated[Port | None, doc("Source port.")] = None
    dst_port: Annotated[Port | None, doc("Destination port.")] = None


class TcpFlags(CrdStruct, frozen=True):
    """Flags that are set and not set."""

    value: Annotated[Byte, doc("Flags that are set.")]
    mask: Annotated[Byte | None, doc("Flags that are looked at; those of `value` if not given.")] = None


class TcpPorts(CrdStruct, frozen=True):
    """TCP."""

    src_port: Annotated[Port | None, doc("Source port.")] = None
    dst_port: Annotated[Port | None, doc("Destination port.")] = None
    flags: Annotated[tuple[TcpFlags, ...], doc("Any of these.")] = ()


class IcmpMessage(CrdStruct, frozen=True):
    """One type of message."""

    type: Annotated[int | str, doc("Number or name, such as icmp-echo.")]
    code: Annotated[Byte | None, doc("All if not given.")] = None


class IcmpMessages(CrdStruct, frozen=True):
    """ICMP of one family."""

    messages: Annotated[tuple[IcmpMessage, ...], doc("Any of these; all if empty.")] = ()


class TransportHeader(CrdStruct, frozen=True):
    """At most one transport protocol."""

    schema_keywords: ClassVar[Schema] = ONE_PROTOCOL

    udp: UdpPorts | None = None
    tcp: TcpPorts | None = None
    icmp: Annotated[IcmpMessages | None, doc("ICMP of IPv4.")] = None
    icmpv6: Annotated[IcmpMessages | None, doc("ICMP of IPv6.")] = None


class CapturePacket(CrdStruct, frozen=True):
    """Packets that are captured."""

    ip_family: Annotated[Literal["IPv4", "IPv6"], doc("Their family.", default="IPv4")] = "IPv4"
    protocol: Annotated[int | str | None, doc("Number of the protocol, or TCP, UDP, ICMP, ICMPv6.")] = None
    transport_header: TransportHeader = TransportHeader()


class FirstN(CrdStruct, frozen=True):
    """The first packets."""

    number: Annotated[Int32, doc("How many.")]


class CaptureConfig(CrdStruct, frozen=True):
    """When it is enough."""

    schema_keywords: ClassVar[Schema] = one_of("firstN")

    first_n: FirstN | None = None


class FileServer(CrdStruct, frozen=True):
    """Where the file is sent."""

    url: Annotated[str, doc("Such as sftp://10.0.0.1:22/captures.", pattern=SFTP)] = ""
    host_public_key: Annotated[
        bytes,
        doc(
            "Key of the server; without one nothing goes to a server of SFTP, unless an annotation accepts any."
        ),
    ] = b""


class PacketCaptureSpec(CrdStruct, frozen=True):
    """Packets to capture, and limits of the capture."""

    schema_keywords: ClassVar[dict[str, Any]] = {
        "x-kubernetes-validations": [
            {
                "rule": "has(self.source.pod) || has(self.destination.pod)",
                "message": "At least one of source.pod or destination.pod must be specified.",
            },
            _pod_of("Source"),
            _pod_of("Destination"),
        ]
    }

    capture_config: CaptureConfig
    source: Annotated[End, doc("Where packets come from.")] = End()
    destination: Annotated[End, doc("Where packets go.")] = End()
    packet: CapturePacket = CapturePacket()
    direction: Annotated[
        Literal["SourceToDestination", "DestinationToSource", "Both"],
        doc("Packets to the destination, back from it, or both.", default="SourceToDestination"),
    ] = "SourceToDestination"
    capture_point: Annotated[
        Literal["Source", "Destination"] | None, doc("On whose Node; the source's if it is a Pod.")
    ] = None
    timeout: Annotated[int, doc("Seconds until it ends anyhow.", minimum=1, maximum=300, default=60)] = 60
    file_server: FileServer | None = None


class PacketCaptureStatus(CrdStruct, frozen=True):
    """How far the capture is."""

    number_captured: Annotated[int, doc("Packets so far.")] = 0
    file_path: Annotated[str, doc("Where the file is, as node:path or URL.")] = ""
    conditions: Annotated[
        tuple[Condition, ...],
        doc("PacketCaptureStarted, PacketCaptureComplete, PacketCaptureFileUploaded."),
    ] = ()


class PacketCapture(CrdStruct, frozen=True):
    """Packets of a Pod, written into a file."""

    spec: PacketCaptureSpec
    metadata: Metadata = Metadata()
    status: PacketCaptureStatus = PacketCaptureStatus()
