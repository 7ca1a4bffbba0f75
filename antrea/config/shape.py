"""Types of configuration values: what a text must look like, in the words of an error message."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from typing import Annotated, NamedTuple

import msgspec

_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_PART = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h)")
MAX_DURATION = 100
"""Characters of a duration: tenants write them in annotations, and each character costs time."""
MAX_SECONDS = 2**63 / 1e9
"""Go counts nanoseconds in 64 bits."""


class Shape(msgspec.Struct, frozen=True):
    """`accepts` tests whether a text has the shape; `name` completes the sentence "is not ..."."""

    name: str
    accepts: Callable[[str], bool]


def seconds(text: str) -> float:
    """The length of a Go duration such as 5s, 1m30s or 1.5h in seconds; ValueError for anything else.

    Source: https://pkg.go.dev/time#ParseDuration (without signs: no key means a negative time).
    """
    if text == "0":
        return 0.0
    parts = _PART.findall(text) if len(text) <= MAX_DURATION else []
    total = sum(float(number) * _UNITS[unit] for number, unit in parts)
    if not parts or "".join(number + unit for number, unit in parts) != text or total >= MAX_SECONDS:
        raise ValueError(f"{text[:MAX_DURATION]!r} is not a duration such as 5s or 1m30s")
    return total


def host_and_port(text: str, default: int) -> tuple[str, int]:
    """Split host, host:port, [v6]:port or a bare IPv6 address; ValueError if the port is not 1-65535."""
    bracketed = re.fullmatch(r"\[([^\]]+)\](?::(\d+))?", text)
    if bracketed:
        host, port = bracketed.groups()
    elif text.count(":") == 1:
        host, port = text.split(":")
    else:
        host, port = text, None
    number = default if port is None else int(port)
    if not host or not 1 <= number <= 65535:
        raise ValueError(f"{text!r} is not host:port")
    return host, number


def _tries(function: Callable[[str], object]) -> Callable[[str], bool]:
    def accepts(text: str) -> bool:
        try:
            function(text)
        except ValueError:
            return False
        return True

    return accepts


def _port_range(text: str) -> None:
    start, _, end = text.partition("-")
    if not 1 <= int(start) < int(end) <= 65535:
        raise ValueError(text)


def _cidr_list(text: str) -> None:
    for part in text.split(","):
        ipaddress.ip_network(part.strip(), strict=False)


class Collector(NamedTuple):
    """Where flow records go to."""

    host: str
    """A name, an address, or namespace/name of a Service."""
    port: int
    protocol: str
    """grpc, tls, tcp or udp."""


def collector(text: str) -> Collector:
    """Parse `<host>:[<port>][:<protocol>]`; ValueError for anything else.

    parity: pkg/util/flowexport/flowexport.go ParseFlowCollectorAddr
    """
    match = re.fullmatch(r"(\[[^\]]+\]|[^:\[\]]+)(?::(\d*))?(?::(\w+))?", text)
    port = int(match[2] or 4739) if match else 0
    protocol = (match[3] or "tls").lower() if match else ""
    if match is None or not 1 <= port <= 65535 or protocol not in ("grpc", "tls", "tcp", "udp"):
        raise ValueError(f"{text!r} is not host:[port][:protocol]")
    return Collector(match[1].strip("[]"), port, protocol)


def _collector(text: str) -> None:
    if text:
        collector(text)


def _service(text: str) -> None:
    if not re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?/[a-z0-9]([-a-z0-9]*[a-z0-9])?", text):
        ipaddress.ip_address(text)


def _bind_address(text: str) -> None:
    host, _ = host_and_port(text, 0)
    ipaddress.ip_address(host)


def _cidr(text: str) -> None:
    if "/" not in text:
        raise ValueError(text)
    ipaddress.ip_network(text, strict=False)


def _shaped(name: str, check: Callable[[str], object], pattern: str = "") -> msgspec.Meta:
    """A text that `check` accepts; `pattern`, if it is given, takes all such texts, for a schema of values."""
    schema = {"pattern": pattern} if pattern else None
    return msgspec.Meta(extra={"shape": Shape(name, _tries(check))}, extra_json_schema=schema)


Port = Annotated[int, msgspec.Meta(ge=1, le=65535, extra={"unset": (0,)})]
"""A port number; 0 means the default, as upstream reads it."""
Count = Annotated[int, msgspec.Meta(ge=0)]
Duration = Annotated[
    str, _shaped("a duration such as 5s or 1m30s", seconds, r"0|([0-9.]+(ns|us|µs|μs|ms|s|m|h))+")
]
Cidr = Annotated[str, _shaped("a CIDR such as 10.96.0.0/12", _cidr, r"[0-9a-fA-F:.]+/[0-9.]+")]
CidrList = Annotated[str, _shaped("a comma-separated list of CIDRs", _cidr_list)]
PortRange = Annotated[str, _shaped("a port range such as 61000-62000", _port_range, r"[0-9]+-[0-9]+")]
HostPort = Annotated[str, _shaped("a host or host:port", lambda text: host_and_port(text, 53))]
CollectorAddress = Annotated[
    str,
    _shaped(
        "host:[port][:protocol] such as flow-aggregator/flow-aggregator:4739:tls, of protocols grpc, tls, tcp, udp",
        _collector,
    ),
]
BindAddress = Annotated[str, _shaped("an IP address and port such as 0.0.0.0:10256", _bind_address)]
ServiceRef = Annotated[str, _shaped("a ClusterIP or namespace/name", _service)]
