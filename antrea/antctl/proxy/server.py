"""Reverse proxy of `antctl proxy`: it forwards requests unchanged with our credentials and streams responses back."""

from __future__ import annotations

import asyncio
import signal
import socket
from typing import TYPE_CHECKING, Any

import aiohttp
from aiohttp import web
from multidict import CIMultiDict
from yarl import URL

from antrea.antctl.failure import Failure
from antrea.antctl.output import echo
from antrea.errors import AntreaError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from antrea.antctl.proxy.command import Files, Filter, Identity, Place
    from antrea.antctl.request import Loopback
    from antrea.outside.kube.access import Access

HOP_BY_HOP = {
    *("connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection", "te"),
    *("trailer", "transfer-encoding", "upgrade"),
}
"""Headers about one connection (RFC 9110 section 7.6.1)."""
CHUNK = 65536


class ReverseProxy:
    """Between local clients and the API at `access`; `accepted` None lets every request pass."""

    def __init__(
        self,
        access: Access | Loopback,
        identity: Identity,
        accepted: Filter | None,
        *,
        prefix: str,
        files: Files | None,
        keepalive: float,
    ) -> None:
        """Raises Failure if the certificate or key of `access` cannot be used."""
        self._access = access
        self._identity = identity
        self._accepted = accepted
        # parity: k8s.io/kubectl/pkg/proxy NewServer: below /api nothing is taken off
        self._cut = "" if prefix.startswith("/api") else prefix.rstrip("/")
        self._prefix = prefix
        self._files = files
        self._keepalive = keepalive
        try:
            self._tls, self._proxy = access.tls(), access.proxy() or None
        except AntreaError as error:
            raise Failure(str(error)) from error

    def serve(self, place: Place) -> None:
        """Serve until SIGINT or SIGTERM. Raises Failure if `place` cannot be bound."""
        asyncio.run(self.run(place, lambda where: echo(f"Starting to serve on {where}")))

    async def run(self, place: Place, started: Callable[[str], object]) -> None:
        """Serve as `serve` does, and call `started` with the bound address."""
        ended = asyncio.Event()
        for name in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(name, ended.set)
        listening, where = _listen(place)
        connector = aiohttp.TCPConnector(ssl=self._tls, limit=0, socket_factory=self._kept_alive)
        async with aiohttp.ClientSession(connector=connector, auto_decompress=False) as session:
            app = web.Application(client_max_size=2**40)
            if self._files:
                app.router.add_static(self._files.prefix, self._files.folder, show_index=True)

            async def answer(request: web.Request) -> web.StreamResponse:
                return await self._answer(request, session)

            app.router.add_route("*", self._prefix + "{rest:.*}", answer)
            # a client that goes takes its request with it: a watch has nothing to write for minutes
            runner = web.AppRunner(app, access_log=None, shutdown_timeout=1, handler_cancellation=True)
            await runner.setup()
            try:
                await web.SockSite(runner, listening).start()
                started(where)
                await ended.wait()
            finally:
                await runner.cleanup()
                if place.socket:
                    place.socket.unlink(missing_ok=True)

    async def _answer(self, request: web.Request, session: aiohttp.ClientSession) -> web.StreamResponse:
        if self._accepted and not self._accepted.accepts(request.method, request.path, request.host):
            return web.Response(status=403, text="<h3>Unauthorized</h3>", content_type="text/html")
        try:
            headers = _passed(request.headers)
            headers.popall("Host", None)
            identity_headers = await asyncio.to_thread(self._identity.headers)
            if "Authorization" in headers:
                # another token, but never more than the kubeconfig grants to the certificate of the connection
                identity_headers.pop("Authorization", None)
            headers.update(identity_headers)
            target = self._access.url + request.raw_path.removeprefix(self._cut)
            async with session.request(
                request.method,
                URL(target, encoded=True),
                headers=headers,
                data=request.content.iter_chunked(CHUNK) if request.can_read_body else None,
                proxy=self._proxy,
                server_hostname=self._access.server_name or None,
                allow_redirects=False,
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=10),
                skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding", "Content-Type"),
            ) as behind:
                return await _stream(request, behind)
        except (aiohttp.ClientError, OSError, AntreaError) as error:
            return web.Response(status=500, text=f"{error or type(error).__name__}\n")
        except Failure as error:
            return web.Response(status=500, text=f"{error.format_message()}\n")

    def _kept_alive(self, address: tuple[Any, ...]) -> socket.socket:
        made = socket.socket(*address[:3])
        if self._keepalive:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for option in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL):
                made.setsockopt(socket.IPPROTO_TCP, option, max(1, round(self._keepalive)))
        return made


async def _stream(request: web.Request, behind: aiohttp.ClientResponse) -> web.StreamResponse:
    """The answer, passed on as it comes: a watch never ends."""
    response = web.StreamResponse(status=behind.status, reason=behind.reason, headers=_passed(behind.headers))
    await response.prepare(request)
    try:
        async for chunk in behind.content.iter_any():
            await response.write(chunk)
    except (aiohttp.ClientError, OSError):
        # the head is sent: all that can still be said is that the body is cut short
        response.force_close()
        if request.transport:
            request.transport.abort()
        return response
    await response.write_eof()
    return response


def _passed(headers: Mapping[str, str]) -> CIMultiDict[str]:
    """Without hop-by-hop headers."""
    hop_by_hop = {name.strip().lower() for name in headers.get("Connection", "").split(",")}
    return CIMultiDict(
        (name, value) for name, value in headers.items() if name.lower() not in HOP_BY_HOP | hop_by_hop
    )


def _listen(place: Place) -> tuple[socket.socket, str]:
    """The socket, and how it is called. Raises Failure."""
    try:
        if place.socket:
            if place.socket.is_socket():
                place.socket.unlink()
            made = socket.socket(socket.AF_UNIX)
            made.bind(str(place.socket))
            made.listen()
            return made, str(place.socket)
        family = socket.AF_INET6 if ":" in place.address else socket.AF_INET
        made = socket.create_server((place.address, place.port), family=family)
    except OSError as error:
        where = place.socket or f"{place.address}:{place.port}"
        raise Failure(f"{where}: {error.strerror or error}") from error
    host, port = made.getsockname()[:2]
    return made, f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
