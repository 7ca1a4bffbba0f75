"""Which elements a record has, in which order, and how it is written.

parity: pkg/agent/flowexporter/exporter/ipfix.go, pkg/flowaggregator/infoelements/elements.go (the orders)
"""

from __future__ import annotations

import socket
from functools import lru_cache
from operator import attrgetter
from struct import Struct, pack
from struct import error as struct_error
from typing import TYPE_CHECKING, Final, NamedTuple

from antrea.ipfix.element import BY_NAME, Element

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from antrea.apis.flow import FlowRecord

_CODES: Final = {
    "u8": "B",
    "u16": "H",
    "u32": "I",
    "u64": "Q",
    "seconds": "I",
    "ipv4": "4s",
    "ipv6": "16s",
    "uuid": "16s",
}
_LIMITS: Final = {"u8": 0xFF, "u16": 0xFFFF, "u32": 0xFFFFFFFF, "seconds": 0xFFFFFFFF, "u64": (1 << 64) - 1}
LONGEST: Final = 0xFFFF - 4096
"""Bytes of a text, so that a record fits into a message."""
SHARED: Final = 8192
"""Texts and addresses whose octets are kept for the next record."""
LONGEST_SHARED: Final = 96
"""Characters of such a text."""
FIRST_ID: Final = 256
"""Smaller numbers are those of sets with templates."""

_IANA = "flowStartSeconds flowEndSeconds flowEndReason sourceTransportPort destinationTransportPort protocolIdentifier packetTotalCount octetTotalCount packetDeltaCount octetDeltaCount sourceIPv{0}Address destinationIPv{0}Address"
_REVERSE = "reversePacketTotalCount reverseOctetTotalCount reversePacketDeltaCount reverseOctetDeltaCount"
_POLICY = "{0}NetworkPolicyName {0}NetworkPolicyNamespace {0}NetworkPolicyUUID {0}NetworkPolicyType {0}NetworkPolicyRuleName {0}NetworkPolicyRuleAction"
_END = "{0}PodName {0}PodNamespace {0}PodUUID {0}NodeName {0}NodeUUID"
_ANTREA = (
    f"{_END.format('source')} {_END.format('destination')}"
    " destinationServicePort destinationServicePortName destinationServiceUUID "
    + _POLICY.format("ingress")
    + " "
    + _POLICY.format("egress")
    + " tcpState flowType egressName egressUUID egressIP appProtocolName httpVals egressNodeName egressNodeUUID"
    " proxySnatPort destinationClusterIPv{0} proxySnatIPv{0} destinationServiceIPv{0}"
)
_REQUESTS = ("appProtocolName", "httpVals")
_RULE_NAMES = ("ingressNetworkPolicyRuleName", "egressNetworkPolicyRuleName")
_NAMES = (
    *(f"{end}{what}" for end in ("source", "destination") for what in ("PodName", "PodNamespace", "NodeName")),
    *(f"{way}NetworkPolicy{what}" for way in ("ingress", "egress") for what in ("Name", "Namespace")),
    "destinationServicePortName", "egressName", "egressNodeName",
)  # fmt: skip
"""Names of objects of Kubernetes."""
_LABELS = ("sourcePodLabels", "destinationPodLabels")
_COUNTS = "packetTotalCount octetTotalCount packetDeltaCount octetDeltaCount " + _REVERSE
_SIDES = ("SourceNode", "DestinationNode")


class Contents(NamedTuple):
    """What records have that not all need to have."""

    requests: bool = False
    """Those of HTTP, where upstream v2.3.2 has them."""
    names: bool = True
    """Names of objects of Kubernetes."""
    uids: bool = False
    """Their UIDs."""


PLAIN: Final = Contents()


def agent_elements(*, ipv6: bool, contents: Contents = PLAIN) -> tuple[Element, ...]:
    """Of records that agents export."""
    left_out = {
        *(() if contents.requests else _REQUESTS),
        *(() if contents.names else _NAMES),
        # a rule without its policy says nothing
        *(() if contents.names or contents.uids else _RULE_NAMES),
    }
    found = _named(f"{_IANA} {_REVERSE} {_ANTREA}".format(6 if ipv6 else 4).split())
    return tuple(one for one in found if one.name not in left_out and (contents.uids or one.kind != "uuid"))


