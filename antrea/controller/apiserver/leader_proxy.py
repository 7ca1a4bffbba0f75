"""Gives the leader what agents post and what is made of that, where this replica is another one.

A replica proves who it is and names its own caller, whom the leader judges as if he had come to it; the path is written
anew from what the replica has judged. What every replica computes by itself, watches above all, is never forwarded.
"""

from __future__ import annotations

import asyncio
import uuid
from typing import TYPE_CHECKING
from urllib.parse import urlencode

import aiohttp
from aiohttp import web

from antrea.apis import stats, system
from antrea.controller.apiserver.connected_agents import PATH
from antrea.errors import Unavailable
from antrea.outside.apiserver.authentication import ANONYMOUS, CALLER, USER, written_caller
from antrea.outside.apiserver.bodies import BODIES
from antrea.outside.log import klog
from antrea.outside.tls.client_context import client_context

if TYPE_CHECKING:
    import ssl
    from collections.abc import Awaitable, Callable, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from antrea.apis.resource import Resource
    from antrea.controller.apiserver import ipc
    from antrea.controller.apiserver.connected_agents import ConnectedAgents
    from antrea.outside.apiserver.attributes import Attributes
    from antrea.outside.apiserver.objects import Objects
    from antrea.outside.kube.client import Kube

log = klog.logger(__name__)

LEADER_SECONDS = 8.0
"""How long a request waits for a leader: longer than an election takes."""
REQUEST_SECONDS = 55.0
PIECE = 64 << 10
AGAIN_SECONDS = 0.2
MARK = "Antrea-Replica"
"""Header of a request that another replica forwards, and of the answer of one that does not lead (any more)."""
KEPT = ("Accept", "Content-Type")
SHOWN = ("Content-Type", "Cache-Control", "Vary", "Content-Disposition", "Retry-After")


class LeaderState:
    """The state of the election, as last received."""

    def __init__(self, *, elected: bool) -> None:
        self.elected = elected
        """Whether there are other replicas."""
        self.is_self = not elected
        """Whether this replica leads."""
        self.address = ""
        """Where else the leader serves, host:port; empty while there is none."""
        self._changed = asyncio.Event()

    def follow(self, now: ipc.Leader) -> None:
        """Take the state of the election."""
        self.is_self, self.address = now.is_self, now.address
        self._changed.set()
        self._changed = asyncio.Event()

    async def changed(self) -> None:
        """Wait for the next state of the election."""
        await self._changed.wait()

    async def known(self) -> str:
        """Where the leader serves, as soon as there is one; empty: here. Raises Unavailable if there is none in time."""
        try:
            async with asyncio.timeout(LEADER_SECONDS):
                while not (self.is_self or self.address):
                    await self._changed.wait()
        except TimeoutError as error:
            raise Unavailable("no replica of the controller leads now, try again") from error
        return "" if self.is_self else self.address


def is_the_leaders(attributes_of_request: Attributes) -> bool:
    """Whether only the leader can answer: what agents report, what is counted from it, bundles, the controller itself."""
    if attributes_of_request.verb in ("create", "delete"):
        return attributes_of_request.resource != "networkpolicyevaluation"
    return attributes_of_request.group in (stats.GROUP, system.GROUP)


class _NotLeading(Exception):
    """The other replica does not lead, or cannot be reached: nothing has been done."""


