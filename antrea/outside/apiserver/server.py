"""The server: every request is bounded, its user known and allowed, then answered from stores, documents or handlers.

parity: k8s.io/apiserver (limits, order of checks, words of refusals)
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from antrea.errors import Invalid, Refused, Unavailable
from antrea.outside.apiserver import discovery, negotiation
from antrea.outside.apiserver.attributes import attributes
from antrea.outside.apiserver.authentication import ANONYMOUS, FRONT_ADDRESS, PROVED, USER
from antrea.outside.apiserver.impersonation import impersonated
from antrea.outside.apiserver.status import ApiError
from antrea.outside.listener.listener import Limits, Listener
from antrea.outside.log import klog

if TYPE_CHECKING:
    import socket
    import ssl
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from antrea.apis.meta import Status
    from antrea.apis.resource import Resource
    from antrea.outside.apiserver.attributes import Attributes
    from antrea.outside.apiserver.authentication import Authentication
    from antrea.outside.apiserver.authorization import Authorization

    Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

log = klog.logger(__name__)

MAX_BODY = 3 << 20
"""Bytes of a body of the aggregated API, as kube-apiserver's; handlers with a path of their own read by their own limit."""
LINE, HEADERS = 16 << 10, 64 << 10
"""Bytes of the request line, and of one header."""
REQUEST_SECONDS = 60.0
DOWNLOAD = "download"
"""A part of a resource that is large."""
END_SECONDS = 5.0
"""For what is being answered when the server ends: longer than a webhook may take."""
DEFAULT = Limits()


class Answers(Protocol):
    """Answers below /apis. Raises Answered, Unavailable."""

    @property
    def resources(self) -> Sequence[Resource]: ...

    async def answer(self, request: web.Request, attributes: Attributes) -> web.StreamResponse: ...


