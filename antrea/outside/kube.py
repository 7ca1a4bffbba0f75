"""Talks to kube-apiserver: get, patch, create, delete, events, and an endless list and watch that decode only the fields we read.

`kube_access` says where the server is; `kube_feed` turns a watch into facts.
"""

from __future__ import annotations

import asyncio
import enum
import os
import random
import socket
import time
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping  # noqa: TC003 (msgspec reads annotations)
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import aiohttp
import msgspec

from antrea.apis.core import Event, EventSource, ListMeta, ObjectMeta, ObjectReference, Status
from antrea.errors import Refused, Unavailable
from antrea.outside import klog, kube_access, tls_buffer
from antrea.outside.clock import stamp
from antrea.outside.pause import Busy, Pause

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

T = TypeVar("T")
log = klog.logger(__name__)

NO_QUERY: Mapping[str, str] = MappingProxyType({})

PAGE = 250
"""Objects asked for at a time. Half of client-go's page size, for decoding one page is one step of the loop: 8 ms of Pods."""
TLS_BUFFER = 32 << 10
LIST_TRIES = 3
REQUEST_SECONDS = 30.0
UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What msgspec raises for what is no JSON, no UTF-8, of another kind, or too deep."""


class PatchKind(enum.Enum):
    """How the server reads a patch; the value is its content type."""

    MERGE = "application/merge-patch+json"
    STRATEGIC = "application/strategic-merge-patch+json"
    APPLY = "application/apply-patch+yaml"


class Page(msgspec.Struct, Generic[T], frozen=True):
    """One answer to a list."""

    metadata: ListMeta = ListMeta()
    items: tuple[T, ...] | None = ()  # null: a list of metadata without any


class Listed(msgspec.Struct, Generic[T], frozen=True):
    """All objects there are: at the start of a watch, and whenever it had to start again."""

    objects: tuple[T, ...]


class Some(msgspec.Struct, Generic[T], frozen=True):
    """Some of all objects there are, page by page: `first` begins a new list and makes pages before it void."""

    objects: tuple[T, ...]
    first: bool
    last: bool
    version: str = ""
    """resourceVersion of the whole list."""


class Put(msgspec.Struct, Generic[T], frozen=True):
    """This object is new or has changed."""

    object: T


class Drop(msgspec.Struct, Generic[T], frozen=True):
    """This object is gone; `object` is its last state."""

    object: T


class _WatchLine(msgspec.Struct, frozen=True):
    type: str
    object: msgspec.Raw


class _OnlyMeta(msgspec.Struct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()


class _Gone(Unavailable):
    """410: what we ask to continue is no longer kept; list again."""


class Kube:
    """One server, one identity, one pool of connections; use it as `async with Kube(...) as kube`."""

    def __init__(
        self,
        access: kube_access.Access,
        *,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        chance: Callable[[float, float], float] = random.uniform,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.access = access
        self._tls = access.tls()
        self._sleep = sleep
        self._chance = chance
        self._now = now
        self._opened: aiohttp.ClientSession | None = None
        self._closed = False

    @classmethod
    def in_cluster(cls, override: str = "") -> Kube:
        """As the ServiceAccount of this Pod. Raises Invalid if this is no Pod."""
        return cls(kube_access.in_cluster(os.environ, override=override))

    @classmethod
    def from_kubeconfig(cls, path: Path | str, override: str = "") -> Kube:
        """As the current context of a kubeconfig file. Raises Invalid."""
        return cls(kube_access.kubeconfig(path, override=override))

    @classmethod
    def connect(cls, path: Path | str, override: str = "") -> Kube:
        """By the kubeconfig at `path`, or as this Pod if it is empty, as a `clientConnection` says. Raises Invalid."""
        return cls.from_kubeconfig(path, override) if path else cls.in_cluster(override)

    async def __aenter__(self) -> Kube:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """End all connections, which takes a moment; who asks from now on gets Unavailable."""
        self._closed = True
        if self._opened:
            await self._opened.close()

    @property
    def _session(self) -> aiohttp.ClientSession:
        if self._closed:
            raise Unavailable(f"kube-apiserver {self.access.url}: our connections to it are closed")
        if self._opened is None:
            tls_buffer.keep_small(TLS_BUFFER)
            connector = aiohttp.TCPConnector(ssl=self._tls, limit=0, socket_factory=_kept_alive)
            self._opened = aiohttp.ClientSession(connector=connector)
        return self._opened

    def _request(
        self, method: str, path: str, *, query: Mapping[str, str], body: bytes = b"", content: str = "",
        seconds: float = REQUEST_SECONDS,
    ) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:  # fmt: skip
        headers = {"Accept": "application/json", "User-Agent": "antrea", **self.access.authorization()}
        if content:
            headers["Content-Type" if body else "Accept"] = content
        return self._session.request(
            method,
            self.access.url + path,
            params=dict(query),
            data=body or None,
            headers=headers,
            server_hostname=self.access.server_name or None,
            timeout=aiohttp.ClientTimeout(total=seconds, sock_connect=10),
            allow_redirects=False,
        )

    async def _answer(
        self, method: str, path: str, query: Mapping[str, str], body: bytes = b"", content: str = ""
    ) -> tuple[int, bytes]:
        """Status and body of a 2xx or 404. Raises Unavailable, Refused, _Gone."""
        try:
            async with self._request(method, path, query=query, body=body, content=content) as response:
                answer = await response.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as why:
            raise Unavailable(f"kube-apiserver {self.access.url}: {_words(why)}") from why
        if response.status != 404:
            _raise_for(response.status, answer, path)
        return response.status, answer

    async def get(self, path: str, kind: type[T], query: Mapping[str, str] = NO_QUERY) -> T | None:
        """The object at `path` such as /api/v1/nodes/n1, or None if there is none. Raises Unavailable, Refused."""
        status, answer = await self._answer("GET", path, query)
        return None if status == 404 else _decoded(answer, kind, path)

    async def patch(
        self, path: str, body: Any, how: PatchKind = PatchKind.MERGE, *, manager: str = "antrea", force: bool = True,
        within: int = 0,
    ) -> None:  # fmt: skip
        """Change only what `body` names. With APPLY, `manager` owns those fields and `force` takes them over.

        `within` seconds, unless 0, both sides give up: the server does not write after as many again.
        Raises Unavailable; Refused with the API's message, also if there is no such object.
        """
        query = {"fieldManager": manager}
        if how is PatchKind.APPLY:
            query["force"] = str(force).lower()
        if within:
            query["timeout"] = f"{within}s"
        try:
            async with asyncio.timeout(within or None):
                await self._write("PATCH", path, query, body, how.value)
        except TimeoutError as why:
            raise Unavailable(f"kube-apiserver {self.access.url}: no answer within {within} s") from why

    async def create(self, path: str, body: Any) -> None:
        """Make the object `body` in the collection `path`. Raises Unavailable, Refused."""
        await self._write("POST", path, {}, body, "application/json")

    async def delete(self, path: str) -> None:
        """The object at `path` goes, or is gone already. Raises Unavailable, Refused."""
        await self._answer("DELETE", path, NO_QUERY)

    async def ask(self, path: str, question: Any, kind: type[T]) -> T:
        """The answer to a review such as a SubjectAccessReview, which is created but not kept. Raises Unavailable, Refused."""
        status, answer = await self._answer(
            "POST", path, {}, msgspec.json.encode(question), "application/json"
        )
        if status == 404:
            raise Refused([path], _message(answer) or f"{path} not found")
        return _decoded(answer, kind, path)

    async def _write(self, method: str, path: str, query: Mapping[str, str], body: Any, content: str) -> None:
        status, answer = await self._answer(method, path, query, msgspec.json.encode(body), content)
        if status == 404:
            raise Refused([path], _message(answer) or f"{path} not found")

    async def create_event(
        self, about: ObjectReference, reason: str, message: str, *, warning: bool = False,
        component: str = "antrea-agent", host: str = "", at: float = 0.0,
    ) -> None:  # fmt: skip
        """Tell the user in `kubectl describe`; Events about Nodes go to the Namespace default.

        `at` is when it happened, in seconds of the epoch; 0: now. Raises Unavailable; Refused, also if it was told before.
        """
        at = at or time.time()
        namespace = about.namespace or "default"
        # the same for the same, so that one that came through without our hearing of it is not there twice
        mark = zlib.crc32(f"{component}\n{host}\n{reason}\n{message}".encode(errors="replace")) & 0xFFFF
        name = f"{about.name}.{int(at * 1e6):x}{mark:04x}"
        event = Event(
            metadata=ObjectMeta(name=name, namespace=namespace),
            involved_object=about,
            reason=reason,
            message=message[:1024],
            type="Warning" if warning else "Normal",
            source=EventSource(component, host),
            first_timestamp=stamp(at),
            last_timestamp=stamp(at),
        )
        await self.create(f"/api/v1/namespaces/{namespace}/events", event)

    async def list(
        self, path: str, kind: type[T], query: Mapping[str, str] = NO_QUERY, content: str = ""
    ) -> tuple[tuple[T, ...], str]:
        """All objects of the collection `path`, read page by page, and the resourceVersion to watch from.

        `content` is the type that is asked for, unless JSON. Raises Unavailable, Refused.
        """
        objects: list[T] = []
        version = ""
        async for page, version in self._list(path, kind, query, content):  # noqa: B007 (that of the last page)
            objects = [*(() if page.first else objects), *page.objects]
        return tuple(objects), version

    async def _list(
        self, path: str, kind: type[T], query: Mapping[str, str], content: str = ""
    ) -> AsyncIterator[tuple[Some[T], str]]:
        """Pages, each with its resourceVersion. Raises Unavailable, Refused."""
        for _ in range(LIST_TRIES):
            try:
                async for found in self._pages(path, kind, query, content):
                    yield found
            except _Gone:
                log.v(2).info("List took longer than the server keeps its pages", path=path)
            else:
                return
        raise Unavailable(f"{path}: list expired {LIST_TRIES} times")

    async def _pages(
        self, path: str, kind: type[T], query: Mapping[str, str], content: str
    ) -> AsyncIterator[tuple[Some[T], str]]:
        token: dict[str, str] = {}
        while True:
            asked = {**query, "limit": str(PAGE), **token}
            status, answer = await self._answer("GET", path, asked, content=content)
            if status == 404:
                raise Refused([path], _message(answer) or f"{path} not found")
            # others have their turn between the parts of a large page: read, decoded, taken in
            await asyncio.sleep(0)
            page = _decoded(answer, Page[kind], path)  # type: ignore[valid-type]
            await asyncio.sleep(0)
            more, version = page.metadata.continue_, page.metadata.resource_version
            yield Some(page.items or (), first=not token, last=not more, version=version), version
            if not more:
                return
            token = {"continue": more}

    async def watch(
        self,
        path: str,
        kind: type[T],
        query: Mapping[str, str] = NO_QUERY,
        *,
        trouble: Callable[[str], None] = lambda _: None,
    ) -> AsyncIterator[Listed[T] | Put[T] | Drop[T]]:
        """Everything that happens to the collection `path`, forever, starting with all that is there.

        `query` narrows it: labelSelector, fieldSelector. A break is resumed where it was, or by a new Listed if
        the server no longer knows; failures are logged, told to `trouble` ("" once it is over) and tried again.
        """
        objects: list[T] = []
        async for change in self.watch_pages(path, kind, query, trouble=trouble):
            if not isinstance(change, Some):
                yield change
                continue
            objects = [*(() if change.first else objects), *change.objects]
            if change.last:
                yield Listed(tuple(objects))
                objects = []

    async def watch_pages(
        self,
        path: str,
        kind: type[T],
        query: Mapping[str, str] = NO_QUERY,
        *,
        trouble: Callable[[str], None] = lambda _: None,
    ) -> AsyncIterator[Some[T] | Put[T] | Drop[T]]:
        """As `watch`, but a list comes in pages, so that a large one is never in memory whole, nor taken in at once."""
        pause = Pause(self._sleep, self._chance, self._now)
        version = ""

        while True:
            try:
                if not version:
                    async for page, listed in self._list(path, kind, query):
                        yield page
                        version = listed if page.last else ""
                    trouble("")
                before = version
                async for change, seen in self._watch_once(
                    path, kind, before, query, partial(pause.opened, trouble)
                ):
                    version = seen
                    pause.reset()
                    if change is not None:
                        yield change
                if version == before:
                    await pause.wait()
            except _Gone:
                version = ""
                pause.forgotten()
                await pause.wait()
            except (Unavailable, Refused) as why:
                pause.interrupts(path, why)
                trouble(str(why))
                if isinstance(why, Refused):
                    version = ""
                await pause.wait()

    async def _watch_once(
        self, path: str, kind: type[T], version: str, query: Mapping[str, str], opened: Callable[[], None]
    ) -> AsyncIterator[tuple[Put[T] | Drop[T] | None, str]]:
        """Changes after `version`, each with its own, until the server ends the watch; None is a bookmark.

        `opened` is called when the server has taken it up: a quiet collection then tells nothing for minutes.
        """
        # the server ends a watch after this time, and not all at once
        seconds = self._chance(300, 600)
        asked = {
            **query, "watch": "true", "allowWatchBookmarks": "true", "resourceVersion": version,
            "timeoutSeconds": str(int(seconds)),
        }  # fmt: skip
        async for line in self.stream(path, asked, seconds + 30, opened):
            yield _change(line, kind, path)

    async def stream(
        self, path: str, query: Mapping[str, str], seconds: float, opened: Callable[[], None]
    ) -> AsyncIterator[bytes]:
        """The lines of an answer as they come, until the server ends it or `seconds` are over.

        `opened` is called when the server has taken the request up. Raises Unavailable, Refused.
        """
        try:
            async with self._request("GET", path, query=query, seconds=seconds) as response:
                if response.status != 200:
                    _raise_for(response.status, await response.read(), path)
                    raise Refused([path], f"{path}: unexpected answer {response.status}")
                opened()
                async for line in _lines(response.content.iter_any()):
                    yield line
        except (aiohttp.ClientError, TimeoutError, OSError) as why:
            raise Unavailable(f"{self.access.url}: {_words(why)}") from why


def _kept_alive(address: tuple[Any, ...]) -> socket.socket:
    """A socket that notices within 30 s that the other end is gone, so that a watch does not wait forever."""
    family, kind, protocol = address[:3]
    made = socket.socket(family, kind, protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 15)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 30_000)
    return made


async def _lines(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Lines of any length: an object may be larger than any buffer limit."""
    rest: list[bytes] = []
    async for chunk in chunks:
        *ended, last = chunk.split(b"\n")
        for line in ended:
            whole = b"".join([*rest, line])
            rest = []
            if whole:
                yield whole
        if last:
            rest.append(last)