class LeaderProxy:
    """Answers like `objects`, or like the leader's."""

    def __init__(
        self, objects: Objects, leading: LeaderState, kube: Kube | None, *,
        server_name: str, ca_file: Path, fresh: Callable[[], Awaitable[None]],
    ) -> None:  # fmt: skip
        """`ca_file` has the CA of the leader's certificate, which is for `server_name`.

        `fresh` returns when the stores hold all that was true when it was called; it raises Unavailable.
        """
        self._fresh = fresh
        self._objects = objects
        self._leading = leading
        self._kube = kube
        self._server_name = server_name
        self._ca_file = ca_file
        self._session: aiohttp.ClientSession | None = None
        self._me = uuid.uuid4().hex
        self._tls: tuple[int, ssl.SSLContext] | None = None

    @property
    def resources(self) -> Sequence[Resource]:
        """All that are served."""
        return self._objects.resources

    async def answer(self, request: web.Request, attributes_of_request: Attributes) -> web.StreamResponse:
        """Raises Answered, Unavailable."""
        if attributes_of_request.verb == "watch" and self._leading.elected:
            # the client may have been told more by another replica than this one knows yet
            await self._fresh()
        if self._leading.is_self or not is_the_leaders(attributes_of_request):
            return await self._objects.answer(request, attributes_of_request)
        if MARK in request.headers:
            return web.Response(status=503, headers={MARK: "does not lead"})
        async with BODIES.read(request, request.client_max_size) as body:
            return await self._leaders(request, attributes_of_request, body)

    async def _leaders(
        self, request: web.Request, attributes_of_request: Attributes, body: bytes
    ) -> web.StreamResponse:
        end = asyncio.get_running_loop().time() + LEADER_SECONDS
        while True:
            address = await self._leading.known()
            if not address:
                return await self._objects.answer(request, attributes_of_request)
            try:
                return await self._ask(request, attributes_of_request, address, body)
            except _NotLeading as error:
                if asyncio.get_running_loop().time() > end:
                    raise Unavailable(f"the leading replica of the controller is unknown: {error}") from error
            await asyncio.sleep(AGAIN_SECONDS)

    async def report_number(self, connected: ConnectedAgents) -> None:
        """Report the number of connected agents to the leader; a failed report is repeated."""
        address = self._leading.address
        if self._leading.is_self or not address or not connected.needs_report(address):
            return
        path = f"{PATH}?replica={self._me}&agents={connected.own}"
        try:
            async with self._request("PUT", address, path, {}, seconds=2) as answer:
                if answer.status == 200:
                    connected.reported(address)
        except (aiohttp.ClientError, TimeoutError, OSError, Unavailable, _NotLeading) as error:
            log.v(2).info("Failed to report the number of agents to the leader", err=str(error))

    async def close(self) -> None:
        """End all connections."""
        if self._session:
            await self._session.close()

    async def _ask(
        self, request: web.Request, attributes_of_request: Attributes, address: str, body: bytes
    ) -> web.StreamResponse:
        """The leader's response. Raises _NotLeading; Unavailable if the outcome of the request is unknown."""
        headers = {name: value for name in KEPT if (value := request.headers.get(name))}
        headers[CALLER] = written_caller(request.get(USER, ANONYMOUS))
        query = urlencode(
            {**request.query, **({"watch": "true"} if attributes_of_request.verb == "watch" else {})}
        )
        path = attributes_of_request.resource_path() + (f"?{query}" if query else "")
        try:
            async with self._request(request.method, address, path, headers, body) as answer:
                if MARK in answer.headers:
                    raise _NotLeading(f"{address} does not lead")
                return await _relay(request, answer)
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            raise _NotLeading(str(error) or type(error).__name__) from error
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise Unavailable(
                f"the leading replica of the controller at {address} does not answer: {error}"
            ) from error

    def _request(
        self, method: str, address: str, path: str, headers: Mapping[str, str], body: bytes = b"", *,
        seconds: float = REQUEST_SECONDS,
    ) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:  # fmt: skip
        """Send a request as this replica. Raises _NotLeading."""
        if self._session is None:
            self._session = aiohttp.ClientSession(auto_decompress=False)
        credentials = self._kube.access.authorization() if self._kube else {}
        return self._session.request(
            method,
            f"https://{address}{path}",
            data=body or None,
            headers={**headers, **credentials, MARK: "forwards"},
            ssl=self._trust(),
            server_hostname=self._server_name,
            timeout=aiohttp.ClientTimeout(total=seconds, sock_connect=2),
            allow_redirects=False,
        )

    def _trust(self) -> ssl.SSLContext:
        """Return a TLS context with the present content of the CA file. Raises _NotLeading while the file does not exist."""
        try:
            age = self._ca_file.stat().st_mtime_ns
            if self._tls is None or self._tls[0] != age:
                self._tls = age, client_context(cafile=str(self._ca_file))
        except OSError as error:
            raise _NotLeading(f"{self._ca_file}: {error}") from error
        return self._tls[1]


async def _relay(request: web.Request, answer: aiohttp.ClientResponse) -> web.StreamResponse:
    """Pass it on piece by piece: a bundle may be large."""
    headers = {name: value for name in SHOWN if (value := answer.headers.get(name))}
    response = web.StreamResponse(status=answer.status, headers=headers)
    response.content_length = answer.content_length
    await response.prepare(request)
    async for piece in answer.content.iter_chunked(PIECE):
        await response.write(piece)
    return response