def aggregated_elements(*, ipv6: bool, contents: Contents = PLAIN) -> tuple[Element, ...]:
    """Of records that the aggregator exports in mode Aggregate."""
    sided = [f"{name}From{side}" for name in _COUNTS.split() for side in _SIDES]
    ends = [f"flowEndSecondsFrom{side}" for side in _SIDES]
    rates = [
        f"{name}{side}"
        for name in ("throughput", "reverseThroughput")
        for side in ("", *(f"From{one}" for one in _SIDES))
    ]
    rest = _named([*sided, *ends, *rates, *_LABELS, "clusterId"])
    return (*agent_elements(ipv6=ipv6, contents=contents), *rest)


def proxied_elements(*, ipv6: bool, contents: Contents = PLAIN) -> tuple[Element, ...]:
    """Of records that the aggregator exports in mode Proxy."""
    rest = ("originalObservationDomainId", "originalExporterIPv4Address", "originalExporterIPv6Address")
    added = _named((*_LABELS, "clusterId", *rest, "flowDirection"))
    return (*agent_elements(ipv6=ipv6, contents=contents), *added)


def _named(names: Iterable[str]) -> tuple[Element, ...]:
    return tuple(BY_NAME[name] for name in names)


def template_record(number: int, elements: Sequence[Element]) -> bytes:
    """By which a collector reads data sets of this number (RFC 7011, 3.4.1)."""
    fields = b"".join(
        pack("!HHI", one.number | 0x8000, one.size, one.enterprise)
        if one.enterprise
        else pack("!HH", one.number, one.size)
        for one in elements
    )
    return pack("!HH", number, len(elements)) + fields


def encoder(elements: Sequence[Element]) -> Callable[[FlowRecord], bytes]:
    """Make the function that writes a record: neighbours of fixed length are written at once."""
    steps: list[Callable[[FlowRecord], bytes]] = []
    run: list[Element] = []
    for one in elements:
        if one.kind != "string":
            run.append(one)
            continue
        if run:
            steps.append(_fixed(run))
            run = []
        steps.append(_text(one.field))
    if run:
        steps.append(_fixed(run))
    return lambda record: b"".join([step(record) for step in steps])


def _text(field: str) -> Callable[[FlowRecord], bytes]:
    read = attrgetter(field)

    def write(record: FlowRecord) -> bytes:
        value = read(record)
        return _shared(value) if len(value) <= LONGEST_SHARED else _sized(value)

    return write


def _sized(value: str) -> bytes:
    """The text with its size before it."""
    octets = value.encode(errors="replace")[:LONGEST]
    size = len(octets)
    return (bytes((size,)) if size < 255 else b"\xff" + pack("!H", size)) + octets


_shared: Final = lru_cache(SHARED)(_sized)


def _fixed(run: Sequence[Element]) -> Callable[[FlowRecord], bytes]:
    form = Struct("!" + "".join(_CODES[one.kind] for one in run)).pack
    getters = [attrgetter(one.field) for one in run]
    addresses = [(at, _ADDRESSES[one.kind]) for at, one in enumerate(run) if one.kind in _ADDRESSES]
    limits = [(at, _LIMITS[one.kind]) for at, one in enumerate(run) if one.kind in _LIMITS]

    def write(record: FlowRecord) -> bytes:
        values = [read(record) for read in getters]
        for at, octets in addresses:
            values[at] = octets(values[at])
        try:
            return form(*values)
        except struct_error:
            for at, limit in limits:
                values[at] = min(max(values[at], 0), limit)
            return form(*values)

    return write


@lru_cache(SHARED)
def _ipv4(text: str) -> bytes:
    """0 for none, and for one of the other family, as a sender's record may have."""
    return socket.inet_pton(socket.AF_INET, text) if text and ":" not in text else bytes(4)


@lru_cache(SHARED)
def _ipv6(text: str) -> bytes:
    """As `_ipv4`."""
    return socket.inet_pton(socket.AF_INET6, text) if ":" in text else bytes(16)


@lru_cache(SHARED)
def _uuid(text: str) -> bytes:
    """Of a UID that is none, such as the one of a static Pod, nothing."""
    try:
        octets = bytes.fromhex(text.replace("-", ""))
    except ValueError:
        return bytes(16)
    return octets if len(octets) == 16 else bytes(16)


_ADDRESSES: Final = {"ipv4": _ipv4, "ipv6": _ipv6, "uuid": _uuid}
