"""Sealed channels between this agent and every peer: nothing forged and nothing recorded earlier is ever let in.

Two packets make a channel, each with a random half (HELLO, WELCOME); its keys come from both halves and the shared key,
so what was sealed for an earlier channel, of either side, opens in none. A third one, a HELLO that gives the other half back,
proves that the beginner is there now: nothing is kept for a HELLO before that, however often recorded ones are replayed. Within
a channel every packet has a number of its own, which is taken once. No clock is asked.
"""

from __future__ import annotations

from collections import Counter, deque
from typing import TYPE_CHECKING, Annotated, NamedTuple

import msgspec

from antrea.decoding import decode_msgpack
from antrea.errors import Invalid
from antrea.outside.gossip.crypto import NONCE, TAG, Box, Token, derived

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

HELLO, WELCOME, DATA, BOTH = b"\x11", b"\x12", b"\x13", b"\x14"
"""The high half is the version of this form. BOTH is a HELLO behind its length, and DATA: so that none overtakes the other."""
HALF, ID, NUMBER = 16, 8, 8
"""Bytes of a random half, of a channel's name, of a packet's number."""
OVERHEAD = 1 + ID + NUMBER + TAG
"""Bytes that a DATA packet has beside its text."""
WINDOW = 1024
"""Packets that may be overtaken."""
CHANNELS_PER_PEER = 4
"""Its present one, and those that both ends make at the same time."""
WAITING_PER_PEER = 8
"""Texts that wait for a channel."""
PROOFS = 8
"""How often the third packet goes along with a text, while nothing came back by the channel: each may be lost."""
USES = 8
"""Channels that one half of an answer is good for: as many as may be under way at a time."""
DATAGRAM = 1232
"""Bytes that fit the least MTU of IPv6 with its header and UDP's."""
_LENGTH = 2
HELLO_SECONDS = 1.0
"""How long the same half is offered."""


class Greeting(msgspec.Struct, frozen=True, array_like=True):
    """HELLO and WELCOME, unsealed; each gives back the half that it answers, a first HELLO none."""

    sender: str
    receiver: str
    half: Annotated[bytes, msgspec.Meta(min_length=HALF, max_length=HALF)]
    answers: Annotated[bytes, msgspec.Meta(max_length=HALF)] = b""


class KeyOffer(NamedTuple):
    """A half for a peer's greetings, and those for which it was taken."""

    half: bytes
    used: set[bytes]


class OutgoingMessage(NamedTuple):
    """Message to send; `stream`: over TCP."""

    data: bytes
    stream: bool = False


class SealedPacket(NamedTuple):
    """A packet on its way."""

    data: bytes
    stream: bool = False
    answers: bool = False
    """It goes back where the packet came from, if that was a TCP connection."""


class OpenedPacket(NamedTuple):
    """Content of a packet: a text of `sender`, if any, and what has to be sent to `sender` now."""

    sender: str = ""
    text: bytes | None = None
    send: tuple[SealedPacket, ...] = ()


class Channel:
    """One pair of keys with the numbers used and seen."""

    def __init__(self, peer: str, secret: bytes, halves: bytes, names: bytes, *, began: bool) -> None:
        """`secret` is the shared key; `halves` and `names` are the beginner's first; `began`: that is us."""
        self.peer, self.secret = peer, secret
        self.serial = 0
        """Later channels of this process have greater ones."""
        self.proof = b""
        """The third packet, where we began; empty once the other side proved to have the channel."""
        self._proofs = PROOFS
        keys = derived(secret, halves, b"antrea gossip channel " + names, ID + 64)
        self.name, first, second = keys[:ID], keys[ID : ID + 32], keys[ID + 32 :]
        self._out, self._in = Box(first if began else second), Box(second if began else first)
        self._sent = 0
        self._newest, self._seen = 0, 0
        """The highest number seen, and a bit for each of the WINDOW before it."""

    def seal(self, text: bytes) -> bytes:
        """A DATA packet."""
        self._sent += 1
        header = DATA + self.name + self._sent.to_bytes(NUMBER, "big")
        return header + self._out.seal(_nonce(self._sent), text, header)

    def sealed(self, text: OutgoingMessage) -> Iterator[SealedPacket]:
        """Yield the packets from which the other side can open `text`."""
        data = self.seal(text.data)
        if not self.proof or not self._proofs:
            yield SealedPacket(data, text.stream)
            return
        self._proofs -= 1
        both = BOTH + len(self.proof).to_bytes(_LENGTH, "big") + self.proof + data
        parts = (both,) if text.stream or len(both) <= DATAGRAM else (self.proof, data)
        yield from (SealedPacket(part, text.stream) for part in parts)

    def open(self, packet: bytes) -> tuple[bytes | None, str]:
        """The text, or None and why not."""
        header = packet[: 1 + ID + NUMBER]
        number = int.from_bytes(header[1 + ID :], "big")
        back = self._newest - number
        if back >= WINDOW or (back >= 0 and self._seen >> back & 1):
            return None, "replayed"
        text = self._in.open(_nonce(number), packet[len(header) :], header)
        if text is None:
            return None, "forged"
        if back < 0:
            self._seen = (self._seen << -back if -back < WINDOW else 0) & (1 << WINDOW) - 1
            self._newest, back = number, 0
        self._seen |= 1 << back
        return text, ""


