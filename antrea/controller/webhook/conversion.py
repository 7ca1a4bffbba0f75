"""Answers the API server's conversion webhooks: every object of a review into the version asked for, or none.

parity: pkg/apiserver/handlers/webhook/convert_crd.go
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from aiohttp import web

from antrea.apis.admission import ConversionAnswer, ConversionResponse, ConversionResult, ConversionReview
from antrea.controller.webhook.admission import JSON, review_body
from antrea.controller.webhook.review_thread import LARGE, ReviewThread, caller_of
from antrea.decoding import decode_json, guarded
from antrea.errors import Invalid
from antrea.features.registry.conversion import PATHS, convert

if TYPE_CHECKING:
    from collections.abc import Mapping

    from antrea.controller.webhook.admission import Handler


def conversion_routes() -> Mapping[str, Handler]:
    """Handlers of POST by path."""
    return {path: _handler(kind) for path, kind in PATHS.items()}


def _handler(kind: str) -> Handler:
    async def handler(request: web.Request) -> web.StreamResponse:
        async with review_body(request) as body:
            if request.content_type != JSON:
                # everybody may ask, and no API server sends anything else
                text = f"Invalid Content-Type={request.content_type}, expected {JSON}"
                raise web.HTTPUnsupportedMediaType(text=text)
            try:
                answer = await ReviewThread(caller_of(request), large=len(body) > LARGE).do(
                    lambda: _converted(body, kind)
                )
            except Invalid as error:
                raise web.HTTPBadRequest(
                    text=f"the ConversionReview is not understood: {error.why}"
                ) from error
            return web.Response(body=answer, content_type=JSON)

    return handler


def _converted(body: bytes, kind: str) -> bytes:
    review = decode_json(body, ConversionReview, "ConversionReview")
    answer = ConversionAnswer(converted(review, kind), review.api_version)
    return guarded("ConversionReview", msgspec.json.encode, answer)


def converted(review: ConversionReview, kind: str) -> ConversionResponse:
    """All objects in the version asked for; the first that cannot be converted fails them all."""
    request = review.request
    try:
        done = tuple(convert(kind, request.desired_api_version, manifest) for manifest in request.objects)
    except Invalid as error:
        return ConversionResponse(request.uid, None, ConversionResult("Failure", error.why))
    return ConversionResponse(request.uid, done, ConversionResult("Success"))
