"""Messages that an exporting process sends (RFC 7011, chapter 3): templates, then data, each message with one set.

go-ipfix's collector, which upstream's aggregator is built on, reads the first set of a message alone.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final

from antrea.ipfix.record_writer import encoder
from antrea.ipfix.template import (
    FIRST_ID,
    PLAIN,
    agent_elements,
    aggregated_elements,
    proxied_elements,
    template_record,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from antrea.apis.flow import FlowRecord
    from antrea.ipfix.element import Element
    from antrea.ipfix.template import Contents

VERSION: Final = 10
TEMPLATE_SET: Final = 2
HEADER: Final = Struct("!HHIII")
"""Version, length, export time, sequence number, observation domain."""
SET: Final = Struct("!HH")
"""Number and length."""
MAX_BYTES: Final = 65535
"""Bytes of a message."""
_OVERHEAD: Final = HEADER.size + SET.size


def domain_of(name: str) -> int:
    """The observation domain of a Node: FNV-1 of its name, in 32 bits."""
    value = 0x811C9DC5
    for byte in name.encode():
        value = value * 0x01000193 & 0xFFFFFFFF ^ byte
    return value


def elements_of(contents: Contents, *, aggregated: bool, proxied: bool) -> dict[bool, tuple[Element, ...]]:
    """Return the elements of a record of each family; True is IPv6."""
    elements = aggregated_elements if aggregated else proxied_elements if proxied else agent_elements
    return {ipv6: elements(ipv6=ipv6, contents=contents) for ipv6 in (False, True)}


class MessageWriter:
    """Writes messages of one transport session, with its templates and its sequence number."""

    def __init__(
        self, domain: int, *, aggregated: bool = False, proxied: bool = False, contents: Contents = PLAIN
    ) -> None:
        """`aggregated`, `proxied`: with the elements that the aggregator adds in its modes."""
        families = elements_of(contents, aggregated=aggregated, proxied=proxied)
        self._domain = domain
        self._sequence = 0
        self._numbers = {ipv6: FIRST_ID + at for at, ipv6 in enumerate(families)}
        self._templates = {
            ipv6: template_record(self._numbers[ipv6], elements) for ipv6, elements in families.items()
        }
        self._encoders = {ipv6: encoder(elements) for ipv6, elements in families.items()}

    def templates(self, now: int) -> list[bytes]:
        """One message for each family; they count no data."""
        return [self._message(TEMPLATE_SET, record, now) for record in self._templates.values()]

    def data(self, records: Iterable[FlowRecord], now: int, most: int) -> Iterator[tuple[bytes, int]]:
        """Messages of at most that many bytes, each with the number of its records; one record is never divided.

        A record that no message can hold is left out.
        """
        pending: dict[bool, list[bytes]] = {False: [], True: []}
        sizes = {False: _OVERHEAD, True: _OVERHEAD}
        for record in records:
            family = record.is_ipv6
            body = self._encoders[family](record)
            if len(body) + _OVERHEAD > MAX_BYTES:
                continue
            if pending[family] and sizes[family] + len(body) > most:
                yield self._flush(family, pending[family], now)
                pending[family], sizes[family] = [], _OVERHEAD
            pending[family].append(body)
            sizes[family] += len(body)
        for family, bodies in pending.items():
            if bodies:
                yield self._flush(family, bodies, now)

    def _flush(self, family: bool, bodies: list[bytes], now: int) -> tuple[bytes, int]:
        message = self._message(self._numbers[family], b"".join(bodies), now)
        self._sequence = self._sequence + len(bodies) & 0xFFFFFFFF
        return message, len(bodies)

    def _message(self, number: int, body: bytes, now: int) -> bytes:
        length = _OVERHEAD + len(body)
        head = HEADER.pack(VERSION, length, now & 0xFFFFFFFF, self._sequence, self._domain)
        return head + SET.pack(number, SET.size + len(body)) + body
