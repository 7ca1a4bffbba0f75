"""A kube-apiserver on loopback that knows one token and one right: TokenReview, SubjectAccessReview, whom to trust."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from aiohttp import web
from loopback import client_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from antrea.outside.kube.client import Kube

PROMETHEUS = "system:serviceaccount:monitoring:prometheus"


class ReviewServer:
    """The token `scraper` is Prometheus', who may GET `readable`, at first /metrics, and so may members of `auditors`."""

    def __init__(self, client_ca: str = "") -> None:
        self.questions: list[dict[str, Any]] = []
        self.away = False
        self.readable = "/metrics"
        self._data = {"client-ca-file": client_ca}

    async def serve(self, request: web.Request) -> web.StreamResponse:
        if request.method == "GET":
            return await self._trust(request)
        if self.away:
            return web.json_response({"message": "etcd is away"}, status=500)
        spec = json.loads(await request.read())["spec"]
        self.questions.append(spec)
        if request.path.endswith("/tokenreviews"):
            user = {"username": PROMETHEUS, "groups": ["system:serviceaccounts"]}
            known = {"authenticated": True, "user": user} if spec["token"] == "scraper" else {}
            return web.json_response({"status": known}, status=201)
        may = spec["user"] == PROMETHEUS or "auditors" in spec["groups"]
        allowed = may and spec.get("nonResourceAttributes") == {"verb": "get", "path": self.readable}
        return web.json_response({"status": {"allowed": allowed}}, status=201)

    async def _trust(self, request: web.Request) -> web.StreamResponse:
        assert request.path == "/api/v1/namespaces/kube-system/configmaps"
        if "watch" in request.query:
            response = web.StreamResponse()
            await response.prepare(request)
            await asyncio.Event().wait()
        items = [{"metadata": {"name": "extension-apiserver-authentication"}, "data": self._data}]
        return web.json_response({"metadata": {"resourceVersion": "1"}, "items": items})


@asynccontextmanager
async def reviews(client_ca: str = "") -> AsyncIterator[tuple[ReviewServer, Kube]]:
    """Such a server with a client of it."""
    server = ReviewServer(client_ca)
    async with client_of(server.serve) as kube:
        yield server, kube
