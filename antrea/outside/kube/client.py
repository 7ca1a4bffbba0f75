"""Client of kube-apiserver: get, patch, create, delete, events, and an endless list and watch that decode only the fields we read.

`access.py` finds the server and the credentials; `resource_feed.py` turns a watch into facts.
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
from typing import TYPE_CHECKING, Any, Final, TypeVar

import aiohttp
import msgspec

from antrea.apis.core import Event, EventSource, ObjectMeta, ObjectReference
from antrea.apis.path import is_path
from antrea.errors import Refused, Unavailable
from antrea.outside.kube.access import in_cluster
from antrea.outside.kube.answer import (
    Drop,
    Gone,
    Listed,
    NoCollection,
    Odd,
    Put,
    Some,
    change_of,
    decoded,
    message_of,
    page_of,
    raise_for,
)
from antrea.outside.kube.backoff import Backoff
from antrea.outside.kube.clock import stamp
from antrea.outside.kube.kubeconfig import kubeconfig
from antrea.outside.kube.override import Override
from antrea.outside.kube.user_agent import user_agent
from antrea.outside.log import klog
from antrea.outside.tls import buffer as tls_buffer

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from antrea.outside.kube.access import Access

MAX_NAME = 253
"""Characters of an object's name."""
T = TypeVar("T")
log = klog.logger(__name__)

NO_QUERY: Mapping[str, str] = MappingProxyType({})

PAGE = 250
"""Objects asked for at a time. Half of client-go's page size, for decoding one page is one step of the loop: 8 ms of Pods."""
TLS_BUFFER = 32 << 10
LIST_TRIES = 3
REQUEST_SECONDS = 30.0


METADATA: Final = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
METADATA_LIST: Final = METADATA.replace("Metadata;", "MetadataList;")
"""Accept header that requests the metadata of objects alone, in a watch and in a list."""


class PatchKind(enum.Enum):
    """How the server reads a patch; the value is its content type."""

    MERGE = "application/merge-patch+json"
    STRATEGIC = "application/strategic-merge-patch+json"
    APPLY = "application/apply-patch+yaml"


