"""Types of configuration values: what a text must look like, in the words of an error message."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from typing import Annotated, NamedTuple, get_args

import msgspec

_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_PART = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h)")
MAX_DURATION = 100
"""Characters of a duration: tenants write them in annotations, and each character costs time."""
MAX_SECONDS = 2**63 / 1e9
"""Go counts nanoseconds in 64 bits."""


OCTET = r"(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
V4 = rf"{OCTET}(\.{OCTET}){{3}}"
V6 = r"[0-9a-fA-F:]*:[0-9a-fA-F:.]*"
V4_LENGTH = rf"/(0*(3[0-2]|[12]?[0-9])|{V4})"
V6_LENGTH = r"/0*(12[0-8]|1[01][0-9]|[1-9]?[0-9])"
PORT = r"0*([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])"
NETWORK = rf"\s*({V4}({V4_LENGTH})?|{V6}({V6_LENGTH})?)\s*"
LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
INTERFACE = r"[^/\s:]{1,15}"
"""Names of interfaces that the kernel takes (dev_valid_name), and two names of folders."""
PROTOCOL = "([gG][rR][pP][cC]|[tT][lL][sS]|[tT][cC][pP]|[uU][dD][pP])"


class Shape(msgspec.Struct, frozen=True):
    """`accepts` tests whether a text has the shape; `name` completes the sentence "is not ..."."""

    name: str
    accepts: Callable[[str], bool]
    pattern: str
    """A regular expression of RE2 that takes all such texts and few others: the chart refuses values by it."""
    is_range: bool = False
    """Whether the first of two numbers with a dash between them has to be the smaller one, which no expression can check."""


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
    if not host or {"[", "]"} & {*host} or not 1 <= number <= 65535:
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


def _interface_name(text: str) -> None:
    if text in (".", "..") or not re.fullmatch(INTERFACE, text):
        raise ValueError(text)


def _cidr(text: str) -> None:
    if "/" not in text:
        raise ValueError(text)
    ipaddress.ip_network(text, strict=False)


def _shaped(
    name: str, check: Callable[[str], object], pattern: str, *, is_range: bool = False
) -> msgspec.Meta:
    """A text that `check` accepts; see Shape."""
    return msgspec.Meta(extra={"shape": Shape(name, _tries(check), pattern, is_range)})


def shape_of(kind: object) -> Shape | None:
    """The shape that the type of a key asks for, if any."""
    for part in get_args(kind):
        if isinstance(part, msgspec.Meta):
            shape: Shape | None = (part.extra or {}).get("shape")
            return shape
        if shape := shape_of(part):
            return shape
    return None


Port = Annotated[int, msgspec.Meta(ge=1, le=65535, extra={"unset": (0,)})]
"""A port number; 0 means the default, as upstream reads it."""
Count = Annotated[int, msgspec.Meta(ge=0)]
Duration = Annotated[
    str,
    _shaped(
        "a duration such as 5s or 1m30s",
        seconds,
        r"0|(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+",
    ),
]
Cidr = Annotated[str, _shaped("a CIDR such as 10.96.0.0/12", _cidr, rf"{V4}{V4_LENGTH}|{V6}{V6_LENGTH}")]
CidrList = Annotated[str, _shaped("a comma-separated list of CIDRs", _cidr_list, rf"{NETWORK}(,{NETWORK})*")]
PortRange = Annotated[
    str, _shaped("a port range such as 61000-62000", _port_range, f"{PORT}-{PORT}", is_range=True)
]
HostPort = Annotated[
    str,
    _shaped(
        "a host or host:port",
        lambda text: host_and_port(text, 53),
        rf"[^:\[\]]+(:{PORT})?|\[[^\]]+\](:{PORT})?|[^:\[\]]*(:[^:\[\]]*){{2,}}",
    ),
]
CollectorAddress = Annotated[
    str,
    _shaped(
        "host:[port][:protocol] such as flow-aggregator/flow-aggregator:4739:tls, of protocols grpc, tls, tcp, udp",
        _collector,
        rf"(\[[^\]]+\]|[^:\[\]]+)(:({PORT})?)?(:{PROTOCOL})?",
    ),
]
BindAddress = Annotated[
    str,
    _shaped(
        "an IP address and port such as 0.0.0.0:10256",
        _bind_address,
        rf"{V4}:{PORT}|\[({V4}|{V6}(%[^\]]+)?)\]:{PORT}",
    ),
]
InterfaceName = Annotated[
    str,
    _shaped(
        "the name of an interface, at most 15 characters without blanks, slashes and colons",
        _interface_name,
        r"[^/\s:.][^/\s:]{0,14}|\.[^/\s:.][^/\s:]{0,13}|\.\.[^/\s:]{1,13}",
    ),
]
ServiceRef = Annotated[
    str,
    _shaped("a ClusterIP or namespace/name", _service, rf"{LABEL}/{LABEL}|{V4}|{V6}(%.+)?"),
]
