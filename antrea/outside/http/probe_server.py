"""Answers unauthenticated GET requests of load balancers over plain HTTP, in bounded number."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple

from aiohttp import web

from antrea.outside.listener.listener import Limits, Listener

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Mapping

LIMITS = Limits(connections=100, new=100, first_request_seconds=5.0, idle_seconds=5.0)
"""Clients are not authenticated: each connection is closed after this time, and the oldest one where there are too many."""


def timestamp(ago: float = 0.0) -> str:
    """The time so many seconds ago, as JSON of Kubernetes has it."""
    return (datetime.now(UTC) - timedelta(seconds=ago)).isoformat().replace("+00:00", "Z")


class Answer(NamedTuple):
    """Answer to a request for a path."""

    status: int
    body: str
    headers: Mapping[str, str] = {}


async def serve(at: socket.socket, answer: Callable[[str], Answer]) -> None:
    """Answer requests by their paths, until cancelled; the socket is closed then."""

    async def handle(request: web.BaseRequest) -> web.Response:
        status, body, headers = answer(request.path)
        response = web.Response(status=status, body=body.encode(), headers=headers)
        response.force_close()
        return response

    server = web.Server(handle, access_log=None, max_line_size=4096, max_field_size=4096)
    listener = Listener(at, None, server, LIMITS)
    try:
        await listener.run()
    finally:
        listener.end()
        await server.shutdown()
