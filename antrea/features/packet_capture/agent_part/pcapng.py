"""Blocks of a pcapng file of one interface, and of what the switch has dropped, in this machine's byte order, with times in nanoseconds.

Source: IETF draft-ietf-opsawg-pcapng, sections 3 and 4
"""

from __future__ import annotations

import struct

_SECTION, _INTERFACE, _PACKET, _STATISTICS = 0x0A0D0D0A, 1, 6, 5
_MAGIC = 0x1A2B3C4D
_UNKNOWN_LENGTH = -1
ETHERNET = 1
POD, DROPS = 0, 1
"""Numbers of the interfaces: that of the Pod, and one for packets that the switch has dropped."""
_COMMENT, _NAME, _DESCRIPTION, _RESOLUTION = 1, 2, 3, 9
_HARDWARE, _APPLICATION = 2, 4
_NANOSECONDS = b"\x09"
_FLAGS = 2
_RECEIVED, _DROPPED = 4, 5
MAX_OPTION = 0xFFFF
"""Bytes of an option's value."""
INBOUND, OUTBOUND = 1, 2
"""Directions of packets at the interface."""


def drops(snap_length: int) -> bytes:
    """The interface of what the switch has dropped; once, before the first of its packets."""
    described = struct.pack("=HHI", ETHERNET, 0, snap_length)
    options = {
        _NAME: b"drops",
        _DESCRIPTION: b"packets that the switch has dropped",
        _RESOLUTION: _NANOSECONDS,
    }
    return _block(_INTERFACE, described + _options(options))


def dropped(nanoseconds: int, data: bytes, length: int, reason: str) -> bytes:
    """A packet of that interface, with the reason as its comment."""
    fixed = struct.pack("=IIIII", DROPS, nanoseconds >> 32, nanoseconds & 0xFFFFFFFF, len(data), length)
    return _block(_PACKET, fixed + _padded(data) + _options({_COMMENT: reason.encode()}))


def header(interface: str, snap_length: int, program: str) -> bytes:
    """Return the beginning of a file."""
    section = struct.pack("=IHHq", _MAGIC, 1, 0, _UNKNOWN_LENGTH) + _options({_APPLICATION: program.encode()})
    described = struct.pack("=HHI", ETHERNET, 0, snap_length)
    options = _options({_NAME: interface.encode(), _RESOLUTION: _NANOSECONDS})
    return _block(_SECTION, section) + _block(_INTERFACE, described + options)


def packet(nanoseconds: int, data: bytes, length: int, direction: int) -> bytes:
    """A packet of which `data` is kept, and which had `length` bytes."""
    fixed = struct.pack("=IIIII", POD, nanoseconds >> 32, nanoseconds & 0xFFFFFFFF, len(data), length)
    return _block(_PACKET, fixed + _padded(data) + _options({_FLAGS: struct.pack("=I", direction)}))


def statistics(nanoseconds: int, received: int, dropped: int) -> bytes:
    """How many packets there were, and how many of them could not be kept."""
    fixed = struct.pack("=III", 0, nanoseconds >> 32, nanoseconds & 0xFFFFFFFF)
    counts = {_RECEIVED: struct.pack("=Q", received), _DROPPED: struct.pack("=Q", dropped)}
    return _block(_STATISTICS, fixed + _options(counts))


def _block(kind: int, body: bytes) -> bytes:
    size = struct.pack("=I", len(body) + 12)
    return struct.pack("=I", kind) + size + body + size


def _options(options: dict[int, bytes]) -> bytes:
    """Encode texts, cut to the size that an option holds."""
    cut = ((code, value[:MAX_OPTION]) for code, value in options.items())
    parts = [struct.pack("=HH", code, len(value)) + _padded(value) for code, value in cut]
    return b"".join((*parts, bytes(4)))


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 4)