def _nonce(number: int) -> bytes:
    return number.to_bytes(NONCE, "big")


class Channels:
    """Channels with all peers. Peers are named by the caller; bounded by their number."""

    def __init__(self, me: str, token: Token) -> None:
        self._me = me
        self._token = token
        self._keys: tuple[bytes, ...] = ()
        self._greeting_boxes: dict[bytes, Box] = {}
        self._peers: set[str] = set()
        self._serial = 0
        self._by_name: dict[bytes, Channel] = {}
        self._of: dict[str, deque[Channel]] = {}
        """All channels of a peer, oldest first."""
        self._now: dict[str, Channel] = {}
        """The one to send by: the latest that the other side proved to have."""
        self._begun: dict[str, tuple[bytes, bytes, float]] = {}
        """Half and packet of the HELLO that is not answered yet, and since when it is offered."""
        self._offers: dict[str, tuple[KeyOffer, ...]] = {}
        """Ours for each peer, the latest first, and the one before."""
        self._waiting: dict[str, deque[OutgoingMessage]] = {}
        self.dropped: Counter[str] = Counter()
        """Packets that changed nothing, by why."""

    def keys(self, keys: Sequence[bytes]) -> None:
        """Shared keys: the first seals, all of them open. Channels of a key that is gone end."""
        if tuple(keys) == self._keys:
            return
        self._keys = tuple(keys)
        self._greeting_boxes = {key: Box(derived(key, b"", b"antrea gossip greeting", 32)) for key in keys}
        self._begun.clear()
        for channel in [other for other in self._by_name.values() if other.secret not in self._keys]:
            self._end(channel)

    def peers(self, peers: Collection[str]) -> None:
        """Whom to talk to; all else is forgotten."""
        for gone in self._peers - set(peers):
            for channel in list(self._of.get(gone, ())):
                self._end(channel)
            self._begun.pop(gone, None)
            self._offers.pop(gone, None)
            self._waiting.pop(gone, None)
        self._peers = set(peers)

    def send(
        self, now: float, peer: str, text: OutgoingMessage, *, renew: bool = False
    ) -> Iterator[SealedPacket]:
        """Yield the packets that deliver `text` to `peer`; `renew`: it may have lost the channel, so begin one as well."""
        if not self._keys or peer not in self._peers:
            return
        channel = self._now.get(peer)
        if channel:
            yield from channel.sealed(text)
        else:
            self._waiting.setdefault(peer, deque(maxlen=WAITING_PER_PEER)).append(text)
        if renew or not channel:
            yield SealedPacket(self._hello(now, peer), text.stream)

    def open(self, packet: bytes) -> OpenedPacket:
        """A packet that came in. Whatever is not by a peer, to us and new changes nothing but a count."""
        kind = packet[:1]
        if kind == DATA and len(packet) >= OVERHEAD:
            return self._data(packet)
        if kind == BOTH:
            return self._both(packet[1 : 1 + _LENGTH], packet[1 + _LENGTH :])
        if kind in (HELLO, WELCOME) and len(packet) > 1 + NONCE + TAG:
            return self._greeting(kind, packet)
        return self._drop("garbled")

    def _both(self, length: bytes, parts: bytes) -> OpenedPacket:
        at = int.from_bytes(length, "big")
        hello, data = parts[:at], parts[at:]
        if hello[:1] != HELLO or data[:1] != DATA:
            return self._drop("garbled")
        first, second = self.open(hello), self.open(data)
        return OpenedPacket(second.sender or first.sender, second.text, (*first.send, *second.send))

    def _drop(self, why: str) -> OpenedPacket:
        self.dropped[why] += 1
        return OpenedPacket()

    def _data(self, packet: bytes) -> OpenedPacket:
        channel = self._by_name.get(packet[1 : 1 + ID])
        if channel is None:
            return self._drop("unknown channel")
        text, why = channel.open(packet)
        if text is None:
            return self._drop(why)
        channel.proof = b""
        used = self._now.get(channel.peer)
        newer = used is None or channel.serial > used.serial
        return OpenedPacket(channel.peer, text, self._take_up(channel) if newer else ())

    def _take_up(self, channel: Channel) -> tuple[SealedPacket, ...]:
        self._now[channel.peer] = channel
        waiting = self._waiting.pop(channel.peer, ())
        proof = (SealedPacket(channel.proof),) if channel.proof and not waiting else ()
        return (*proof, *(packet for text in waiting for packet in channel.sealed(text)))

    def _hello(self, now: float, peer: str) -> bytes:
        half, packet, since = self._begun.get(peer, (b"", b"", 0.0))
        if not half or now - since > HELLO_SECONDS:
            half = self._token(HALF)
            packet = self._greet(HELLO, self._keys[0], Greeting(self._me, peer, half))
            self._begun[peer] = (half, packet, now)
        return packet

    def _greet(self, kind: bytes, key: bytes, greeting: Greeting) -> bytes:
        nonce = self._token(NONCE)
        text = msgspec.msgpack.encode(greeting)
        return kind + nonce + self._greeting_boxes[key].seal(nonce, text, kind)

    def _greeting(self, kind: bytes, packet: bytes) -> OpenedPacket:
        nonce, sealed = packet[1 : 1 + NONCE], packet[1 + NONCE :]
        tried = ((key, box.open(nonce, sealed, kind)) for key, box in self._greeting_boxes.items())
        key, text = next(((key, text) for key, text in tried if text is not None), (b"", None))
        if text is None:
            return self._drop("forged")
        try:
            greeting = decode_msgpack(text, Greeting, "greeting")
        except Invalid:
            return self._drop("garbled")
        if greeting.receiver != self._me or greeting.sender not in self._peers:
            return self._drop("not a peer")
        if kind == WELCOME:
            return self._welcomed(key, greeting)
        return self._proved(key, greeting) if greeting.answers else self._welcome(key, greeting)

    def _welcome(self, key: bytes, hello: Greeting) -> OpenedPacket:
        """Fresh or recorded: the answer is worth nothing to who cannot open it."""
        offers = self._offers.get(hello.sender, ())
        if not offers or offers[0].used:
            self._offers[hello.sender] = offers = (KeyOffer(self._token(HALF), set()), *offers[:1])
        welcome = self._greet(WELCOME, key, Greeting(self._me, hello.sender, offers[0].half, hello.half))
        return OpenedPacket(hello.sender, None, (SealedPacket(welcome, answers=True),))

    def _proved(self, key: bytes, hello: Greeting) -> OpenedPacket:
        offer = next(
            (
                own_offer
                for own_offer in self._offers.get(hello.sender, ())
                if own_offer.half == hello.answers
            ),
            None,
        )
        if offer is None or len(offer.used) >= USES:
            return self._drop("replayed")
        if hello.half in offer.used:
            # it goes along with several texts
            return OpenedPacket(hello.sender)
        offer.used.add(hello.half)
        names = _names(hello.sender, self._me)
        channel = Channel(hello.sender, key, hello.half + offer.half, names, began=False)
        self._add(channel)
        return OpenedPacket(hello.sender, None, self._take_up(channel))

    def _welcomed(self, key: bytes, welcome: Greeting) -> OpenedPacket:
        half, _, _ = self._begun.get(welcome.sender, (b"", b"", 0.0))
        if not half or welcome.answers != half:
            return self._drop("replayed")
        del self._begun[welcome.sender]
        names = _names(self._me, welcome.sender)
        channel = Channel(welcome.sender, key, half + welcome.half, names, began=True)
        channel.proof = self._greet(HELLO, key, Greeting(self._me, welcome.sender, half, welcome.half))
        self._add(channel)
        return OpenedPacket(welcome.sender, None, self._take_up(channel))

    def _add(self, channel: Channel) -> None:
        self._serial += 1
        channel.serial = self._serial
        held = self._of.setdefault(channel.peer, deque())
        held.append(channel)
        self._by_name[channel.name] = channel
        if len(held) > CHANNELS_PER_PEER:
            used = self._now.get(channel.peer)
            self._end(next(other for other in held if other is not used))

    def _end(self, channel: Channel) -> None:
        held = self._of[channel.peer]
        held.remove(channel)
        if not held:
            del self._of[channel.peer]
        del self._by_name[channel.name]
        if self._now.get(channel.peer) is channel:
            del self._now[channel.peer]


def _names(beginner: str, other: str) -> bytes:
    return msgspec.msgpack.encode((beginner, other))
