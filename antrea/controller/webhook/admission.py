"""Answers the API server's webhooks: reads the review, lets the feature's pure rules decide, writes the verdict."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
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
from antrea.controller.apiserver.single_flight import SingleFlight
from antrea.controller.webhook.review_thread import LARGE, Caller, ReviewThread, caller_of
from antrea.decoding import decode_json, decode_tree, guarded
from antrea.errors import Invalid, Refused, Unavailable
from antrea.facts.fact import each
from antrea.features.framework.admission import (
    Find,
    FindAll,
    Installation,
    MayGet,
    Review,
    Warn,
    gate_steps,
    is_off,
)
from antrea.outside.apiserver.bodies import BODIES
from antrea.outside.apiserver.failure_limit import FailureLimit
from antrea.outside.log import klog

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from antrea.engine import Facts
    from antrea.facts.fact import Fact
    from antrea.features.framework.admission import Steps, Watched, Webhook

log = klog.logger(__name__)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
MAX_BODY = 8 << 20
"""Bytes of a review: the API server takes objects of 3 MiB, an update holds two."""
SECONDS = 4.0
"""For one decision, below the 5 s that the API server waits, so that the user reads why."""
JSON = "application/json"
MAX_WARNINGS, MAX_WARNING, MAX_MESSAGE = 20, 500, 4000
"""Maximum number of warnings in an answer, and maximum characters of a warning and of a denial."""


class Listing(msgspec.Struct, frozen=True):
    """Content of a collection: objects, and the names of those that cannot be read."""

    objects: Sequence[Any] = ()
    unread: frozenset[str] = frozenset()


class ApiReader(Protocol):
    """Lookups of a decision: `find` an object, or None; `all` of a collection; whether `user` may read a Secret.

    All raise Unavailable, Refused.
    """

    async def find(self, path: str, kind: type) -> Any: ...

    async def all(self, path: str, kind: type) -> Listing: ...

    async def may_get_secret(self, user: UserInfo, namespace: str, name: str) -> bool: ...


class AdmissionContext:
    """Input of verdicts: facts, and lookups beyond them."""

    def __init__(self, facts: Facts, outside: ApiReader) -> None:
        self.facts = facts
        self.outside = outside
        self._listed: set[type[Fact]] = set()
        self._lists: dict[type[Fact], SingleFlight] = {}
        self._lookups = FailureLimit()

    async def listed(self, kinds: Iterable[type[Fact]]) -> None:
        """Wait until each kind has been listed once; rows of a watch that is interrupted since count as they are."""
        missing = set(kinds) - self._listed
        if not missing:
            return
        with self.facts.watch(*missing) as changed:
            while not all(self.facts.feeds.has(kind) for kind in missing):
                changed.clear()
                await changed.wait()
        self._listed |= missing

    async def list_anew(self, collections: Iterable[Watched], caller: Caller) -> None:
        """Bring the rows of these up to now: one list at a time, for all who ask meanwhile. Raises Unavailable, Refused."""
        for collection in collections:
            self.pay(caller)
            lists = self._lists.setdefault(collection.fact, SingleFlight(partial(self._list, collection)))
            await lists.run()

    async def _list(self, watched: Watched) -> None:
        listing = await self.outside.all(watched.path, watched.kind)
        rows = [row for shown in listing.objects for row in each(watched.row(shown))]
        # of an object that cannot be read counts what was read last
        kept = [row for name in listing.unread if (row := self.facts.get(watched.fact, name))]
        self.facts.replace(watched.fact, [*kept, *rows])

    def pay(self, caller: Caller) -> None:
        """Take a question to the API server from the caller's budget; the API server itself has no bounds. Raises Unavailable."""
        if not caller.trusted and (wait := self._lookups.reserve(caller.address)):
            raise Unavailable(
                f"reviews that {caller.address} sends ask too much of kube-apiserver, wait {math.ceil(wait)} s"
            )


def routes(webhooks: Iterable[Webhook], facts: Facts, outside: ApiReader) -> Mapping[str, Handler]:
    """Handlers of POST by path."""
    context = AdmissionContext(facts, outside)
    return {
        path: _handler(webhook, context) for webhook in webhooks for path in (webhook.path, *webhook.aliases)
    }


def _handler(webhook: Webhook, context: AdmissionContext) -> Handler:
    async def handler(request: web.Request) -> web.StreamResponse:
        async with review_body(request) as body:
            if request.content_type != JSON:
                raise web.HTTPUnsupportedMediaType(text=f"invalid Content-Type, expected `{JSON}`")
            answer = AdmissionAnswer(await review(webhook, context, body, caller_of(request)))
            return web.Response(body=msgspec.json.encode(answer), content_type=JSON)

    return handler


@asynccontextmanager
async def review_body(request: web.Request) -> AsyncIterator[bytes]:
    """The whole body. Raises HTTP errors 400 for an empty one, 413 for one above MAX_BODY, and what Bodies.read raises."""
    async with BODIES.read(request, MAX_BODY) as body:
        if not body:
            raise web.HTTPBadRequest(text="empty request body")
        yield body


def _review(body: bytes) -> AdmissionReview:
    try:
        return decode_json(body, AdmissionReview, "AdmissionReview")
    except Invalid as error:
        raise Invalid("", f"the AdmissionReview is not understood: {error.why}") from error


