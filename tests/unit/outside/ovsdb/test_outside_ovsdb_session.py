"""Framing of JSON-RPC without separators, and one connection's calls."""

from __future__ import annotations

import asyncio
import random
import socket
import time
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from antrea.errors import Unavailable
from antrea.outside.ovsdb.session import RpcError, Session, Splitter

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

OBJECTS: list[dict[str, Any]] = [
    {"id": 1, "result": [], "error": None},
    {"text": 'braces {{ and "quotes\\" } in a string', "ü": "\\"},
    {"deep": {"er": [{"a": {}}, {}]}},
    {},
]
WIRE = b"".join(msgspec.json.encode(one) for one in OBJECTS)


@pytest.mark.parametrize("size", [1, 2, 3, 7, len(WIRE)])
def test_objects_come_whole_however_the_bytes_are_cut(size: int) -> None:
    splitter = Splitter()
    pieces = [WIRE[start : start + size] for start in range(0, len(WIRE), size)]
    assert [msgspec.json.decode(text) for piece in pieces for text in splitter.feed(piece)] == OBJECTS


def test_random_cuts_of_random_objects_lose_nothing() -> None:
    chance = random.Random(7)
    alphabet = '{}"\\ab,:[]'
    many = [
        {"".join(chance.choices(alphabet, k=5)): "".join(chance.choices(alphabet, k=20))} for _ in range(200)
    ]
    wire = b" \n".join(msgspec.json.encode(one) for one in many)
    splitter, found = Splitter(), []
    while wire:
        cut = chance.randint(1, 40)
        found += [msgspec.json.decode(text) for text in splitter.feed(wire[:cut])]
        wire = wire[cut:]
    assert found == many


def test_a_text_of_megabytes_costs_what_its_length_is_however_it_is_cut() -> None:
    wire = msgspec.json.encode({"result": 'a "quoted" line \\\n' * 200_000})
    splitter, begun = Splitter(), time.process_time()
    found = [one for at in range(0, len(wire), 4096) for one in splitter.feed(wire[at : at + 4096])]
    assert found == [wire]
    # looked at from its beginning for each piece it takes ten seconds and more
    assert time.process_time() - begun < 2


class Peer:
    """A session and the other end of its socket."""

    def __init__(self, session: Session, far: socket.socket) -> None:
        self.session = session
        self._far = far
        self._running = asyncio.create_task(session.run())

    async def says(self, *messages: Any) -> None:
        wire = b"".join(map(msgspec.json.encode, messages))
        await asyncio.get_running_loop().sock_sendall(self._far, wire)

    async def hears(self, count: int = 1) -> list[Any]:
        splitter, heard = Splitter(), list[Any]()
        while len(heard) < count:
            data = await asyncio.get_running_loop().sock_recv(self._far, 65536)
            heard += [msgspec.json.decode(text) for text in splitter.feed(data)]
        return heard

    async def leaves(self) -> None:
        self._far.close()
        await self._running


@pytest.fixture
async def peer() -> AsyncIterator[Peer]:
    near, far = socket.socketpair()
    far.setblocking(False)
    made = Peer(Session(*await asyncio.open_connection(sock=near)), far)
    yield made
    await made.leaves()


async def test_an_echo_is_answered_with_its_own_words(peer: Peer) -> None:
    await peer.says({"method": "echo", "params": ["x"], "id": "echo"})
    assert await peer.hears() == [{"id": "echo", "result": ["x"], "error": None}]


async def test_answers_find_their_calls_in_any_order(peer: Peer) -> None:
    calls = [asyncio.create_task(peer.session.call("get", number)) for number in (1, 2)]
    assert [call["params"] for call in await peer.hears(2)] == [[1], [2]]
    no = {"error": "no", "details": "why"}
    await peer.says({"id": 2, "result": "two", "error": None}, {"id": 1, "error": no})
    assert await calls[1] == "two"
    with pytest.raises(RpcError, match=r"^no: why$"):
        await calls[0]


async def test_a_list_is_taken_before_the_notification_behind_it(peer: Peer) -> None:
    seen: list[Any] = []
    peer.session.on_notification = lambda method, params: seen.append((method, params))
    call = asyncio.create_task(peer.session.call("monitor", then=seen.append))
    await peer.hears()
    await peer.says({"id": 1, "result": "list"}, {"method": "update3", "params": [1], "id": None})
    assert await call == "list"
    assert seen == ["list", ("update3", [1])]


async def test_a_lost_connection_fails_the_calls_that_wait_and_those_to_come(peer: Peer) -> None:
    call = asyncio.create_task(peer.session.call("get"))
    await peer.hears()
    await peer.leaves()
    with pytest.raises(Unavailable, match="ended before its answer"):
        await call
    with pytest.raises(Unavailable):
        await peer.session.call("get")
