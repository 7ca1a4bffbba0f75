"""A statement over the table of records, bounded in time, rows and work, and what its rows become."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from antrea.flow_aggregator.flow_table import TABLE

if TYPE_CHECKING:
    from antrea.flow_aggregator.query_scope import Scope
    from antrea.outside.clickhouse.store import Value

SECONDS: Final = 5
MEMORY: Final = 256 << 20
"""Memory limit of a query."""
BOUNDS: Final = (
    f"SETTINGS max_execution_time = {SECONDS}, max_memory_usage = {MEMORY}, max_result_bytes = 8388608, "
    "output_format_json_quote_64bit_integers = 0, output_format_json_validate_utf8 = 1, readonly = 1 "
    "FORMAT JSONCompactEachRow"
)
"""Settings of every query: time, memory and bytes of the answer; numbers are numbers, and text is UTF-8."""
SCOPED: Final = (
    "since", "until", "namespace", "pod", "srcip", "dstip", "port", "protocol", "action", "policy", "egress",
)  # fmt: skip
"""Parameters of every query."""
_CONNECTION: Final = "cityHash64(sourceIP, sourceTransportPort, destinationIP, destinationTransportPort, protocolIdentifier, flowStartSeconds)"
"""Identity of a connection, which has a record for each export; computed once for all counts of a statement."""
_UNIQ: Final = "uniqCombined{}(14)"
"""12 kB of memory at most, and less time than uniq."""
_DENIED: Final = "ingressNetworkPolicyRuleAction IN (2, 3) OR egressNetworkPolicyRuleAction IN (2, 3)"


def connections_if(condition: str) -> str:
    """How many connections there are for which that holds: of some thousands and more within 2 %."""
    return f"{_UNIQ.format('If')}({_CONNECTION}, {condition})"


def sums(denied: str = _DENIED) -> dict[str, str]:
    """Bytes of both directions, connections, and those that were denied: columns by names."""
    return {
        "bytes": "sum(octetDeltaCount + reverseOctetDeltaCount)",
        "connections": f"{_UNIQ.format('')}({_CONNECTION})",
        "denied": connections_if(denied),
    }


def unknown_sums() -> dict[str, str]:
    """Connections that policies let pass and of which it is unknown which end opened them, and whether there are others: columns by names."""
    passed = f"NOT ({_DENIED})"
    return {
        "unknown": connections_if(f"biflowDirection = 0 AND {passed}"),
        "hasKnown": f"max(biflowDirection != 0 AND {passed})",
    }


def columns_of(named: Mapping[str, str]) -> str:
    """Columns with their names."""
    return ", ".join(f"{text} AS {name}" for name, text in named.items())


class Query(NamedTuple):
    """A statement, the values of its parameters, and what its rows become."""

    sql: str
    values: Mapping[str, Value]
    shape: Callable[[list[list[Any]]], dict[str, Any]]


Make = Callable[[Mapping[str, str], Sequence[str] | None], Query]


def select(columns: str, scope: Scope, rest: str) -> str:
    """A bounded statement; `columns` and `rest` are texts of this program."""
    return f"SELECT {columns} FROM {TABLE} WHERE {scope.text} {rest} {BOUNDS}"  # noqa: S608 (values are parameters)


def select_union(names: Sequence[str], parts: Sequence[tuple[str, str, str]], scope: Scope, rest: str) -> str:
    """A bounded statement over several: of each its columns, a condition more, and its GROUP BY; `rest` orders the whole by `names`."""
    each = (
        f"SELECT {columns} FROM {TABLE} WHERE {scope.text} AND ({condition}) {group}"  # noqa: S608 (as above)
        for columns, condition, group in parts
    )
    return f"SELECT {', '.join(names)} FROM ({' UNION ALL '.join(each)}) {rest} {BOUNDS}"  # noqa: S608
