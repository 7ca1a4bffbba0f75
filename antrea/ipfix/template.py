"""Which elements a record has, and in which order.

parity: pkg/agent/flowexporter/exporter/ipfix.go, pkg/flowaggregator/infoelements/elements.go (the orders)
"""

from __future__ import annotations

from struct import pack
from typing import TYPE_CHECKING, Final, NamedTuple

from antrea.ipfix.element import BY_NAME, Element

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

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
_DIRECTION = "biflowDirection"
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
    """Optional contents of records."""

    requests: bool = False
    """Requests of HTTP, where upstream v2.3.2 has them."""
    names: bool = True
    """Names of objects of Kubernetes."""
    uids: bool = False
    """Their UIDs."""
    direction: bool = False
    """Whether the source has opened the connection, which records of upstream do not have."""


PLAIN: Final = Contents()


def agent_elements(*, ipv6: bool, contents: Contents = PLAIN) -> tuple[Element, ...]:
    """Return the elements of records that agents export."""
    left_out = {
        *(() if contents.requests else _REQUESTS),
        *(() if contents.names else _NAMES),
        *(() if contents.direction else (_DIRECTION,)),
        # a rule without its policy says nothing
        *(() if contents.names or contents.uids else _RULE_NAMES),
    }
    elements = _named(f"{_IANA} {_REVERSE} {_ANTREA} {_DIRECTION}".format(6 if ipv6 else 4).split())
    return tuple(
        element
        for element in elements
        if element.name not in left_out and (contents.uids or element.kind != "uuid")
    )


def aggregated_elements(*, ipv6: bool, contents: Contents = PLAIN) -> tuple[Element, ...]:
    """Return the elements of records that the aggregator exports in mode Aggregate."""
    sided = [f"{name}From{side}" for name in _COUNTS.split() for side in _SIDES]
    ends = [f"flowEndSecondsFrom{side}" for side in _SIDES]
    rates = [
        f"{name}{side}"
        for name in ("throughput", "reverseThroughput")
        for side in ("", *(f"From{side_name}" for side_name in _SIDES))
    ]
    rest = _named([*sided, *ends, *rates, *_LABELS, "clusterId"])
    return (*agent_elements(ipv6=ipv6, contents=contents), *rest)


def proxied_elements(*, ipv6: bool, contents: Contents = PLAIN) -> tuple[Element, ...]:
    """Return the elements of records that the aggregator exports in mode Proxy."""
    rest = ("originalObservationDomainId", "originalExporterIPv4Address", "originalExporterIPv6Address")
    added = _named((*_LABELS, "clusterId", *rest, "flowDirection"))
    return (*agent_elements(ipv6=ipv6, contents=contents), *added)


def _named(names: Iterable[str]) -> tuple[Element, ...]:
    return tuple(BY_NAME[name] for name in names)


def template_record(number: int, elements: Sequence[Element]) -> bytes:
    """Return the record by which a collector reads data sets of this number (RFC 7011, 3.4.1)."""
    fields = b"".join(
        pack("!HHI", element.number | 0x8000, element.size, element.enterprise)
        if element.enterprise
        else pack("!HH", element.number, element.size)
        for element in elements
    )
    return pack("!HH", number, len(elements)) + fields
