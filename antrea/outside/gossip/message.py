"""Messages between agents, and their form in MessagePack; a stranger's never get here unsealed.

Source: Das, Gupta, Motivala, "SWIM: Scalable Weakly-consistent Infection-style Process Group Membership Protocol" (2002)
"""

from __future__ import annotations

import enum
from typing import Annotated, TypeAlias

import msgspec
from msgspec import Meta

from antrea.decoding import guarded

Name: TypeAlias = Annotated[str, Meta(min_length=1, max_length=253)]
Count: TypeAlias = Annotated[int, Meta(ge=0, lt=2**62)]


LEAP = 1 << 16
"""Numbers of a member and of its views rise one by one. A number of others that is so much higher at once, or of the member itself
so much lower, never came from that member: a number that it cannot exceed would silence it for good."""


class Standing(enum.IntEnum):
    """State of a member; of one incarnation, the greater one wins."""

    ALIVE = 0
    SUSPECT = 1
    DEAD = 2
    LEFT = 3
    """The member itself sent it."""


class Update(msgspec.Struct, frozen=True, array_like=True):
    """One member's standing; `witness` is who found it so, for an accusation."""

    node: Name
    incarnation: Count
    """Only the member itself raises it, to refute."""
    standing: Standing
    witness: Annotated[str, Meta(max_length=253)] = ""

    @property
    def verb(self) -> str:
        """Verb of the state in messages."""
        if self.standing == Standing.LEFT:
            return "says goodbye"
        return f"says {self.witness}" if self.witness else "says itself"


class View(msgspec.Struct, frozen=True, array_like=True):
    """State of a member's switch that `observer` sees by BFD; of one observer and member, the greater number wins.

    Of the observer's own switch, `unsure` announces a restart of both.
    """

    observer: Name
    node: Name
    number: Count
    up: bool | None
    """None: without a result."""
    unsure: bool = False
    """It observes, and may have a result soon."""


Views: TypeAlias = Annotated[tuple[View, ...], Meta(max_length=20_000)]
Updates: TypeAlias = Annotated[tuple[Update, ...], Meta(max_length=20_000)]


class Ping(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """Asks for an Ack of the same number."""

    number: Count
    incarnation: Count
    """The sender's own, in every message."""
    updates: Updates = ()


class Ack(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """Answers a Ping, or a Relay whose target answered."""

    number: Count
    incarnation: Count
    updates: Updates = ()


class Relay(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """Asks to ping `target` for the sender."""

    number: Count
    incarnation: Count
    target: Name
    updates: Updates = ()


class Gossip(msgspec.Struct, frozen=True, array_like=True, tag=4):
    """Only rumours and views."""

    incarnation: Count
    updates: Updates = ()
    views: Views = ()


class Sync(msgspec.Struct, frozen=True, array_like=True, tag=5):
    """All that the sender holds, of itself, too; over TCP."""

    incarnation: Count
    asks: bool
    """For the other's table in return."""
    updates: Updates = ()
    views: Views = ()


class Silence(msgspec.Struct, frozen=True, array_like=True, tag=6):
    """Networks in which the sender's neighbours do not receive its answers; members of a version before drop it."""

    networks: Annotated[tuple[Annotated[str, Meta(max_length=64)], ...], Meta(max_length=64)]


class Carried(msgspec.Struct, frozen=True, array_like=True, tag=7):
    """Bytes of a feature for one member, over TCP; members of a version before drop them."""

    purpose: Annotated[str, Meta(min_length=1, max_length=64)]
    data: Annotated[bytes, Meta(max_length=1 << 19)]


Message: TypeAlias = Ping | Ack | Relay | Gossip | Sync

_ENCODER = msgspec.msgpack.Encoder()
_DECODER: msgspec.msgpack.Decoder[Message | Silence | Carried] = msgspec.msgpack.Decoder(
    Message | Silence | Carried
)


def encode(message: Message | Silence | Carried) -> bytes:
    """The message in MessagePack."""
    return _ENCODER.encode(message)


def size(item: Update | View) -> int:
    """Bytes that it takes in a message."""
    return len(_ENCODER.encode(item))


def decode_message(data: bytes) -> Message | Silence | Carried:
    """Raises Invalid, for anything that is not a message as described here."""
    return guarded("gossip", _DECODER.decode, data)
