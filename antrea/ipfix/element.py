"""The information elements that flow records are made of, with their numbers.

Source: IANA's registry of IPFIX entities; RFC 5103 (reverse direction: enterprise 29305); the registry of go-ipfix v0.17.0
for Antrea's own (enterprise 56506).
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

IANA, REVERSE, ANTREA = 0, 29305, 56506
"""Enterprise numbers."""
VARIABLE: Final = 65535
"""Length in a template of values that have their own."""
SIZES: Final = {
    "u8": 1,
    "u16": 2,
    "u32": 4,
    "u64": 8,
    "seconds": 4,
    "ipv4": 4,
    "ipv6": 16,
    "uuid": 16,
    "string": VARIABLE,
}
_FIELDS: Final = {
    "sourceIPv4Address": "source_ip",
    "sourceIPv6Address": "source_ip",
    "destinationIPv4Address": "destination_ip",
    "destinationIPv6Address": "destination_ip",
    "egressIP": "egress_ip",
    "clusterId": "cluster_id",
    "originalExporterIPv4Address": "original_exporter_ipv4",
    "originalExporterIPv6Address": "original_exporter_ipv6",
}
_SIDES: Final = ("SourceNode", "DestinationNode")


class Element(NamedTuple):
    """One information element."""

    name: str
    enterprise: int
    number: int
    kind: str
    """One of SIZES."""

    @property
    def size(self) -> int:
        """Bytes as a template has it."""
        return SIZES[self.kind]

    @property
    def field(self) -> str:
        """The field of a FlowRecord with its value."""
        if self.name in _FIELDS:
            return _FIELDS[self.name]
        name = re.sub(r"IPv[46]$", "Ip", self.name).replace("UUID", "Uid")
        return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


def _elements(enterprise: int, text: str) -> list[Element]:
    rows = (word.split(":") for word in text.split())
    return [Element(name, enterprise, int(number), kind) for name, number, kind in rows]


def _sided() -> list[Element]:
    """Counters as each of both Nodes has them, 120 to 135."""
    counts = ("packetTotalCount", "octetTotalCount", "packetDeltaCount", "octetDeltaCount")
    both = (*counts, *(f"reverse{name[0].upper()}{name[1:]}" for name in counts))
    names = [f"{name}From{side}" for side in _SIDES for name in both]
    return [Element(name, ANTREA, 120 + at, "u64") for at, name in enumerate(names)]


ELEMENTS: Final = (
    *_elements(
        IANA,
        """flowStartSeconds:150:seconds flowEndSeconds:151:seconds flowEndReason:136:u8
        sourceTransportPort:7:u16 destinationTransportPort:11:u16 protocolIdentifier:4:u8
        packetTotalCount:86:u64 octetTotalCount:85:u64 packetDeltaCount:2:u64 octetDeltaCount:1:u64
        sourceIPv4Address:8:ipv4 destinationIPv4Address:12:ipv4
        sourceIPv6Address:27:ipv6 destinationIPv6Address:28:ipv6 flowDirection:61:u8 biflowDirection:239:u8
        originalExporterIPv4Address:403:ipv4 originalExporterIPv6Address:404:ipv6
        originalObservationDomainId:405:u32""",
    ),
    *_elements(
        REVERSE,
        """reversePacketTotalCount:86:u64 reverseOctetTotalCount:85:u64
        reversePacketDeltaCount:2:u64 reverseOctetDeltaCount:1:u64""",
    ),
    *_elements(
        ANTREA,
        """sourcePodNamespace:100:string sourcePodName:101:string
        destinationPodNamespace:102:string destinationPodName:103:string
        sourceNodeName:104:string destinationNodeName:105:string
        destinationClusterIPv4:106:ipv4 destinationClusterIPv6:107:ipv6
        destinationServicePort:108:u16 destinationServicePortName:109:string
        ingressNetworkPolicyName:110:string ingressNetworkPolicyNamespace:111:string
        egressNetworkPolicyName:112:string egressNetworkPolicyNamespace:113:string
        ingressNetworkPolicyType:115:u8 egressNetworkPolicyType:118:u8
        tcpState:136:string flowType:137:u8
        ingressNetworkPolicyRuleAction:139:u8 egressNetworkPolicyRuleAction:140:u8
        ingressNetworkPolicyRuleName:141:string egressNetworkPolicyRuleName:142:string
        sourcePodLabels:143:string destinationPodLabels:144:string
        throughput:145:u64 reverseThroughput:146:u64
        throughputFromSourceNode:147:u64 throughputFromDestinationNode:148:u64
        reverseThroughputFromSourceNode:149:u64 reverseThroughputFromDestinationNode:150:u64
        flowEndSecondsFromSourceNode:151:seconds flowEndSecondsFromDestinationNode:152:seconds
        egressName:153:string egressIP:154:string appProtocolName:155:string httpVals:156:string
        egressNodeName:157:string clusterId:158:string
        sourcePodUUID:159:uuid destinationPodUUID:160:uuid sourceNodeUUID:161:uuid destinationNodeUUID:162:uuid
        destinationServiceUUID:163:uuid ingressNetworkPolicyUUID:164:uuid egressNetworkPolicyUUID:165:uuid
        egressUUID:166:uuid egressNodeUUID:167:uuid
        destinationServiceIPv4:168:ipv4 destinationServiceIPv6:169:ipv6
        proxySnatIPv4:170:ipv4 proxySnatIPv6:171:ipv6 proxySnatPort:172:u16""",
    ),
    *_sided(),
)
BY_NAME: Final = {element.name: element for element in ELEMENTS}
BY_NUMBER: Final = {(element.enterprise, element.number): element for element in ELEMENTS}
