"""Reads messages of an exporting process: bounded, since anybody may send them.

Elements without a field in a FlowRecord are skipped by their length; what is malformed ends the message, and is Invalid.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from antrea.errors import Invalid
from antrea.ipfix.message import HEADER, SET, TEMPLATE_SET, VERSION
from antrea.ipfix.record_reader import Template, TemplateField, field_of
from antrea.ipfix.template import FIRST_ID

if TYPE_CHECKING:
    from antrea.apis.flow import FlowRecord

OPTIONS_SET: Final = 3
MAX_TEMPLATES: Final = 64
"""Maximum number of templates of a session."""
MAX_FIELDS: Final = 256
"""Maximum number of fields of a template."""
MAX_SESSION_FIELDS: Final = 512
"""Maximum number of fields of all templates of a session."""
MAX_RECORDS: Final = 4096
"""Maximum number of records of a message."""


class MessageHeader(NamedTuple):
    """Sender and time of a message."""

    export_time: int
    sequence: int
    domain: int


class Decoder:
    """Decoder of one transport session; it keeps the session's templates."""

    def __init__(self) -> None:
        self._templates: dict[tuple[int, int], Template] = {}
        self.unknown = 0
        """Data sets whose template has not come."""

    def read(self, message: bytes) -> tuple[MessageHeader, list[FlowRecord]]:
        """The records of one whole message. Raises Invalid; templates that came before stay."""
        if len(message) < HEADER.size:
            raise Invalid("IPFIX message", f"it ends within its header, after {len(message)} bytes")
        version, length, when, sequence, domain = HEADER.unpack_from(message)
        if version != VERSION:
            raise Invalid("IPFIX message", f"version {version} is not {VERSION}")
        if length != len(message):
            raise Invalid("IPFIX message", f"its length says {length}, it has {len(message)} bytes")
        records: list[FlowRecord] = []
        at = HEADER.size
        while at < length:
            number, size = _head(message, at)
            body = message[at + SET.size : at + size]
            if number == TEMPLATE_SET:
                self._learn(domain, body)
            elif number >= FIRST_ID:
                self._data(domain, number, body, records)
            elif number != OPTIONS_SET:
                raise Invalid("IPFIX message", f"no set has number {number}")
            at += size
        return MessageHeader(when, sequence, domain), records

    def _learn(self, domain: int, body: bytes) -> None:
        at = 0
        while len(body) - at >= SET.size:
            number, count = SET.unpack_from(body, at)
            at += SET.size
            if number == 0 and count == 0:
                return  # padding
            if number < FIRST_ID and number != TEMPLATE_SET:
                raise Invalid("IPFIX template", f"number {number} is below {FIRST_ID}")
            if count == 0:
                self._withdraw(domain, number)
                continue
            fields, at = _fields(body, at, count)
            key = (domain, number)
            if key not in self._templates and len(self._templates) >= MAX_TEMPLATES:
                raise Invalid("IPFIX template", f"a session has more than {MAX_TEMPLATES}")
            others = sum(template.fields for other, template in self._templates.items() if other != key)
            if others + len(fields) > MAX_SESSION_FIELDS:
                raise Invalid("IPFIX template", f"a session has more than {MAX_SESSION_FIELDS} fields")
            self._templates[key] = Template(fields)

    def _withdraw(self, domain: int, number: int) -> None:
        if number == TEMPLATE_SET:
            self._templates = {key: template for key, template in self._templates.items() if key[0] != domain}
        self._templates.pop((domain, number), None)

    def _data(self, domain: int, number: int, body: bytes, records: list[FlowRecord]) -> None:
        template = self._templates.get((domain, number))
        if template is None:
            self.unknown += 1
            return
        at, end = 0, len(body)
        while end - at >= template.least:
            if len(records) >= MAX_RECORDS:
                raise Invalid("IPFIX message", f"more than {MAX_RECORDS} records")
            at, record = template.read(body, at)
            records.append(record)


def _head(message: bytes, at: int) -> tuple[int, int]:
    if len(message) - at < SET.size:
        raise Invalid("IPFIX message", "it ends within the header of a set")
    number, size = SET.unpack_from(message, at)
    if size < SET.size or at + size > len(message):
        raise Invalid("IPFIX message", f"a set of {size} bytes does not fit")
    return number, size


def _fields(body: bytes, at: int, count: int) -> tuple[list[TemplateField], int]:
    if count > MAX_FIELDS:
        raise Invalid("IPFIX template", f"{count} fields are more than {MAX_FIELDS}")
    fields = []
    for _ in range(count):
        if len(body) - at < 4:
            raise Invalid("IPFIX template", "it ends within a field")
        number, size = SET.unpack_from(body, at)
        at += 4
        enterprise = 0
        if number & 0x8000:
            if len(body) - at < 4:
                raise Invalid("IPFIX template", "it ends within an enterprise number")
            enterprise = int.from_bytes(body[at : at + 4])
            at += 4
        fields.append(field_of(enterprise, number & 0x7FFF, size))
    if not any(field.size for field in fields):
        raise Invalid("IPFIX template", "its records have no bytes")
    return fields, at
