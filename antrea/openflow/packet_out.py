"""A packet that the agent gives the switch, and what is to become of it.

Source: OpenFlow Switch Specification 1.5.1, 7.3.6 (packet-out), 7.2.6 (actions); openvswitch/nicira-ext.h (resubmit)
"""

from __future__ import annotations

import struct

import msgspec

from antrea.openflow.field import Mark

TABLE_PORT = 0xFFFFFFF9
"""Output there: the packet goes through the whole pipeline."""

_NO_BUFFER = 0xFFFFFFFF
_IN_PORT = 0x80000004
_NXM_MASKED = 0x00010108
"""Header of register 0 with a mask: class, number, mask bit, eight bytes; registers are numbered in bits 9 to 15."""
_SET_FIELD, _OUTPUT, _EXPERIMENTER = 25, 0, 0xFFFF
_NICIRA, _RESUBMIT_TABLE, _SAME_PORT = 0x00002320, 14, 0xFFF8


class PacketOut(msgspec.Struct, frozen=True):
    """One packet-out: it enters by `in_port` with `marks`, then goes to a table, or out of a port."""

    frame: bytes
    """Bytes from the Ethernet header on."""
    in_port: int
    marks: tuple[Mark, ...] = ()
    """Marks in registers of 32 bits."""
    out_port: int = TABLE_PORT
    table: int | None = None
    """Number of the table that it goes to instead of a port."""

    @property
    def body(self) -> bytes:
        """Bytes after the header of an OFPT_PACKET_OUT of OpenFlow 1.5."""
        last = _output(self.out_port) if self.table is None else _resubmit(self.table)
        actions = b"".join((*map(_load, self.marks), last))
        match = struct.pack("!HHII4x", 1, 12, _IN_PORT, self.in_port)
        return struct.pack("!IHxx", _NO_BUFFER, len(actions)) + match + actions + self.frame


def _load(mark: Mark) -> bytes:
    field = mark.field
    header = _NXM_MASKED | int(field.register.removeprefix("reg")) << 9
    return struct.pack("!HHIII", _SET_FIELD, 16, header, mark.value << field.lo, field.mask)


def _output(port: int) -> bytes:
    return struct.pack("!HHIH6x", _OUTPUT, 16, port, 0xFFFF)


def _resubmit(table: int) -> bytes:
    return struct.pack("!HHIHHB3x", _EXPERIMENTER, 16, _NICIRA, _RESUBMIT_TABLE, _SAME_PORT, table)
