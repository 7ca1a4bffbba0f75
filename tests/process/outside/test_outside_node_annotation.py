"""Annotations of Nodes, as an API server on loopback hears of them."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web
from loopback import client_of

from antrea.apis.annotation import NodeAnnotation
from antrea.errors import Refused
from antrea.outside.kube.node_annotation_sink import AnnotationSink

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

NO = {
    "kind": "Status",
    "status": "Failure",
    "message": 'nodes "gone" not found',
    "reason": "NotFound",
    "code": 404,
}


@asynccontextmanager
async def served() -> AsyncIterator[tuple[AnnotationSink, list[tuple[str, str, Any]]]]:
    """A sink, and (method, path, annotations) of each request; there is no Node `gone`."""
    asked: list[tuple[str, str, Any]] = []

    async def answer(request: web.Request) -> web.Response:
        body = json.loads(await request.read())
        asked.append((request.method, request.path, body["metadata"].pop("annotations")))
        assert body == {"metadata": {}}
        return web.json_response(NO, status=404) if "/gone/" in request.path else web.json_response({})

    async with client_of(answer) as kube:
        yield AnnotationSink(kube), asked


async def test_one_patch_of_its_status_brings_a_node_all_its_annotations_and_takes_those_that_go() -> None:
    put = [NodeAnnotation("a", "x", "1"), NodeAnnotation("a", "y", ""), NodeAnnotation("b", "x", "2")]
    async with served() as (sink, asked):
        await sink.apply(put, [NodeAnnotation("a", "old", "0"), NodeAnnotation("a", "x", "0")])
        await sink.resync(put[2:])
        await sink.sweep(0)
    assert asked == [
        ("PATCH", "/api/v1/nodes/a/status", {"old": None, "x": "1", "y": None}),
        ("PATCH", "/api/v1/nodes/b/status", {"x": "2"}),
        ("PATCH", "/api/v1/nodes/b/status", {"x": "2"}),
    ]


async def test_a_refusal_names_what_was_to_be_written_to_that_node() -> None:
    here, there = NodeAnnotation("gone", "x", "1"), NodeAnnotation("a", "x", "1")
    async with served() as (sink, _):
        with pytest.raises(Refused, match='nodes "gone" not found') as put:
            await sink.apply([there, here], [])
        with pytest.raises(Refused) as drop:
            await sink.apply([], [here])
    assert (put.value.entries, drop.value.entries) == ((here,), (here,))
