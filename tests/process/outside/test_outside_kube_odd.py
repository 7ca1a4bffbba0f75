"""Whatever a server answers, a client of the API raises one of our errors or gets an answer, and a watch goes on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable  # noqa: TC003 (an annotation that is evaluated)
from contextlib import asynccontextmanager
from typing import Any

import pytest

from antrea.apis.core import Node
from antrea.errors import Refused, Unavailable
from antrea.outside.kube.access import Access
from antrea.outside.kube.answer import Listed
from antrea.outside.kube.client import Kube

NODES = "/api/v1/nodes"


def body(text: bytes, status: str = "200 OK", *headers: str) -> bytes:
    lines = (f"HTTP/1.1 {status}", f"Content-Length: {len(text)}", *headers, "Connection: close")
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + text


def chunks(*parts: bytes, end: bytes = b"") -> bytes:
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    return head + b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts) + end


ODD = {
    "nothing": b"",
    "half a head": b"HTTP/1.1 200 OK\r\nContent-Le",
    "no HTTP": b"SSH-2.0-OpenSSH_9.2\r\n",
    "noise": bytes(range(256)) * 8,
    "a long line": b"HTTP/1.1 200 " + b"x" * 100_000,
    "a bad length": b"HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n",
    "two lengths": b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
    "a bad header": b"HTTP/1.1 200 OK\r\n\xff\xfe: \x01\r\n\r\n{}",
    "an empty body": body(b""),
    "null": body(b"null"),
    "a number": body(b"12"),
    "an array": body(b"[]"),
    "no JSON": body(b"<html>"),
    "no UTF-8": body(b'{"metadata": {"name": "\xff\xfe"}, "items": [{"metadata": {"name": "\xff"}}]}'),
    "no UTF-8 in a key": body(b'{"\xff": 1}'),
    "metadata null": body(b'{"metadata": null, "items": null}'),
    "items of another kind": body(b'{"metadata": {}, "items": [1, null, "a"]}'),
    "a deep body": body(b'{"metadata": {}, "x": ' + b"[" * 5000 + b"]" * 5000 + b"}"),
    "less than was said": b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n{}",
    "no gzip": body(b"no gzip", "200 OK", "Content-Encoding: gzip"),
    "an unknown encoding": body(b"{}", "200 OK", "Content-Encoding: br"),
    "a broken chunk": chunks(end=b"zz\r\n{}\r\n"),
    "a chunk that ends": chunks(b'{"type": "ADDED", "obj', end=b"ff\r\n{"),
    "half a line": chunks(b'{"type": "ADDED", "obj'),
    "a line of no JSON": chunks(b"hello\n"),
    "a line of no UTF-8": chunks(b'{"type": "\xff", "object": {}}\n'),
    "an object of no UTF-8": chunks(b'{"type": "ADDED", "object": {"metadata": {"name": "\xff"}}}\n'),
    "a line of null": chunks(b"null\n"),
    "an object of null": chunks(b'{"type": "ADDED", "object": null}\n'),
    "a deep line": chunks(b'{"type": "ADDED", "object": ' + b"[" * 5000 + b"]" * 5000 + b"}\n"),
    "an unknown event": chunks(b'{"type": "SAID", "object": {}}\n'),
    "an error of nothing": chunks(b'{"type": "ERROR", "object": {}}\n'),
    "an error of null": chunks(b'{"type": "ERROR", "object": null}\n'),
    "an error of no UTF-8": chunks(b'{"type": "ERROR", "object": {"message": "\xff", "code": 500}}\n'),
    "another page for ever": body(b'{"metadata": {"continue": "x"}, "items": []}'),
    "to switch protocols": b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
    "to go on first": b"HTTP/1.1 100 Continue\r\n\r\n",
    "another place": body(b"", "307 Temporary Redirect", "Location: http://127.0.0.1:1/"),
    "another place of no address": body(b"", "301 Moved", "Location: ://[["),
    "a cookie": body(b"{}", "200 OK", "Set-Cookie: \x00=;;=;"),
    "no such status": body(b"", "999 What"),
    **{f"{code} without a word": body(b"", f"{code} x") for code in (204, 400, 401, 403, 404, 409, 410, 422)},
    **{f"{code} of no UTF-8": body(b'{"message": "\xff"}', f"{code} x") for code in (403, 410, 429, 500)},
    **{f"{code} of null": body(b'{"message": null}', f"{code} x") for code in (410, 429, 500, 503, 504)},
}
ASKED: dict[str, Callable[[Kube], Awaitable[Any]]] = {
    "get": lambda kube: kube.get(f"{NODES}/a", Node),
    "list": lambda kube: kube.list(NODES, Node),
    "patch": lambda kube: kube.patch(f"{NODES}/a", {}),
    "create": lambda kube: kube.create(NODES, {}),
    "delete": lambda kube: kube.delete(f"{NODES}/a"),
    "ask": lambda kube: kube.ask(NODES, {}, Node),
    "stream": lambda kube: all_of(kube.stream(NODES, {}, 30, lambda: None)),
}


WRITES = {"patch", "create", "delete"}
ANSWERED = {
    **{key: {*ASKED} for key in ("no UTF-8 in a key", "another page for ever")},
    "items of another kind": {*ASKED} - {"list"},
    **{
        key: {*WRITES, "stream"}
        for key in (
            "an empty body",
            "null",
            "a number",
            "an array",
            "no JSON",
            "no UTF-8",
            "metadata null",
            "a deep body",
        )
    },
    "204 without a word": WRITES,
    "404 without a word": {"get", "delete"},
}
"""What has an answer: of a write only the status counts, and a stream gives the lines of a log."""
REFUSED = {
    **{
        key: {*ASKED}
        for key in (
            name for name in ODD if name.startswith(("400", "401", "403", "409", "422", "another place"))
        )
    },
    "404 without a word": {*ASKED} - {"get", "delete"},
    "204 without a word": {"stream"},
}
"""What the server has refused; all else is to be tried again."""


async def all_of(lines: AsyncIterator[bytes]) -> list[bytes]:
    return [line async for line in lines]


class Server:
    """Answers every request with the next of `answers`, for ever with the last one; resets every other connection."""

    def __init__(self, *answers: bytes) -> None:
        self.answers = [*answers]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.read(1 << 16)
            writer.write(self.answers[0])
            await writer.drain()
            del self.answers[: len(self.answers) > 1]
            if len(self.answers) % 2:
                # what is on its way arrives first
                await asyncio.sleep(0.01)
                writer.transport.abort()
        except ConnectionError:
            return
        finally:
            writer.close()


@asynccontextmanager
async def odd(*answers: bytes) -> AsyncIterator[int]:
    server = await asyncio.start_server(Server(*answers).serve, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


async def no_sleep(_: float) -> None:
    await asyncio.sleep(0)


def client(port: int, scheme: str = "http") -> Kube:
    return Kube(Access(f"{scheme}://127.0.0.1:{port}"), sleep=no_sleep)


@pytest.mark.parametrize(
    "answer", [b"", b"\x15\x03\x01\x00\x02\x02\x28", ODD["null"]], ids=["end", "alert", "HTTP"]
)
async def test_kube_who_does_not_speak_tls_is_unavailable(answer: bytes) -> None:
    async with odd(answer) as port, client(port, "https") as kube:
        for ask in ASKED.values():
            with pytest.raises(Unavailable, match=r"127\.0\.0\.1"):
                await ask(kube)


@pytest.mark.parametrize("name", ODD)
async def test_kube_raises_one_of_our_errors_or_answers(name: str) -> None:
    answered, refused = set(), set()
    for number, (what, ask) in enumerate(ASKED.items()):
        answers = [ODD[name]] * (3 + number % 2)
        async with odd(*answers, body(b"{}")) as port, client(port) as kube, asyncio.timeout(30):
            try:
                await ask(kube)
            except Unavailable:
                continue
            except Refused:
                refused.add(what)
            else:
                answered.add(what)
    assert answered == ANSWERED.get(name, set())
    assert refused == REFUSED.get(name, set())


@pytest.mark.parametrize("answer", ODD.values(), ids=ODD)
async def test_kube_a_watch_goes_on_whatever_answered_it(answer: bytes) -> None:
    """Both its list and what comes after that."""
    one = b'{"metadata": {"name": "%s", "resourceVersion": "%d"}}'
    listed = body(b'{"metadata": {"resourceVersion": "5"}, "items": [%s]}' % (one % (b"a", 5)))
    later = chunks(b'{"type": "ADDED", "object": %s}\n' % (one % (b"b", 7)), end=b"0\r\n\r\n")
    gone = chunks(b'{"type": "ERROR", "object": {"code": 410}}\n', end=b"0\r\n\r\n")
    async with (
        odd(answer, answer, listed, answer, answer, gone, listed, later) as port,
        client(port) as kube,
        asyncio.timeout(30),
    ):
        seen = set()
        async for change in kube.watch(NODES, Node):
            seen |= {
                n.metadata.name for n in (change.objects if isinstance(change, Listed) else [change.object])
            }
            if {"a", "b"} <= seen:
                return
    pytest.fail(f"the watch ended with {seen}")
