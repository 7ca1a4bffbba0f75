"""Headers of the packet of a Traceflow, by the option --flow.

parity: pkg/antctl/raw/traceflow/command.go parseFlow
"""

from __future__ import annotations

from typing import Any, Final

from antrea.antctl.failure import Failure

PROTOCOLS: Final = {"icmp": 1, "tcp": 6, "udp": 17}
FIELDS: Final = {
    "tcp_src": ("tcp", "srcPort"),
    "tcp_dst": ("tcp", "dstPort"),
    "tcp_flags": ("tcp", "flags"),
    "udp_src": ("udp", "srcPort"),
    "udp_dst": ("udp", "dstPort"),
}
WORDS: Final = (*PROTOCOLS, "ipv6", *FIELDS)


def packet_of(flow: str) -> dict[str, Any]:
    """spec.packet for `tcp,tcp_dst=80`. Raises Failure."""
    given = fields_of(flow)
    protocol = next((number for word, number in PROTOCOLS.items() if word in given), None)
    if "ipv6" in given:
        packet: dict[str, Any] = {"ipv6Header": {} if protocol is None else {"nextHeader": protocol}}
    else:
        packet = {"ipHeader": {} if protocol is None else {"protocol": protocol}}
    transport: dict[str, dict[str, int]] = {}
    for word, (header, field) in FIELDS.items():
        if word in given:
            transport.setdefault(header, {})[field] = given[word]
    return packet | ({"transportHeader": transport} if transport else {})


def fields_of(flow: str) -> dict[str, int]:
    """The terms of `flow` with their numbers; 0 for a word alone. Raises Failure."""
    fields: dict[str, int] = {}
    for term in filter(None, flow.replace(" ", "").split(",")):
        word, equals, text = term.partition("=")
        if not word or (equals and not text) or "=" in text:
            raise Failure(f"failed to parse flow: error when parsing the flow: {term} is not valid in flow")
        if word not in WORDS:
            raise Failure(
                f"failed to parse flow: error when parsing the flow: {word} is none of {', '.join(WORDS)}"
            )
        try:
            fields[word] = int(text, 10) if equals else 0
        except ValueError as error:
            raise Failure(
                f"failed to parse flow: error when parsing the flow: {text} is not a number"
            ) from error
    return fields
