"""The front's webhooks, ready to serve: rows kept by watches of their own, and what decisions look up in the API.

They live in the process that serves, so that no computation of the controller delays a user's kubectl.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec
from aiohttp import web

from antrea.apis.admission import ConversionAnswer, ConversionResponse, ConversionResult, ConversionReview
from antrea.apis.authorization import (
    REVIEWS,
    ResourceAttributes,
    SubjectAccessReview,
    SubjectAccessReviewSpec,
)
from antrea.controller.webhook.admission import JSON, Listing, review_body, routes
from antrea.controller.webhook.review_thread import LARGE, ReviewThread, caller_of
from antrea.decoding import decode_json, guarded
from antrea.engine import Engine, Facts
from antrea.errors import Invalid, Refused, Unavailable
from antrea.features.framework.admission import Installation, wanted_gates
from antrea.features.framework.watch_plan import watch_plan
from antrea.features.registry.conversion import PATHS, convert
from antrea.features.registry.webhooks import WATCHED, WEBHOOKS
from antrea.outside.kube.resource_feed import ResourceFeed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from antrea.apis.admission import UserInfo
    from antrea.controller.webhook.admission import Handler
    from antrea.outside.kube.answer import Odd
    from antrea.outside.kube.client import Kube

ACCESS_SECONDS = 3.0
"""For one question on rights, below what the webhook itself has."""


# parity: pkg/apiserver/handlers/webhook/convert_crd.go
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


class ApiLookup:
    """Lookups of decisions at the API server."""

    def __init__(self, kube: Kube) -> None:
        self._kube = kube

    async def find(self, path: str, kind: type) -> Any:
        """The object at `path`, or None. Raises Unavailable, Refused."""
        return await self._kube.get(path, kind)

    async def all(self, path: str, kind: type) -> Listing:
        """The objects of the collection `path`. Raises Unavailable, Refused."""
        objects: tuple[tuple[Any, ...], tuple[Odd, ...]] = await self._kube.list_each(path, kind)
        return Listing(objects[0], frozenset(odd.full_name.removeprefix("/") for odd in objects[1]))

    async def may_get_secret(self, user: UserInfo, namespace: str, name: str) -> bool:
        """Whether `user` may read the Secret. Raises Unavailable."""
        what = ResourceAttributes("get", "secrets", namespace, name)
        spec = SubjectAccessReviewSpec(what, user.username, user.groups, user.uid, user.extra)
        question = SubjectAccessReview(
            spec, kind="SubjectAccessReview", api_version="authorization.k8s.io/v1"
        )
        try:
            async with asyncio.timeout(ACCESS_SECONDS):
                answer = await self._kube.ask(REVIEWS, question, SubjectAccessReview)
        except TimeoutError as error:
            raise Unavailable(f"no answer within {ACCESS_SECONDS:g} s") from error
        except Refused as error:
            raise Unavailable(str(error)) from error
        return answer.status.allowed


class Webhooks:
    """`routes` are handlers of POST by path; they answer once `run` has listed what they read."""

    def __init__(
        self, kube: Kube, feature_gates: Mapping[str, bool], *, namespace: str, service_account: str
    ) -> None:
        self._kube = kube
        self._facts = Facts()
        self._facts.put(Installation(namespace, service_account, wanted_gates(feature_gates)))
        self._feeds = [
            ResourceFeed(
                kube, watch.path, watch.kind, rows=watch.rows, query=watch.query, optional=watch.optional
            )
            for watch in watch_plan(WATCHED)
        ]
        self.routes: Mapping[str, Handler] = {
            **routes(WEBHOOKS, self._facts, ApiLookup(kube)),
            **conversion_routes(),
        }

    async def run(self) -> None:
        """Keep the rows true, until cancelled."""
        async with asyncio.TaskGroup() as group:
            # without units, a pass moves what feeds wrote to where it is found by index
            group.create_task(Engine(self._facts, (), {}).run())
            for feed in self._feeds:
                group.create_task(feed.run(self._facts))

    def trouble(self) -> str:
        """Why decisions may be out of date; empty if they are not. For readiness."""
        return next((feed.trouble for feed in self._feeds if feed.trouble), "")
