"""Records as JSON, one object a line: the names of their elements with their values, as go-ipfix's exporting process writes them.

parity: github.com/vmware/go-ipfix pkg/exporter createAndSendJSONRecords
"""

from __future__ import annotations

from datetime import UTC, datetime
from operator import attrgetter
from typing import TYPE_CHECKING, Final

import msgspec

from antrea.ipfix.message import elements_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from antrea.apis.flow import FlowRecord
    from antrea.ipfix.template import Contents

MAX_BYTES: Final = 65000
"""Bytes of a record: one datagram has each."""
_NONE: Final = {"ipv4": "0.0.0.0", "ipv6": "::"}  # noqa: S104 (as Go writes an address that is not there)


class JsonWriter:
    """In place of a MessageWriter."""

    def __init__(self, contents: Contents, *, aggregated: bool = False, proxied: bool = False) -> None:
        self._columns = {
            ipv6: [
                (element.name, attrgetter(element.field), _NONE.get(element.kind, "")) for element in elements
            ]
            for ipv6, elements in elements_of(contents, aggregated=aggregated, proxied=proxied).items()
        }

    def templates(self, _: int) -> list[bytes]:
        """None: each record has the names."""
        return []

    def data(self, records: Iterable[FlowRecord], now: int, most: int) -> Iterator[tuple[bytes, int]]:
        """Lines, each with the number of its records; one that no datagram can hold is left out, whatever `most` is."""
        del most
        when = datetime.fromtimestamp(now, UTC).isoformat().replace("+00:00", "Z")
        for record in records:
            values = {name: read(record) for name, read, _ in self._columns[record.is_ipv6]}
            values |= {
                name: none for name, _, none in self._columns[record.is_ipv6] if none and not values[name]
            }
            line = msgspec.json.encode({"@timestamp": when, "ipfix": values}) + b"\n"
            if len(line) <= MAX_BYTES:
                yield line, 1
