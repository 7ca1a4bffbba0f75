"""The packet that is asked about: the first one of a connection, between two ends."""

from __future__ import annotations

from ipaddress import ip_address

import msgspec

from antrea.apis.core import Pod
from antrea.errors import Invalid
from antrea.explain.l7 import Request

PORTED = ("TCP", "UDP", "SCTP")
ANY_PORT = 40000
"""The source port of a packet, if no other is given."""


class End(msgspec.Struct, frozen=True):
    """One side: an address, and whose it is."""

    ip: str
    pod: Pod | None = None
    """A Pod with a network of its own, whose address this is."""
    host: str = ""
    """The Node whose own processes have this address, among them Pods on the host's network."""
    service: str = ""
    """namespace/name of the Service whose cluster IP this is: the address of a Pod of it takes its place."""

    names: tuple[str, ...] = ()
    """Domain names by which the address was found, in lower case."""
    names_of: str = ""
    """The Node whose agent has these names, or none, for the address; empty: it was not asked."""

    @property
    def name(self) -> str:
        """namespace/name of the Pod, else the address."""
        return pod_name(self.pod) if self.pod else self.ip


class Packet(msgspec.Struct, frozen=True):
    """`protocol` is TCP, UDP, SCTP or ICMP (of either family); numbers that the protocol does not have are None."""

    source: End
    destination: End
    protocol: str
    port: int | None = None
    source_port: int | None = None
    icmp_type: int | None = None
    icmp_code: int | None = None
    service: str = ""
    """namespace/name of the Service for which AntreaProxy has chosen this destination."""
    node_port: str = ""
    """The Node at whose NodePort the Service was asked; empty: it was asked by an address of its own."""
    request: Request | None = None
    """Request on the connection; None: not given."""
    names: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Domain names of addresses that Endpoints of a Service may have, as `End.names`."""
    own_names: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Domain names by address that servers gave to the sender which are not trusted: they count for rules that drop or reject."""

    @property
    def description(self) -> str:
        """Such as 80/tcp or icmp type 8."""
        if self.protocol in PORTED:
            has_source_port = self.source_port not in (None, ANY_PORT)
            origin = f" from port {self.source_port}" if has_source_port else ""
            return f"{self.port}/{self.protocol.lower()}{origin}"
        code = f" code {self.icmp_code}" if self.icmp_code is not None else ""
        return f"icmp type {self.icmp_type}{code}"


def pod_name(pod: Pod) -> str:
    """namespace/name."""
    return f"{pod.metadata.namespace}/{pod.metadata.name}"


def family(ip: str) -> int:
    """4 or 6. Raises ValueError."""
    return ip_address(ip).version


def port_of(text: str) -> tuple[str, int | None, int | None]:
    """Protocol, number (or type) and code of `80/tcp`, `53/udp`, `icmp`, `icmp/8` or `icmp/3/1`. Raises Invalid."""
    parts = text.lower().split("/")
    if parts[0] in ("icmp", "icmpv6") and len(parts) <= 3:
        numbers: list[int | None] = [_number(part, 255, text) for part in parts[1:]]
        kind, code, *_ = [*numbers, None, None]
        return "ICMP", kind, code
    protocol = (parts[1] if len(parts) > 1 else "tcp").upper()
    if len(parts) > 2 or protocol not in PORTED:
        raise Invalid("--port", f"{text!r} is not a port such as 80/tcp, 53/udp, 132/sctp, or icmp/8")
    return protocol, _number(parts[0], 65535, text), None


def _number(text: str, last: int, whole: str) -> int:
    if not text.isdecimal() or not text.isascii() or int(text) > last:
        raise Invalid("--port", f"{text!r} in {whole!r} is not a number from 0 to {last}")
    return int(text)
