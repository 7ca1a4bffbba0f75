"""The options of `antctl packetcapture` as the spec of a PacketCapture.

parity: pkg/antctl/raw/packetcapture/command.go parseFlow, parseEndpoint
"""

from __future__ import annotations

import re
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any

from antrea.antctl.failure import Failure

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

PROTOCOLS = {"icmp": 1, "tcp": 6, "udp": 17, "icmpv6": 58}
FLAGS = {name: 1 << bit for bit, name in enumerate(("fin", "syn", "rst", "psh", "ack", "urg", "ece", "cwr"))}
ICMP = ("icmp-echo", "icmp-echoreply", "icmp-unreach", "icmp-timxceed")
ICMPV6 = (
    "icmpv6-echo", "icmpv6-echoreply", "icmpv6-unreach", "icmpv6-timxceed", "icmpv6-pkt-too-big", "icmpv6-paramprob",
)  # fmt: skip
KNOWN = {
    *PROTOCOLS, "ipv6", "tcp_src", "tcp_dst", "tcp_flags", "udp_src", "udp_dst", "icmp_type", "icmp_code",
    "icmpv6_type", "icmpv6_code",
}  # fmt: skip


def endpoint(text: str, what: str, default: str) -> dict[str, Any]:
    """`[namespace/]pod` or an address; `default` is the Namespace of a Pod that is named without one. Raises Failure."""
    try:
        return {"ip": str(ip_address(text))}
    except ValueError:
        pass
    namespace, slash, name = text.rpartition("/")
    if not name or "/" in namespace or (slash and not namespace):
        raise Failure(f"{what} should be in the format of Namespace/Pod, Pod, or IPv4/IPv6")
    return {"pod": {"namespace": namespace or default, "name": name}}


def packet(flow: str) -> dict[str, Any]:
    """spec.packet of a flow such as `tcp,tcp_dst=80,tcp_flags=+syn-ack`. Raises Failure."""
    fields = dict(_fields(flow.replace(" ", "")))
    fields_of_packet: dict[str, Any] = {"ipFamily": "IPv6" if {"ipv6", "icmpv6"} & fields.keys() else "IPv4"}
    named = [name for name in PROTOCOLS if name in fields]
    if len(named) > 1:
        raise Failure(f"failed to parse flow: {' and '.join(named)} cannot be both")
    if named:
        fields_of_packet["protocol"] = PROTOCOLS[named[0]]
    header = dict(_header(fields))
    if len(header) > 1:
        raise Failure(f"failed to parse flow: fields of {' and '.join(header)} cannot be both")
    return {**fields_of_packet, "transportHeader": header} if header else fields_of_packet


def _fields(flow: str) -> Iterator[tuple[str, str]]:
    for part in filter(None, flow.split(",")):
        key, mark, value = part.partition("=")
        if not key or (mark and not value) or "=" in value:
            raise Failure(f"failed to parse flow: {part} is not valid in flow")
        if key not in KNOWN:
            raise Failure(f"failed to parse flow: {key} is not one of {', '.join(sorted(KNOWN))}")
        yield key, value


def _header(fields: Mapping[str, str]) -> Iterator[tuple[str, Any]]:
    for protocol in ("tcp", "udp"):
        ports = {
            name: _number(f"{protocol}_{key}", fields, 65535)
            for key, name in (("src", "srcPort"), ("dst", "dstPort"))
            if f"{protocol}_{key}" in fields
        }
        more = {"flags": [_flags(fields["tcp_flags"])]} if protocol == "tcp" and "tcp_flags" in fields else {}
        if ports or more:
            yield protocol, {**ports, **more}
    for protocol, names in (("icmp", ICMP), ("icmpv6", ICMPV6)):
        if f"{protocol}_type" in fields:
            yield protocol, {"messages": [_message(protocol, names, fields)]}
        elif f"{protocol}_code" in fields:
            raise Failure(
                f"failed to parse flow: {protocol}_type must be specified when {protocol}_code is provided"
            )


def _message(protocol: str, names: tuple[str, ...], fields: Mapping[str, str]) -> dict[str, Any]:
    kind: int | str = fields[f"{protocol}_type"]
    if kind not in names:
        if not str(kind).isdecimal():
            raise Failure(f"failed to parse flow: unknown {protocol}_type: {kind}")
        kind = _number(f"{protocol}_type", fields, 255)
    code = f"{protocol}_code"
    return {"type": kind, **({"code": _number(code, fields, 255)} if code in fields else {})}


def _number(key: str, fields: Mapping[str, str], most: int) -> int:
    try:
        number = int(fields[key], 0)
    except ValueError as error:
        raise Failure(f"failed to parse flow: {key}={fields[key]} is not a number") from error
    if not 0 <= number <= most:
        raise Failure(f"failed to parse flow: {key}={number} is not between 0 and {most}")
    return number


def _flags(text: str) -> dict[str, int]:
    if not re.fullmatch(r"([+-][a-z]+)+", text):
        raise Failure(f"failed to parse flow: tcp_flags={text} is not such as +syn-ack")
    value = mask = 0
    for sign, name in re.findall(r"([+-])([a-z]+)", text):
        if name not in FLAGS:
            raise Failure(f"failed to parse flow: invalid TCP flag {name}")
        mask |= FLAGS[name]
        value |= FLAGS[name] if sign == "+" else 0
    return {"value": value, "mask": mask}
