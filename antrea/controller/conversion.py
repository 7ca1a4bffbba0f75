"""Answers the API server's conversion webhooks: every object of a review into the version asked for, or none.

parity: pkg/apiserver/handlers/webhook/convert_crd.go
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import yaml
from aiohttp import web

from antrea.apis.admission import ConversionAnswer, ConversionResponse, ConversionResult, ConversionReview
from antrea.controller.admission import JSON, read_body
from antrea.errors import Invalid
from antrea.features.conversion import PATHS, convert

if TYPE_CHECKING:
    from collections.abc import Mapping

    from antrea.controller.admission import Handler

YAML = "application/yaml"


def conversion_routes() -> Mapping[str, Handler]:
    """Handlers of POST by path."""
    return {path: _handler(kind) for path, kind in PATHS.items()}


def _handler(kind: str) -> Handler:
    async def handler(request: web.Request) -> web.StreamResponse:
        body = await read_body(request)
        if request.content_type not in (JSON, YAML):
            text = f"Invalid Content-Type={request.content_type}, expected {JSON} or {YAML}"
            raise web.HTTPUnsupportedMediaType(text=text)
        try:
            tree = yaml.safe_load(body) if request.content_type == YAML else msgspec.json.decode(body)
            review = msgspec.convert(tree, ConversionReview)
        except (msgspec.MsgspecError, yaml.YAMLError, RecursionError, ValueError) as why:
            raise web.HTTPBadRequest(text=f"the ConversionReview is not understood: {why}") from why
        answer = ConversionAnswer(converted(review, kind), review.api_version)
        try:
            if _wants_yaml(request):
                return web.Response(text=yaml.safe_dump(msgspec.to_builtins(answer)), content_type=YAML)
            return web.Response(body=msgspec.json.encode(answer), content_type=JSON)
        except (
            ValueError
        ) as why:  # a number whose hexadecimal digits are read has too many decimal ones to be written
            raise web.HTTPBadRequest(text=f"the answer cannot be written: {why}") from why

    return handler


def _wants_yaml(request: web.Request) -> bool:
    accepted = request.headers.get("Accept", "")
    return YAML in accepted and JSON not in accepted and "*/*" not in accepted


def converted(review: ConversionReview, kind: str) -> ConversionResponse:
    """All objects in the version asked for; the first that cannot be converted fails them all."""
    asked = review.request
    try:
        done = tuple(convert(kind, asked.desired_api_version, one) for one in asked.objects)
    except Invalid as no:
        return ConversionResponse(asked.uid, None, ConversionResult("Failure", no.why))
    return ConversionResponse(asked.uid, done, ConversionResult("Success"))
