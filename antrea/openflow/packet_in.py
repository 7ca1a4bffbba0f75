"""A packet that the switch sends to the agent, with what the pipeline knew of it.

Source: openvswitch/ofp-packet.h and nicira-ext.h (NXT_PACKET_IN2), ovs-fields(7) (numbers of fields)
"""

from __future__ import annotations

import struct
from ipaddress import ip_address
from typing import TYPE_CHECKING

import msgspec

from antrea.errors import Invalid

if TYPE_CHECKING:
    from collections.abc import Iterator

    from antrea.openflow.field import Field

_PACKET, _TABLE, _METADATA, _USERDATA, _CONTINUATION = 0, 3, 6, 7, 8
"""Properties that are read; the others are skipped."""
_NXM, _BASIC, _PACKET_REGISTERS = 0x0001, 0x8000, 0x8001
"""Classes of fields: registers of 32 bits, in_port among others, and pairs of registers as 64 bits."""
_REGISTERS = 16
TUN_DST, PKT_MARK, TUN_IPV6_DST = 32, 33, 110
CT_MARK, CT_LABEL = 107, 108
CT_NW_SRC, CT_NW_DST, CT_IPV6_SRC, CT_IPV6_DST, CT_TP_SRC, CT_TP_DST = range(120, 126)
"""Numbers of fields in the class of registers: ends of the tunnel, the mark, and the packet's connection (NXM_NX_CT_*)."""
_HEAD = struct.Struct("!HH")
_FIELD = struct.Struct("!HBB")


class PacketIn(msgspec.Struct, frozen=True):
    """One packet-in."""

    userdata: bytes
    """Userdata of the flow that sent it: the feature that it is for, then the feature's own."""
    table: int
    """Number of the table of that flow."""
    in_port: int
    """Where the packet came in; 0: not known."""
    registers: dict[int, int]
    """Registers by number; absent ones are 0."""
    frame: bytes
    """Bytes from the Ethernet header on."""
    held: bytes = b""
    """Continuation that resumes the packet in the switch, if the switch waits for that."""
    fields: dict[int, bytes] = {}
    """Other fields of the pipeline by number, such as `TUN_DST`."""

    def address(self, *fields: int) -> str:
        """The first of these fields that holds an address other than 0; empty: none does."""
        addresses = (self.fields.get(number, b"") for number in fields)
        return next(
            (str(ip_address(value)) for value in addresses if len(value) in (4, 16) and any(value)), ""
        )

    def value(self, field: Field) -> int:
        """Return the value of a field of a register."""
        register = self.registers.get(int(field.register.removeprefix("reg")), 0)
        return (register & field.mask) >> field.lo


def packet_in(body: bytes) -> PacketIn:
    """Parse the bytes after the vendor header of an NXT_PACKET_IN2. Raises Invalid."""
    frame, userdata, table, fields, held = b"", b"", 0, b"", b""
    for kind, value in _properties(body):
        if kind == _PACKET:
            frame = value
        elif kind == _TABLE:
            table = value[0] if value else 0
        elif kind == _METADATA:
            fields = value
        elif kind == _USERDATA:
            userdata = value
        elif kind == _CONTINUATION:
            held = body
    in_port, registers, others = _metadata(fields)
    return PacketIn(userdata, table, in_port, registers, frame, held, others)


def _properties(body: bytes) -> Iterator[tuple[int, bytes]]:
    """Type and value of each; they start at multiples of 8 bytes."""
    at = 0
    while at < len(body):
        kind, length = _HEAD.unpack(_piece(body, at, _HEAD.size, "a property"))
        if length < _HEAD.size:
            raise Invalid("packet-in", f"a property of {length} bytes is shorter than its header")
        yield kind, _piece(body, at, length, f"property {kind}")[_HEAD.size :]
        at += (length + 7) // 8 * 8


def _metadata(fields: bytes) -> tuple[int, dict[int, int], dict[int, bytes]]:
    """in_port, the registers and the other fields."""
    in_port, registers, others, at = 0, dict[int, int](), dict[int, bytes](), 0
    while at < len(fields):
        group, name, length = _FIELD.unpack(_piece(fields, at, _FIELD.size, "a field"))
        at += _FIELD.size
        payload, masked, number = _piece(fields, at, length, f"field {name >> 1}"), name & 1, name >> 1
        at += length
        text = payload[: length // 2] if masked else payload
        value = int.from_bytes(text)
        if group == _NXM and number < _REGISTERS:
            registers[number] = value & 0xFFFFFFFF
        elif group == _NXM:
            others[number] = text
        elif group == _PACKET_REGISTERS and number < _REGISTERS // 2:
            registers[2 * number] = value >> 32 & 0xFFFFFFFF
            registers[2 * number + 1] = value & 0xFFFFFFFF
        elif group == _BASIC and number == 0:
            in_port = value
    return in_port, registers, others


def _piece(body: bytes, at: int, length: int, what: str) -> bytes:
    if at + length > len(body):
        raise Invalid("packet-in", f"{what} ends after {len(body) - at} of {length} bytes")
    return body[at : at + length]
