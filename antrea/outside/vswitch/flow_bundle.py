"""A small bundle of flows without a program in between: ovs-ofctl takes tens of milliseconds to start on a busy machine.

Each is a connection of its own to the bridge's management socket. A bundle of which the switch has refused a message would be
committed without it, so that the commit waits for a barrier; a bundle whose connection ends is forgotten. One flow alone is
sent as it is: it is applied or not, and the switch is asked once instead of twice.
Source: OpenFlow Switch Specification 1.5.1, 7.3.9
"""

from __future__ import annotations

import asyncio
import struct
from typing import TYPE_CHECKING

from antrea.errors import Unavailable
from antrea.outside.vswitch.message import ECHO_REPLY, ECHO_REQUEST, HELLO, message, next_message

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

MAX_FLOWS = 32
"""Flows of a small bundle: OVS reads fifty messages of a connection in one go, and more are worth a program."""
WITHIN = 2.0
"""Seconds until the outcome is given up."""
_ERROR, _FLOW_MOD, _BARRIER, _PASSED, _CONTROL, _ADD = 1, 14, 20, 21, 33, 34
_OPEN, _COMMIT, _COMMITTED = 0, 4, 5
_ID, _FLAGS = 1, 3
"""Id and flags of a bundle that is applied in order and whole, or not at all."""


async def commit(socket: Path, flow_mods: Sequence[bytes]) -> None:
    """Apply bodies of flow modifications atomically; none at all changes nothing.

    Raises Unavailable if they were refused or the outcome is unknown.
    """
    try:
        async with asyncio.timeout(WITHIN):
            await _committed(socket, flow_mods)
    except (OSError, asyncio.IncompleteReadError) as error:
        raise Unavailable(f"outcome of a bundle is unknown: {error}") from error


async def _committed(socket: Path, flow_mods: Sequence[bytes]) -> None:
    reader, writer = await asyncio.open_unix_connection(str(socket))
    try:
        writer.write(b"".join((message(HELLO, 1), *_messages(flow_mods))))
        while True:
            kind, number, body = await next_message(reader)
            if kind == ECHO_REQUEST:
                writer.write(message(ECHO_REPLY, number, body))
            elif kind == _ERROR:
                raise Unavailable(f"the switch refused a bundle: error {body[:4].hex()}")
            elif kind == _PASSED and len(flow_mods) == 1:
                return
            elif kind == _PASSED:
                writer.write(message(_CONTROL, number + 1, struct.pack("!IHH", _ID, _COMMIT, _FLAGS)))
            elif kind == _CONTROL and struct.unpack("!IH", body[:6])[1] == _COMMITTED:
                return
    finally:
        writer.close()


def _messages(flow_mods: Sequence[bytes]) -> list[bytes]:
    """One flow, or those of a bundle, which is open then; and a barrier."""
    if len(flow_mods) == 1:
        return [message(_FLOW_MOD, 2, flow_mods[0]), message(_BARRIER, 3)]
    inner = [message(_FLOW_MOD, number, body) for number, body in enumerate(flow_mods, 3)]
    added = [
        message(_ADD, number, struct.pack("!I2xH", _ID, _FLAGS) + body)
        for number, body in enumerate(inner, 3)
    ]
    return [
        message(_CONTROL, 2, struct.pack("!IHH", _ID, _OPEN, _FLAGS)),
        *added,
        message(_BARRIER, len(added) + 3),
    ]
