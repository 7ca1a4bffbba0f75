"""Parts of a program's own HTTPS API: socket, health checks, metrics, log level.

The server itself, who may ask it and what, is antrea.outside.aggregated.server.
"""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec
from aiohttp import web

from antrea.errors import Invalid, Unavailable
from antrea.outside import klog
from antrea.outside.metrics import measured

HEALTH = ("healthz", "livez", "readyz")
Check = Callable[[], str]
"""Says why it fails; an empty text is success."""
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def listen(port: int) -> socket.socket:
    """A socket on all addresses of both families, or of IPv4 where there is no IPv6. Raises Unavailable."""
    try:
        if socket.has_dualstack_ipv6():
            return socket.create_server(("::", port), family=socket.AF_INET6, dualstack_ipv6=True)
        return socket.create_server(("0.0.0.0", port))  # noqa: S104 (kubelet's probes and antctl come from outside)
    except OSError as why:
        raise Unavailable(f"port {port}: {why.strerror}") from why


def health(checks: Mapping[str, Check]) -> Handler:
    """A handler that asks `checks` by name; the last part of its path is the name of what is asked."""

    async def handler(request: web.Request) -> web.Response:
        name = request.path.strip("/")
        failed = {check: why for check, test in checks.items() if (why := test())}
        if not failed and "verbose" not in request.query:
            return web.Response(text="ok")
        lines = [
            "[+]ping ok",
            *(
                f"[-]{check} failed: {failed[check]}" if check in failed else f"[+]{check} ok"
                for check in checks
            ),
            f"{name} check {'failed' if failed else 'passed'}",
        ]
        return web.Response(text="\n".join(lines) + "\n", status=500 if failed else 200)

    return handler


def json_answer(body: Any) -> web.Response:
    """`body` as JSON, a Struct or a list of them."""
    return web.Response(body=msgspec.json.encode(body) + b"\n", content_type="application/json")


def metrics_of(own: str) -> web.Response:
    """Metrics in Prometheus' format: `own`, and those that every process has."""
    return web.Response(text=own + measured(), content_type="text/plain")


async def loglevel(request: web.Request) -> web.Response:
    """Show the verbosity, or set it to the query's `level`. Raises Invalid."""
    level = request.query.get("level", "")
    if not level:
        return json_answer(klog.verbosity())
    if not level.isdecimal() or int(level) > 10:
        raise Invalid("level", "log level must be a number from 0 to 10")
    klog.set_verbosity(int(level))
    return web.Response()
