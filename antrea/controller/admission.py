"""Answers the API server's webhooks: reads the review, lets the feature's pure rules decide, writes the verdict."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
from aiohttp import web

from antrea.apis.admission import (
    AdmissionAnswer,
    AdmissionRequest,
    AdmissionResponse,
    AdmissionReview,
    AdmissionStatus,
    UserInfo,
)
from antrea.apis.null import without_nulls
from antrea.errors import Invalid, Refused, Unavailable
from antrea.facts.fact import each
from antrea.features.admission import Find, Installation, MayGet, Review, Warn, gate_steps
from antrea.outside import klog

if TYPE_CHECKING:
    from antrea.engine import Facts
    from antrea.facts.fact import Fact
    from antrea.features.admission import Steps, Watched, Webhook

log = klog.logger(__name__)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
MAX_BODY = 8 << 20
"""Bytes of a review: the API server takes objects of 3 MiB, an update holds two."""
SECONDS = 4.0
"""For one decision, below the 5 s that the API server waits, so that the user reads why."""
JSON = "application/json"


class Outside(Protocol):
    """What a decision may look up: `find` an object, or None; `all` of a collection; whether `user` may read a Secret.

    All raise Unavailable, Refused.
    """

    async def find(self, path: str, kind: type) -> Any: ...

    async def all(self, path: str, kind: type) -> Sequence[Any]: ...

    async def may_get_secret(self, user: UserInfo, namespace: str, name: str) -> bool: ...


class Desk:
    """What verdicts are made from: facts, and what may be looked up besides."""

    def __init__(self, facts: Facts, outside: Outside) -> None:
        self.facts = facts
        self.outside = outside
        self._listed: set[type[Fact]] = set()

    async def listed(self, kinds: Iterable[type[Fact]]) -> None:
        """Wait until each kind has been listed once; rows of a watch that is interrupted since count as they are."""
        missing = set(kinds) - self._listed
        if not missing:
            return
        with self.facts.news() as told:
            while not all(self.facts.feeds.has(kind) for kind in missing):
                told.clear()
                await told.wait()
        self._listed |= missing

    async def list_anew(self, collections: Iterable[Watched]) -> None:
        """Bring the rows of these up to now. Raises Unavailable, Refused."""
        for one in collections:
            found = await self.outside.all(one.path, one.kind)
            self.facts.replace(one.fact, [row for shown in found for row in each(one.row(shown))])


def routes(webhooks: Iterable[Webhook], facts: Facts, outside: Outside) -> Mapping[str, Handler]:
    """Handlers of POST by path."""
    desk = Desk(facts, outside)
    return {
        path: _handler(webhook, desk) for webhook in webhooks for path in (webhook.path, *webhook.aliases)
    }


def _handler(webhook: Webhook, desk: Desk) -> Handler:
    async def handler(request: web.Request) -> web.StreamResponse:
        body = await read_body(request)
        if request.content_type != JSON:
            raise web.HTTPUnsupportedMediaType(text=f"invalid Content-Type, expected `{JSON}`")
        answer = AdmissionAnswer(await review(webhook, desk, body))
        return web.Response(body=msgspec.json.encode(answer), content_type=JSON)

    return handler


async def read_body(request: web.Request) -> bytes:
    """The whole body. Raises HTTP errors 400 for an empty one, 413 for one above MAX_BODY."""
    body = bytearray()
    async for chunk in request.content.iter_any():
        body += chunk
        if len(body) > MAX_BODY:
            raise web.HTTPRequestEntityTooLarge(MAX_BODY, len(body), text=f"more than {MAX_BODY} bytes")
    if not body:
        raise web.HTTPBadRequest(text="empty request body")
    return bytes(body)


async def review(webhook: Webhook, desk: Desk, body: bytes) -> AdmissionResponse:
    """The verdict on one AdmissionReview; whatever the body is, an answer."""
    uid = ""
    try:
        asked = msgspec.json.decode(body, type=AdmissionReview).request
        if asked is None:
            raise Invalid("request", "is missing")
        uid = asked.uid
        async with asyncio.timeout(SECONDS):
            answer = await _decide(webhook, desk, asked)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as why:
        answer = denial(f"the AdmissionReview is not understood: {why}")
    except Invalid as no:
        answer = denial(str(no))
    except TimeoutError:
        answer = denial(f"{webhook.name} could not decide within {SECONDS:g} s, try again", code=503)
    except (Unavailable, Refused) as why:
        answer = denial(f"{webhook.name} cannot decide now, try again: {why}", code=503)
    if not answer.allowed and answer.status:
        log.v(2).info("Denied an object", webhook=webhook.name, why=answer.status.message)
    return msgspec.structs.replace(answer, uid=uid)


def denial(message: str, code: int = 0) -> AdmissionResponse:
    """No, and why; `code` 503 says that the same request may pass later."""
    return AdmissionResponse(allowed=False, status=AdmissionStatus(message, code=code))


async def _decide(webhook: Webhook, desk: Desk, asked: AdmissionRequest) -> AdmissionResponse:
    facts, outside = desk.facts, desk.outside
    installation = facts.get(Installation) or Installation()
    warnings = await _run(gate_steps(webhook, installation.gates, asked.operation), asked.user_info, outside)
    try:
        new, old = (_decoded(one, webhook.kind) for one in (asked.object, asked.old_object))
    except Invalid:
        if webhook.failure != "Ignore":
            raise
        # it only warns, and is asked before the schema, which names all that is wrong
        return AdmissionResponse(allowed=True)
    seen = Review(asked.operation, new, old, asked.user_info, asked.name, asked.namespace)
    await desk.listed(webhook.reads)
    if asked.operation != "DELETE":
        await desk.list_anew(webhook.anew)
    said = await _run(webhook.validate(facts, seen), asked.user_info, outside) if webhook.validate else []
    if not webhook.mutate:
        return AdmissionResponse(allowed=True, warnings=(*warnings, *said))
    # whoever validates the kind says what its gates have to say
    answer = AdmissionResponse(allowed=True, warnings=tuple(said))
    if patches := list(webhook.mutate(facts, seen)):
        patch = msgspec.json.encode(patches)
        return msgspec.structs.replace(answer, patch=patch, patch_type="JSONPatch")
    return answer


async def _run(steps: Steps, user: UserInfo, outside: Outside) -> list[str]:
    """Let the rules decide, looking up for them what they ask. Raises Invalid, Unavailable, Refused."""
    warnings: list[str] = []
    try:
        step = next(steps)
        while True:
            if isinstance(step, Warn):
                warnings.append(step.text)
                step = next(steps)
                continue
            try:
                answer = await _look_up(step, user, outside)
            except Unavailable as why:
                step = steps.throw(why)
            else:
                step = steps.send(answer)
    except StopIteration:
        return warnings


async def _look_up(step: Find | MayGet, user: UserInfo, outside: Outside) -> Any:
    if isinstance(step, Find):
        return await outside.find(step.path, step.kind)
    return await outside.may_get_secret(user, step.namespace, step.secret)


def _decoded(raw: msgspec.Raw, kind: Any) -> Any:
    """The object as `kind`, or None for null. Raises Invalid naming the field."""
    tree = msgspec.json.decode(raw)
    if tree is None:
        return None
    try:
        return msgspec.convert(without_nulls(tree), kind)
    except msgspec.ValidationError as why:
        text, _, where = str(why).partition(" - at `")
        raise Invalid(where.rstrip("`").removeprefix("$").lstrip(".") or "object", text) from why