class Server:
    """`handlers` are by method and path; `objects` answers below /apis; `openapi` has constant answers by path."""

    def __init__(
        self,
        authentication: Authentication,
        authorization: Authorization,
        objects: Answers,
        *,
        handlers: Mapping[tuple[str, str], Handler],
        openapi: Mapping[str, bytes],
        limits: Limits = DEFAULT,
    ) -> None:
        self._authentication = authentication
        self._authorization = authorization
        self._objects = objects
        self._handlers = handlers
        self._paths = {path for _, path in self._handlers}
        resources = objects.resources
        self._discovery = {p: msgspec.json.encode(d) for p, d in discovery.documents(resources).items()}
        self._all_groups = {
            version: msgspec.json.encode(discovery.aggregated(resources, version))
            for version in ("v2", "v2beta1")
        }
        self._openapi = openapi
        self._limits = limits
        self._listener: Listener | None = None
        self._streams: set[asyncio.Task[Any]] = set()
        self._ends = False

    @property
    def connections(self) -> int:
        """How many are open."""
        return self._listener.connections if self._listener else 0

    async def run(self, listening: socket.socket, tls: ssl.SSLContext) -> None:
        """Serve until cancelled; then requests that are being answered have a little time, and watches none."""
        app = web.Application(client_max_size=MAX_BODY, handler_args={"access_log": None})
        app.router.add_route("*", "/{path:.*}", self._handle)
        app.on_response_prepare.append(self._headed)
        runner = web.AppRunner(
            app,
            access_log=None,
            handler_cancellation=True,
            keepalive_timeout=self._limits.idle_seconds,
            max_line_size=LINE,
            max_field_size=HEADERS,
            lingering_time=1,
            # a body counts as it was sent: a few KiB of gzip would take a share of the memory of all
            auto_decompress=False,
            logger=_logger(),
            shutdown_timeout=END_SECONDS,
        )
        await runner.setup()
        assert runner.server is not None  # noqa: S101 (made by setup)
        self._listener = Listener(listening, tls, runner.server, self._limits)
        try:
            await self._listener.run()
        finally:
            self._end_streams()
            await runner.cleanup()
            self._listener.end()

    async def farewell(self, seconds: float) -> None:
        """Go on for so long, for callers that do not know yet: watches end, and after an answer its connection does."""
        self._ends = True
        self._end_streams()
        await asyncio.sleep(seconds)

    def _end_streams(self) -> None:
        for stream in self._streams:
            stream.cancel()

    async def _stream(self, request: web.Request, attributes: Attributes) -> web.StreamResponse:
        """Respond with a stream that ends by itself."""
        stream = asyncio.current_task()
        assert stream is not None  # noqa: S101 (it runs)
        self._streams.add(stream)
        try:
            return await self._answered(request, attributes)
        finally:
            self._streams.discard(stream)

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        transport = request.transport
        if transport is None:
            raise ConnectionResetError
        peer = transport.get_extra_info("peername")
        if self._listener:
            self._listener.note_request(peer)
        try:
            return await self._bounded(request, transport)
        finally:
            if self._listener:
                self._listener.answered(peer)

    async def _bounded(self, request: web.Request, transport: asyncio.Transport) -> web.StreamResponse:
        """No request but a watch or a download takes longer than REQUEST_SECONDS."""
        try:
            request_attributes = attributes(request.method, request.rel_url.raw_path, request.query)
        except ApiError as error:
            refusal = answer(error.status)
            refusal.force_close()
            return refusal
        if request_attributes.verb == "watch" or request_attributes.subresource == DOWNLOAD:
            return await self._stream(request, request_attributes)
        try:
            async with asyncio.timeout(REQUEST_SECONDS):
                response = await self._answered(request, request_attributes)
                # sent in here, so that who does not read does not stay
                await response.prepare(request)
                await response.write_eof()
                return response
        except TimeoutError:
            log.v(2).info("A request took too long", method=request.method, path=request.path)
            transport.abort()
            raise

    async def _answered(self, request: web.Request, attributes: Attributes) -> web.StreamResponse:
        """Every failure becomes an answer."""
        try:
            user = await self._authentication.user(request)
            peer = (request.transport.get_extra_info("peername") if request.transport else None) or ("",)
            if user is not ANONYMOUS and self._listener:
                self._listener.proved(peer, self._authentication.holder(request, user))
            stranger = str(peer[0]) if user is ANONYMOUS else ""
            user = await impersonated(request.headers, user, self._authorization, stranger)
            await self._authorization.check(user, attributes, stranger)
            request[USER] = user
            request[FRONT_ADDRESS] = self._authentication.is_front_address(request)
            # any Pod has a token: where nobody is asked for one, it is no merit
            request[PROVED] = user is not ANONYMOUS and not self._authorization.is_open(attributes)
            return await self._routed(request, attributes)
        except ApiError as error:
            response = answer(error.status)
        except web.HTTPRequestEntityTooLarge:
            response = _failure(413, f"Request entity too large: limit is {MAX_BODY}")
        except Invalid as error:
            response = web.Response(status=400, text=error.why)
        except (Unavailable, Refused) as error:
            response = _failure(503, str(error))
        except web.HTTPException as error:
            return error
        except (asyncio.CancelledError, ConnectionError, TimeoutError):
            raise
        except Exception as error:  # noqa: BLE001 (one request fails and the connection is served on)
            log.error("A request failed", error=error, method=request.method, path=request.path)
            response = _failure(500, "Internal error occurred")
        if request.can_read_body and not request.content.is_eof():
            # what else the client sends is not read
            response.force_close()
        return response

    async def _routed(self, request: web.Request, attributes: Attributes) -> web.StreamResponse:
        path = attributes.path.rstrip("/") or "/"
        method = "GET" if request.method == "HEAD" else request.method
        if handler := self._handlers.get((method, path)):
            return await handler(request)
        if path in self._paths:
            raise ApiError(405, "the server does not allow this method on the requested resource")
        if method == "GET" and (known := await self._document(request, path)):
            return known
        if attributes.resource:
            if self._ends:
                raise Unavailable("this replica of the server ends, try again")
            return await self._objects.answer(request, attributes)
        return web.Response(status=404, text="404 page not found\n")

    async def _headed(self, _: web.Request, response: web.StreamResponse) -> None:
        """Headers against caching, content sniffing and disclosure of the server's software, as upstream's API machinery sets them."""
        response.headers.setdefault("Cache-Control", "no-cache, private")
        response.headers["X-Content-Type-Options"] = "nosniff"
        response.headers.popall("Server", None)
        if self._ends:
            response.force_close()
            response.headers["Connection"] = "close"

    async def _document(self, request: web.Request, path: str) -> web.Response | None:
        accept = request.headers.get("Accept", "")
        if path == "/apis":
            for wish in negotiation.accepted_types(accept):
                if wish.parameters.get("as") == "APIGroupDiscoveryList":
                    document = self._all_groups.get(wish.parameters.get("v", ""))
                    if document and wish.media in ("application/json", "*/*"):
                        kind = f"application/json;g=apidiscovery.k8s.io;v={wish.parameters['v']};as=APIGroupDiscoveryList"
                        return _constant(request, document, kind)
                elif wish.media in ("application/json", "*/*", "application/yaml"):
                    break
        if path in self._discovery:
            media = negotiation.plain(accept)
            return _constant(request, await negotiation.written(self._discovery[path], media), media)
        if path in self._openapi:
            return _constant(request, self._openapi[path], "application/json")
        if path == "/":
            paths = sorted({*self._paths, *self._discovery, *self._openapi})
            return _constant(request, msgspec.json.encode({"paths": paths}), "application/json")
        return None


def _constant(request: web.Request, body: bytes, media: str) -> web.Response:
    """An answer that changes with the program only; who has it already gets 304."""
    tag = f'"{hashlib.sha256(body).hexdigest().upper()[:32]}"'
    headers = {"ETag": tag, "Vary": "Accept", "Cache-Control": "no-cache, private", "Content-Type": media}
    if request.headers.get("If-None-Match") == tag:
        return web.Response(status=304, headers=headers)
    return web.Response(body=body, headers=headers)


def answer(status: Status) -> web.Response:
    """The response that carries it, with Retry-After where the client is to try again."""
    headers = {"Retry-After": "1"} if status.code in (429, 503) else {}
    return web.Response(
        body=msgspec.json.encode(status), status=status.code, content_type=negotiation.JSON, headers=headers
    )


def _failure(code: int, message: str) -> web.Response:
    """A refusal without details."""
    return answer(ApiError(code, message).status)


def _logger() -> logging.Logger:
    """Return the logger of aiohttp's server, which writes a traceback for each malformed request: any stranger could fill the log."""
    logger = logging.getLogger("aiohttp.server")
    if _is_ours not in logger.filters:
        logger.addFilter(_is_ours)
    return logger


def _is_ours(record: logging.LogRecord) -> bool:
    """Whether the error is not the client's."""
    error = record.exc_info[1] if record.exc_info else None
    return not isinstance(error, HttpProcessingError)
