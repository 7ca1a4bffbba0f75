"""Answers like kube-apiserver with 100,000 Pods: TLS, pages, a watch; for a client to be measured against.

A real API server would take minutes to fill. The Pods have the shape and size of one that a real API server, kubelet
and controller manager of v1.34.1 made of a Deployment (`kube_watch_pod.json`, 7.6 KB); name, labels, Node and address
differ from Pod to Pod. `gzip` is answered as a real one does, to who accepts it.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
import zlib
from pathlib import Path

from aiohttp import web

from benchmarks import answering

SHAPE = Path(__file__).with_name("kube_watch_pod.json")
VERSION = 1_000_000
REPLICAS = 20
"""Pods of one Deployment."""
NODE_PODS = 100
GZIP_FROM = 128 * 1024
"""Bytes. Source: k8s.io/apiserver/pkg/endpoints/handlers/responsewriters/writers.go"""


class Pods:
    """The text of any of them."""

    def __init__(self) -> None:
        self._parts = re.split("@([A-Z]+)@", SHAPE.read_text().strip())

    def text(self, number: int, version: int) -> str:
        app = f"app-{number // REPLICAS}"
        values = {
            "NAME": f"{app}-6c55dfc758-{number:05x}",
            "APP": app,
            "UID": f"8e2e9db6-edfa-4088-8fd4-{number:012x}",
            "VERSION": str(version),
            "IP": f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}",
            "NAMESPACE": f"team-{number // REPLICAS % 200}",
            "NODE": f"node-{number // NODE_PODS}",
        }
        return "".join(values[part] if place % 2 else part for place, part in enumerate(self._parts))


class Server:
    """Lists `count` Pods; every watch says `changes` modifications, one in each millisecond, and then nothing."""

    def __init__(self, count: int, changes: int) -> None:
        self._count = count
        self._changes = changes
        self._pods = Pods()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if "watch" in request.query:
            return await self._watch(request)
        first, limit = int(request.query.get("continue") or 0), int(request.query["limit"])
        end = min(first + limit, self._count)
        items = ",".join(
            self._pods.text(number, VERSION - self._count + number) for number in range(first, end)
        )
        meta = {"resourceVersion": str(VERSION), "continue": str(end) if end < self._count else ""}
        head = f'{{"kind":"PodList","apiVersion":"v1","metadata":{json.dumps(meta)},"items":['
        body, headers = f"{head}{items}]}}\n".encode(), {"Content-Type": "application/json"}
        if "gzip" in request.headers.get("Accept-Encoding", "") and len(body) > GZIP_FROM:
            packer = zlib.compressobj(level=4, wbits=31)
            body, headers["Content-Encoding"] = packer.compress(body) + packer.flush(), "gzip"
        return web.Response(body=body, headers=headers)

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for change in range(self._changes):
            pod = self._pods.text(change * 7 % self._count, VERSION + change + 1)
            await response.write(f'{{"type":"MODIFIED","object":{pod}}}\n'.encode())
            await asyncio.sleep(0.001)
        await asyncio.Event().wait()
        return response


async def serve(count: int, changes: int) -> None:
    """Until it is killed; says its port and CA first."""
    app = web.Application()
    app.router.add_get("/api/v1/pods", Server(count, changes).answer)
    await answering.serve(app)


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), int(sys.argv[2])))
