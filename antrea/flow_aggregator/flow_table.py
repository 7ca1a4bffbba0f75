"""The table of records in ClickHouse: its columns, and the statements that make it or add what an older one lacks.

parity: pkg/flowaggregator/clickhouseclient/clickhouseclient.go (columns and their order); egressNodeName of v2, and
appProtocolName and httpVals of v1.15, are there together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

TABLE: Final = "flows"
LOCAL: Final = "flows_local"
"""Where Theia's Distributed table of that name keeps its rows."""
OURS: Final = "Made by antrea-flow-aggregator"
"""Comment of a table that was not there before; of others the retention is left alone."""
MAX_HOURS: Final = 31 * 24
_TYPES: Final = {
    "time": "DateTime", "8": "UInt8", "16": "UInt16", "64": "UInt64", "text": "String",
    "name": "LowCardinality(String)",
    # rows of before it was there are of connections whose source opened them
    "opener": "UInt8 DEFAULT 1",
}  # fmt: skip
_COLUMNS: Final = """
flowStartSeconds:time flowEndSeconds:time flowEndSecondsFromSourceNode:time flowEndSecondsFromDestinationNode:time
flowEndReason:8 sourceIP:text destinationIP:text sourceTransportPort:16 destinationTransportPort:16 protocolIdentifier:8
packetTotalCount:64 octetTotalCount:64 packetDeltaCount:64 octetDeltaCount:64
reversePacketTotalCount:64 reverseOctetTotalCount:64 reversePacketDeltaCount:64 reverseOctetDeltaCount:64
sourcePodName:name sourcePodNamespace:name sourceNodeName:name
destinationPodName:name destinationPodNamespace:name destinationNodeName:name
destinationClusterIP:text destinationServicePort:16 destinationServicePortName:name
ingressNetworkPolicyName:name ingressNetworkPolicyNamespace:name ingressNetworkPolicyRuleName:name
ingressNetworkPolicyRuleAction:8 ingressNetworkPolicyType:8
egressNetworkPolicyName:name egressNetworkPolicyNamespace:name egressNetworkPolicyRuleName:name
egressNetworkPolicyRuleAction:8 egressNetworkPolicyType:8
tcpState:name flowType:8 sourcePodLabels:text destinationPodLabels:text
throughput:64 reverseThroughput:64 throughputFromSourceNode:64 throughputFromDestinationNode:64
reverseThroughputFromSourceNode:64 reverseThroughputFromDestinationNode:64
clusterUUID:name egressName:name egressIP:text egressNodeName:name appProtocolName:name httpVals:text biflowDirection:opener
"""
COLUMNS: Final[Mapping[str, str]] = {
    name: _TYPES[kind] for name, _, kind in (word.partition(":") for word in _COLUMNS.split())
}
"""Types by names, in order."""


def created(retention: int) -> str:
    """Make the table, with rows kept for so many seconds; 0: for ever.

    A partition is what can be dropped at once: an hour, or a day where hours would be more than MAX_HOURS.
    """
    partition = "toStartOfHour" if 0 < retention <= MAX_HOURS * 3600 else "toDate"
    columns = ", ".join(f"`{name}` {kind}" for name, kind in COLUMNS.items())
    return (
        f"CREATE TABLE IF NOT EXISTS {TABLE} (`timeInserted` DateTime DEFAULT now(), {columns}) "
        f"ENGINE = MergeTree PARTITION BY {partition}(timeInserted) ORDER BY (timeInserted, flowEndSeconds)"
        f"{_ttl(retention)} COMMENT '{OURS}'"
    )


def _ttl(retention: int) -> str:
    return f" TTL timeInserted + toIntervalSecond({retention})" if retention else ""


def widened(table: str, present: Collection[str]) -> str:
    """Add the columns that an older table lacks; empty: it has all."""
    missing = [name for name in COLUMNS if name not in present]
    # as String, which Theia's own migrations use
    parts = (f"ADD COLUMN IF NOT EXISTS `{name}` {_plain(COLUMNS[name])}" for name in missing)
    return f"ALTER TABLE {table} {', '.join(parts)}" if missing else ""


def _plain(kind: str) -> str:
    return "String" if kind.startswith("LowCardinality") else kind


def retained(made: str, retention: int) -> str:
    """Change how long rows of a table of ours are kept; `made` is its statement as the server shows it; empty: as it is."""
    if retention:
        wanted = _ttl(retention).strip()
        return "" if wanted in made else f"ALTER TABLE {TABLE} MODIFY {wanted}"
    return f"ALTER TABLE {TABLE} REMOVE TTL" if " TTL timeInserted" in made else ""
