"""An API server on loopback that keeps objects: get, list, watch, create, delete, merge patch, with conflicts."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections import Counter
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from aiohttp import web
from loopback import client_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from antrea.outside.kube.client import Kube

Object = dict[str, Any]
SELECTORS = ("fieldSelector", "labelSelector")


def merged(old: Any, patch: Any) -> Any:
    """RFC 7386; lists of named things are merged by name, as a strategic merge patch does with webhooks."""
    if isinstance(patch, list) and isinstance(old, list) and all(map(_is_named, [*old, *patch])):
        return [merged(one, next((p for p in patch if p["name"] == one["name"]), {})) for one in old]
    if not isinstance(patch, dict):
        return patch
    base = dict(old) if isinstance(old, dict) else {}
    for key, value in patch.items():
        base[key] = merged(base.get(key), value)
    return {key: value for key, value in base.items() if value is not None}


def _collections(path: str) -> tuple[str, str]:
    """That of its Namespace, and that of all."""
    own = path.rpartition("/")[0]
    return own, re.sub(r"/namespaces/[^/]+/", "/", own)


def _is_named(one: Any) -> bool:
    return isinstance(one, dict) and "name" in one


class ApiServer:
    """`objects` by path. `writes` are the paths written to, in order."""

    def __init__(self, objects: dict[str, Object]) -> None:
        self.objects: dict[str, Object] = {}
        self.writes: list[str] = []
        self.refuse = ""
        """Why every write is refused, if it is."""
        self.refuse_status = 403
        self.reviewed: Callable[[str, Object], Object] = lambda _, question: {**question, "status": {}}
        """The answer to a TokenReview or a SubjectAccessReview at a path; it proves and allows nothing."""
        self._watches: list[web.Request] = []
        self._version = 0
        self._history: list[tuple[int, str, str, Object]] = []
        """Version, path, kind of change and object, of all there was: a watch may start in the past."""
        self._news = asyncio.Event()
        """Set, and replaced by the next one, at each change."""
        for path, one in objects.items():
            self.put(path, one)

    def put(self, path: str, one: Object) -> None:
        """Somebody writes an object."""
        self._version += 1
        kind = "MODIFIED" if path in self.objects else "ADDED"
        meta = {"name": path.rpartition("/")[2], **one.get("metadata", {})}
        self.objects[path] = {**one, "metadata": {**meta, "resourceVersion": str(self._version)}}
        self._tell(path, kind)

    def drop(self, path: str) -> None:
        """Somebody deletes an object."""
        self._version += 1
        gone = self.objects[path]
        self.objects[path] = {**gone, "metadata": {**gone["metadata"], "resourceVersion": str(self._version)}}
        self._tell(path, "DELETED")
        del self.objects[path]

    def _tell(self, path: str, kind: str) -> None:
        self._history.append((self._version, path, kind, self.objects[path]))
        news, self._news = self._news, asyncio.Event()
        news.set()

    def open_watches(self) -> dict[str, Counter[tuple[str, str]]]:
        """Watches whose clients are still connected, by path and selectors, for each address that this is served at."""
        found: dict[str, Counter[tuple[str, str]]] = {}
        for watch in self._watches:
            if watch.transport is not None and not watch.transport.is_closing():
                selectors = "&".join(f"{key}={watch.query[key]}" for key in SELECTORS if key in watch.query)
                found.setdefault(watch.host, Counter())[watch.path, selectors] += 1
        return found

    async def serve(self, request: web.Request) -> web.StreamResponse:
        path = request.path
        if request.method == "GET":
            if "watch" in request.query:
                return await self._watch(request)
            if path in self.objects:
                return web.json_response(self.objects[path])
            return self._list(path, request)
        if request.method == "DELETE":
            self.writes.append(path)
            self.drop(path)
            return web.json_response({})
        body = json.loads(await request.read())
        if path.endswith("reviews"):
            return web.json_response(self.reviewed(path, body), status=201)
        self.writes.append(path)
        if self.refuse:
            return web.json_response({"message": self.refuse}, status=self.refuse_status)
        whole = path.removesuffix("/status")
        applied = request.content_type == "application/apply-patch+yaml"
        if applied and whole != path and whole in self.objects:
            return self._write_status(whole, body)
        if applied and path not in self.objects:
            self.put(path, body)
            return web.json_response(body, status=201)
        if request.query.get("force") == "false" and merged(self.objects[path], body) != self.objects[path]:
            return web.json_response({"message": "already exists, with other values"}, status=409)
        return self._write(request.method, path, body)

    def _list(self, path: str, request: web.Request) -> web.Response:
        if "limit" not in request.query:
            return web.json_response({"message": "not found"}, status=404)
        items = [one for key, one in self.objects.items() if path in _collections(key)]
        only = request.query.get("fieldSelector", "").removeprefix("metadata.name=")
        items = [one for one in items if not only or one["metadata"]["name"] == only]
        return web.json_response({"metadata": {"resourceVersion": str(self._version)}, "items": items})

    def _write(self, method: str, path: str, body: Object) -> web.Response:
        if method == "POST":
            path = f"{path}/{body['metadata']['name']}"
            if path in self.objects:
                return web.json_response({"message": "already exists"}, status=409)
            self.put(path, body)
            return web.json_response(body, status=201)
        if path not in self.objects:
            path = path.removesuffix("/status")
        if path not in self.objects:
            return web.json_response({"message": "not found"}, status=404)
        uid = body.get("metadata", {}).get("uid", "")
        if uid and uid != self.objects[path]["metadata"].get("uid", uid):
            return web.json_response({"message": "the object has been deleted and made again"}, status=409)
        seen = body.get("metadata", {}).pop("resourceVersion", "")
        if seen and seen != self.objects[path]["metadata"]["resourceVersion"]:
            return web.json_response({"message": "the object has been modified"}, status=409)
        self.put(path, merged(self.objects[path], body))
        return web.json_response(self.objects[path])

    def _write_status(self, path: str, body: Object) -> web.Response:
        """As a subresource: of what is applied, only the status counts, whose lists are replaced."""
        held = self.objects[path]
        seen = body.get("metadata", {}).get("resourceVersion", "")
        if seen and seen != held["metadata"]["resourceVersion"]:
            return web.json_response({"message": "the object has been modified"}, status=409)
        self.put(path, {**held, "status": {**held.get("status", {}), **body["status"]}})
        return web.json_response(self.objects[path])

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        self._watches.append(request)
        response = web.StreamResponse()
        await response.prepare(request)
        seen = int(request.query["resourceVersion"])
        while True:
            news = self._news
            for version, path, kind, one in self._history:
                if version > seen and request.path in _collections(path):
                    seen = version
                    await response.write(json.dumps({"type": kind, "object": one}).encode() + b"\n")
            await news.wait()


@asynccontextmanager
async def api_server(objects: dict[str, Object]) -> AsyncIterator[tuple[ApiServer, Kube]]:
    """Such a server with a client of it."""
    server = ApiServer(objects)
    async with client_of(server.serve) as kube:
        yield server, kube


async def until(condition: Any, seconds: float = 30) -> None:
    """Wait for a condition."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "not in time"
        await asyncio.sleep(0.01)