class Kube:
    """One server, one identity, one pool of connections; use it as `async with Kube(...) as kube`."""

    def __init__(
        self,
        access: Access,
        *,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        chance: Callable[[float, float], float] = random.uniform,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.access = access
        self._tls = access.tls()
        self._proxy = access.proxy() or None
        self._user_agent = user_agent()
        self._sleep = sleep
        self._chance = chance
        self._now = now
        self._opened: aiohttp.ClientSession | None = None
        self._closed = False

    @classmethod
    def in_cluster(cls, override: str = "") -> Kube:
        """Connect as the ServiceAccount of this Pod. Raises Invalid outside of a Pod."""
        return cls(in_cluster(os.environ, override=override))

    @classmethod
    def from_kubeconfig(cls, path: Path | str, override: str = "") -> Kube:
        """Connect as the current context of a kubeconfig file. Raises Invalid."""
        return cls(kubeconfig(path, override=Override(server=override)))

    @classmethod
    def connect(cls, path: Path | str, override: str = "") -> Kube:
        """Connect by the kubeconfig at `path`, or as this Pod if it is empty, with the limits of a `clientConnection`. Raises Invalid."""
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
        if not is_path(path):
            # whatever a name in it was meant to be: it would lead to another object
            raise Refused(
                [path],
                f"{path[:300]!r} is not a path of an object: a name in it is a dot or two, or has a separator",
            )
        headers = self.access.authorization()
        headers.update({"Accept": "application/json", "User-Agent": self._user_agent})
        if self.access.disable_compression:
            headers["Accept-Encoding"] = "identity"
        if content:
            headers["Content-Type" if body else "Accept"] = content
        return self._session.request(
            method,
            self.access.url + path,
            params=dict(query),
            data=body or None,
            headers=headers,
            proxy=self._proxy,
            server_hostname=self.access.server_name or None,
            timeout=aiohttp.ClientTimeout(total=seconds, sock_connect=10),
            allow_redirects=False,
        )

    async def _answer(
        self, method: str, path: str, query: Mapping[str, str], body: bytes = b"", content: str = ""
    ) -> tuple[int, bytes]:
        """Status and body of a 2xx or 404. Raises Unavailable, Refused, Gone."""
        try:
            async with self._request(method, path, query=query, body=body, content=content) as response:
                answer = await response.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise Unavailable(f"kube-apiserver {self.access.url}: {_describe_failure(error)}") from error
        if response.status != 404:
            raise_for(response.status, answer, path)
        return response.status, answer

    async def get(self, path: str, kind: type[T], query: Mapping[str, str] = NO_QUERY) -> T | None:
        """The object at `path` such as /api/v1/nodes/n1, or None if there is none. Raises Unavailable, Refused."""
        status, answer = await self._answer("GET", path, query)
        return None if status == 404 else decoded(answer, kind, path)

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
        except TimeoutError as error:
            raise Unavailable(f"kube-apiserver {self.access.url}: no answer within {within} s") from error

    async def create(self, path: str, body: Any) -> None:
        """Make the object `body` in the collection `path`. Raises Unavailable, Refused."""
        await self._write("POST", path, {}, body, "application/json")

    async def create_named(self, path: str, body: Any) -> None:
        """Make the object `body` at `path` by server-side apply, the right to which can be for this one name; a POST's cannot.

        Raises Unavailable; Refused, also if it exists with other values.
        """
        # another manager each time: what the one before has applied is a conflict, too
        await self.patch(
            path, body, PatchKind.APPLY, manager=f"antrea-{random.getrandbits(32):08x}", force=False
        )

    async def delete(self, path: str) -> None:
        """The object at `path` goes, or is gone already. Raises Unavailable, Refused."""
        await self._answer("DELETE", path, NO_QUERY)

    async def ask(self, path: str, question: Any, kind: type[T]) -> T:
        """The answer to a review such as a SubjectAccessReview, which is created but not kept. Raises Unavailable, Refused."""
        status, answer = await self._answer(
            "POST", path, {}, msgspec.json.encode(question), "application/json"
        )
        if status == 404:
            raise Refused([path], message_of(answer) or f"{path} not found")
        return decoded(answer, kind, path)

    async def _write(self, method: str, path: str, query: Mapping[str, str], body: Any, content: str) -> None:
        status, answer = await self._answer(method, path, query, msgspec.json.encode(body), content)
        if status == 404:
            raise Refused([path], message_of(answer) or f"{path} not found")

    async def create_event(
        self, about: ObjectReference, reason: str, message: str, *, warning: bool = False,
        component: str = "antrea-agent", host: str = "", at: float = 0.0,
    ) -> None:  # fmt: skip
        """Create an Event, which `kubectl describe` shows; Events on Nodes go to the Namespace default.

        `at` is when it happened, in seconds of the epoch; 0: now. Raises Unavailable; Refused, also if it exists.
        """
        at = at or time.time()
        namespace = about.namespace or "default"
        # the same for the same, so that one that came through without our hearing of it is not there twice
        mark = zlib.crc32(f"{component}\n{host}\n{reason}\n{message}".encode(errors="replace")) & 0xFFFF
        name = event_name(about.name, f"{int(at * 1e6):x}{mark:04x}")
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
            if page.odd:
                raise Unavailable(f"{path}: answer is not understood: {page.odd[0].why}")
            objects = [*(() if page.first else objects), *page.objects]
        return tuple(objects), version

    async def list_each(self, path: str, kind: type[T]) -> tuple[tuple[T, ...], tuple[Odd, ...]]:
        """All objects of the collection `path` that can be read, and those that cannot. Raises Unavailable, Refused."""
        objects: list[T] = []
        odd: list[Odd] = []
        async for page, _ in self._list(path, kind, NO_QUERY):
            if page.first:
                objects, odd = [], []
            objects += page.objects
            odd += page.odd
        return tuple(objects), tuple(odd)

    async def _list(
        self, path: str, kind: type[T], query: Mapping[str, str], content: str = ""
    ) -> AsyncIterator[tuple[Some[T], str]]:
        """Pages, each with its resourceVersion. Raises Unavailable, Refused."""
        for _ in range(LIST_TRIES):
            try:
                async for page in self._pages(path, kind, query, content):
                    yield page
            except Gone:
                log.v(2).info("List took longer than the server keeps its pages", path=path)
            else:
                return
        raise Unavailable(f"{path}: list expired {LIST_TRIES} times")

    async def _pages(
        self, path: str, kind: type[T], query: Mapping[str, str], content: str
    ) -> AsyncIterator[tuple[Some[T], str]]:
        token: dict[str, str] = {}
        while True:
            parameters = {**query, "limit": str(PAGE), **token}
            status, answer = await self._answer("GET", path, parameters, content=content)
            if status == 404:
                raise NoCollection([path], message_of(answer) or f"{path} not found")
            # others have their turn between the parts of a large page: read, decoded, taken in
            await asyncio.sleep(0)
            meta, objects, odd = page_of(answer, kind, path)
            await asyncio.sleep(0)
            more, version = meta.continue_, meta.resource_version
            yield Some(objects, first=not token, last=not more, version=version, odd=odd), version
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
        metadata_only: bool = False,
    ) -> AsyncIterator[Listed[T] | Put[T] | Drop[T]]:
        """Everything that happens to the collection `path`, forever, starting with all that is there.

        `query` narrows it: labelSelector, fieldSelector. A break is resumed where it was, or by a new Listed if
        the server no longer has that version; failures are logged, passed to `trouble` ("" once it is over) and retried.
        Of objects that are `metadata_only` nothing else is sent.
        """
        objects: list[T] = []
        async for change in self.watch_pages(path, kind, query, trouble=trouble, metadata_only=metadata_only):
            if isinstance(change, Odd):
                log.warning("Failed to decode an object", path=path, object=change.full_name, err=change.why)
                continue
            if not isinstance(change, Some):
                yield change
                continue
            for odd in change.odd:
                log.warning("Failed to decode an object", path=path, object=odd.full_name, err=odd.why)
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
        optional: bool = False,
        metadata_only: bool = False,
    ) -> AsyncIterator[Some[T] | Put[T] | Drop[T] | Odd]:
        """Watch as `watch` does, but list in pages, so that a large list is never in memory whole, nor taken in at once.

        One object that cannot be decoded is yielded as `Odd`, and does not affect the others. While a collection that is
        `optional` does not exist, it is an empty one. Of objects that are `metadata_only` nothing else is sent.
        """
        listed_as, watched_as = (METADATA_LIST, METADATA) if metadata_only else ("", "")
        pause = Backoff(self._sleep, self._chance, self._now)
        version = ""

        while True:
            try:
                if not version:
                    async for page, listed in self._list(path, kind, query, listed_as):
                        yield page
                        version = listed if page.last else ""
                    trouble("")
                before = version
                async for change, seen in self._watch_once(
                    path, kind, before, query, partial(pause.opened, trouble), watched_as
                ):
                    version = seen or version
                    pause.reset()
                    if change is not None:
                        yield change
                if version == before:
                    await pause.wait()
            except Gone:
                version = ""
                pause.forgotten()
                await pause.wait()
            except (Unavailable, Refused) as error:
                if optional and isinstance(error, NoCollection):
                    yield Some((), first=True, last=True)
                    trouble("")
                else:
                    pause.interrupts(path, error)
                    trouble(str(error))
                version = "" if isinstance(error, Refused) else version
                await pause.wait()

    async def _watch_once(
        self,
        path: str,
        kind: type[T],
        version: str,
        query: Mapping[str, str],
        opened: Callable[[], None],
        content: str,
    ) -> AsyncIterator[tuple[Put[T] | Drop[T] | Odd | None, str]]:
        """Changes after `version`, each with its own, until the server ends the watch; None is a bookmark.

        `opened` is called once it is established: a quiet collection then has no event for minutes.
        """
        # the server ends a watch after this time, and not all at once
        seconds = self._chance(300, 600)
        parameters = {
            **query, "watch": "true", "allowWatchBookmarks": "true", "resourceVersion": version,
            "timeoutSeconds": str(int(seconds)),
        }  # fmt: skip
        async for line in self.stream(path, parameters, seconds + 30, opened, content):
            yield change_of(line, kind, path)

    async def stream(
        self,
        path: str,
        query: Mapping[str, str],
        seconds: float,
        opened: Callable[[], None],
        content: str = "",
    ) -> AsyncIterator[bytes]:
        """The lines of an answer as they come, until the server ends it or `seconds` are over.

        `opened` is called when the server has taken the request up; `content` is the type that is asked for, unless JSON.
        Raises Unavailable, Refused.
        """
        try:
            async with self._request("GET", path, query=query, content=content, seconds=seconds) as response:
                if response.status != 200:
                    raise_for(response.status, await response.read(), path)
                    raise Refused([path], f"{path}: unexpected answer {response.status}")
                opened()
                async for line in _lines(response.content.iter_any()):
                    yield line
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise Unavailable(f"{self.access.url}: {_describe_failure(error)}") from error


def event_name(name: str, mark: str) -> str:
    """Return a name for an Event on an object of this name, which ends with the mark and is a DNS subdomain as Kubernetes demands."""
    return f"{name[: MAX_NAME - 1 - len(mark)].rstrip('.-')}.{mark}"


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


def _describe_failure(why: BaseException) -> str:
    return str(why) or type(why).__name__