def _change(line: bytes, kind: type[T], path: str) -> tuple[Put[T] | Drop[T] | None, str]:
    event = _decoded(line, _WatchLine, path)
    if event.type == "ERROR":
        status = _decoded(event.object, Status, path)
        _raise_for(status.code, bytes(event.object), path)
        raise Unavailable(f"{path}: {status.message}")
    version = _decoded(event.object, _OnlyMeta, path).metadata.resource_version
    if event.type == "BOOKMARK":
        return None, version
    found = _decoded(event.object, kind, path)
    return (Drop(found) if event.type == "DELETED" else Put(found)), version


def _decoded(answer: bytes | msgspec.Raw, kind: type[T], path: str) -> T:
    try:
        return msgspec.json.decode(answer, type=kind)
    except UNREADABLE as why:
        raise Unavailable(f"{path}: answer is not understood: {why}") from why


def _raise_for(status: int, answer: bytes, path: str) -> None:
    if status < 300:
        return
    message = _message(answer) or f"{path}: answer {status}"
    if status == 410:
        raise _Gone(message)
    if status == 429:
        raise Busy(message)
    if status >= 500:
        raise Unavailable(message)
    raise Refused([path], message)


def _message(answer: bytes) -> str:
    try:
        return msgspec.json.decode(answer, type=Status).message
    except UNREADABLE:
        return answer.decode(errors="replace").strip()[:200]


def _words(why: BaseException) -> str:
    return str(why) or type(why).__name__