async def review(
    webhook: Webhook, context: AdmissionContext, body: bytes, caller: Caller
) -> AdmissionResponse:
    """The verdict on one AdmissionReview; whatever the body is, an answer."""
    uid = ""
    turn = ReviewThread(caller, large=len(body) > LARGE)
    try:
        request = (await turn.do(lambda: _review(body))).request
        if request is None:
            raise Invalid("request", "is missing")
        uid = request.uid
        async with asyncio.timeout(SECONDS):
            answer = await _decide(webhook, context, request, turn)
    except Invalid as error:
        answer = denial(str(error))
    except TimeoutError:
        answer = denial(f"{webhook.name} could not decide within {SECONDS:g} s, try again", code=503)
    except (Unavailable, Refused) as error:
        answer = denial(f"{webhook.name} cannot decide now, try again: {error}", code=503)
    if not answer.allowed and answer.status:
        log.v(2).info("Denied an object", webhook=webhook.name, why=answer.status.message)
    return msgspec.structs.replace(answer, uid=uid)


def denial(message: str, code: int = 0) -> AdmissionResponse:
    """A denial with its reason; `code` 503: the same request may pass later."""
    return AdmissionResponse(allowed=False, status=AdmissionStatus(message[:MAX_MESSAGE], code=code))


async def _decide(
    webhook: Webhook, context: AdmissionContext, request: AdmissionRequest, turn: ReviewThread
) -> AdmissionResponse:
    facts = turn.facts(context.facts)
    installation = context.facts.get(Installation) or Installation()
    if request.operation == "UPDATE" and await turn.do(
        lambda: is_left_alone(request, stays=is_off(webhook, installation.gates))
    ):
        return AdmissionResponse(allowed=True)
    gates = gate_steps(webhook, installation.gates, request.operation)
    warnings = await _run(gates, request.user_info, context, turn)
    try:
        new, old = await turn.do(
            lambda: [_decoded(manifest, webhook.kind) for manifest in (request.object, request.old_object)]
        )
    except Invalid:
        if webhook.failure != "Ignore":
            raise
        # it only warns, and is asked before the schema, which names all that is wrong
        return AdmissionResponse(allowed=True)
    seen = Review(request.operation, new, old, request.user_info, request.name, request.namespace)
    await context.listed(webhook.reads)
    if request.operation != "DELETE":
        await context.list_anew(webhook.anew, turn.caller)
    steps = webhook.validate(facts, seen) if webhook.validate else None
    said = await _run(steps, request.user_info, context, turn) if steps else []
    if not (mutate := webhook.mutate):
        return AdmissionResponse(allowed=True, warnings=bounded([*warnings, *said]))
    # whoever validates the kind says what its gates have to say
    answer = AdmissionResponse(allowed=True, warnings=bounded(said))
    if patches := await turn.do(lambda: list(mutate(facts, seen))):
        patch = msgspec.json.encode(patches)
        return msgspec.structs.replace(answer, patch=patch, patch_type="JSONPatch")
    return answer


class Fate(msgspec.Struct, frozen=True):
    """Deletion timestamp in an object's metadata, if the object is being deleted."""

    deletion_timestamp: str | None = msgspec.field(default=None, name="deletionTimestamp")


class Fated(msgspec.Struct, frozen=True):
    """An object, only whether it is being deleted."""

    metadata: Fate | None = None


def is_left_alone(request: AdmissionRequest, *, stays: bool) -> bool:
    """Whether an update changes only metadata and status of an object that is being deleted, or of any that `stays`.

    Rules of today on what was stored before must not keep a finalizer from being removed.
    """
    with suppress(Invalid):
        meta = decode_json(request.object, Fated, "object").metadata
        if not stays and (meta is None or not meta.deletion_timestamp):
            return False
        new, old = (
            decode_json(manifest, dict[str, Any], "object")
            for manifest in (request.object, request.old_object)
        )
        return _content(new) == _content(old)
    return False


def _content(tree: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in tree.items() if name not in ("metadata", "status")}


def bounded(warnings: Sequence[str]) -> tuple[str, ...]:
    """Limit warnings to the number that a person reads; the API server cuts off the rest, but the answer would hold all."""
    said = [warning[:MAX_WARNING] for warning in dict.fromkeys(warnings)]
    more = len(said) - MAX_WARNINGS
    return (*said[:MAX_WARNINGS], *([f"and {more} more"] if more > 0 else []))


async def _run(steps: Steps, user: UserInfo, context: AdmissionContext, turn: ReviewThread) -> list[str]:
    """Let the rules decide, looking up for them what they ask. Raises Invalid, Unavailable, Refused."""
    warnings: list[str] = []
    answer: Any = None
    while True:
        step = await turn.do(partial(_next, steps, answer, warnings))
        if step is None:
            return warnings
        try:
            context.pay(turn.caller)
            answer = await _look_up(step, user, context.outside)
        except Unavailable as error:
            answer = error


def _next(steps: Steps, answer: Any, warnings: list[str]) -> Find | FindAll | MayGet | None:
    """Advance the rules and return their next lookup, None at their end; add their warnings to `warnings`."""
    try:
        step = steps.throw(answer) if isinstance(answer, Unavailable) else steps.send(answer)
        while isinstance(step, Warn):
            warnings.append(step.text)
            step = next(steps)
    except StopIteration:
        return None
    return step


async def _look_up(step: Find | FindAll | MayGet, user: UserInfo, outside: ApiReader) -> Any:
    if isinstance(step, Find):
        return await outside.find(step.path, step.kind) if step.path else None
    if isinstance(step, FindAll):
        return (await outside.all(step.collection, step.kind)).objects
    return await outside.may_get_secret(user, step.namespace, step.secret)


def _decoded(raw: msgspec.Raw, kind: Any) -> Any:
    """The object as `kind`, or None for null. Raises Invalid naming the field."""
    tree = decode_json(raw, object, "object")
    if tree is None:
        return None
    try:
        return decode_tree(guarded("object", without_nulls, tree), kind, "object")
    except Invalid as error:
        text, _, where = error.why.partition(" - at `")
        raise Invalid(where.rstrip("`").removeprefix("$").lstrip(".") or "object", text) from error
