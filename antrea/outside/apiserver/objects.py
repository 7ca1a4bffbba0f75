"""Answers what is asked below /apis, from the stores and from who computes what is not stored."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
from aiohttp import web

from antrea.apis.meta import Status, StatusDetails
from antrea.outside.apiserver import negotiation, watching
from antrea.outside.apiserver.bodies import BODIES
from antrea.outside.apiserver.form import body
from antrea.outside.apiserver.options import options
from antrea.outside.apiserver.status import NO_METHOD, NO_RESOURCE, ApiError, missing, success
from antrea.outside.apiserver.store import Store
from antrea.outside.kube.clock import stamp

if TYPE_CHECKING:
    from collections.abc import Sequence

    from antrea.apis.resource import Resource, Subresource
    from antrea.outside.apiserver.attributes import Attributes
    from antrea.outside.apiserver.form import Form, Pieces

SYNC_SECONDS = 10.0
"""How long a get or list waits for the first whole pass."""


class Question(msgspec.Struct, frozen=True):
    """Request that only the computing process can answer; `body` is the posted object, None for get and delete."""

    group: str
    resource: str
    subresource: str
    verb: str
    namespace: str
    name: str
    query: Mapping[str, str] = {}
    body: Any = None


class Computes(Protocol):
    """Answers questions with an object, or with a Status; raises Answered, Unavailable."""

    async def answer(self, question: Question) -> msgspec.Struct: ...


Stream = Callable[[web.Request, "Attributes"], Awaitable[web.StreamResponse]]
"""Answers with what is not an object."""


class Objects:
    """All resources of a server, with a store for each that has one."""

    def __init__(
        self,
        resources: Sequence[Resource],
        computes: Computes,
        streams: Mapping[tuple[str, str], Stream] = {},
    ) -> None:
        """`streams` are by resource and subresource."""
        self.resources = tuple(resources)
        self.stores: dict[tuple[str, str], Store] = {
            (row.group, row.plural): Store(row) for row in resources if row.stored
        }
        self._rows = {(row.group, row.version, row.plural): row for row in resources}
        self._computes = computes
        self._streams = streams

    def lacks(self) -> str:
        """Which stores no whole pass has filled yet; empty once all are."""
        late = [store.resource.plural for store in self.stores.values() if not store.synced]
        return f"not computed yet: {', '.join(late)}" if late else ""

    async def answer(self, request: web.Request, attributes: Attributes) -> web.StreamResponse:
        """Raises Answered, Unavailable."""
        resource = self._row(attributes)
        if attributes.subresource:
            return await self._part(request, attributes, resource)
        if attributes.verb not in resource.verbs or (attributes.verb == "create" and attributes.name):
            raise ApiError(405, NO_METHOD, StatusDetails())
        accept = request.headers.get("Accept", "")
        include = request.query.get("includeObject", "")
        form, media = negotiation.negotiate(
            resource, accept, include=include, watch=attributes.verb == "watch"
        )
        store = self.stores.get((resource.group, resource.plural))
        if attributes.verb == "create":
            return await _response(
                request, await self._create(request, attributes, resource, form), media, 201
            )
        if store is None:
            question = _question(request, attributes)
            answered = await self._computes.answer(question)
            return await _response(request, _shown(form, answered), media, 200)
        if attributes.verb == "delete":
            return await _response(request, _drop(store, attributes), media, 200)
        wanted = options(resource, attributes, request.query) if attributes.verb != "get" else None
        if wanted and attributes.verb == "watch":
            return await watching.send(
                request,
                store,
                lambda: store.watch(
                    wanted.selection, form, mark_end=wanted.mark_end, bookmarks=wanted.bookmarks
                ),
                watching.lifetime(wanted.seconds),
            )
        await _computed(store)
        if wanted is None:
            stored = store.get(attributes.key)
            if stored is None:
                raise missing(resource, attributes.name)
            return await _response(request, form.one(*stored), media, 200)
        rows = [
            row
            for row in store.selected(wanted.selection)
            if all(term.matches(row[0].metadata.labels) for term in wanted.labels)
        ]
        return await _response(request, form.many(rows, ""), media, 200)

    def _row(self, attributes: Attributes) -> Resource:
        """The resource at this path, where at least one method is served. Raises Answered: 404."""
        resource = self._rows.get((attributes.group, attributes.version, attributes.resource))
        if resource is None or (attributes.namespace and not resource.namespaced):
            raise ApiError(404, NO_RESOURCE, StatusDetails())
        outside = resource.namespaced and _needs_namespace(attributes)
        if not attributes.subresource and (outside or not resource.has_path(named=_is_of_one(attributes))):
            raise ApiError(404, NO_RESOURCE, StatusDetails())
        return resource

    async def _part(
        self, request: web.Request, attributes: Attributes, resource: Resource
    ) -> web.StreamResponse:
        part: Subresource | None = next(
            (p for p in resource.subresources if p.name == attributes.subresource), None
        )
        if part is None:
            raise ApiError(404, NO_RESOURCE, StatusDetails())
        if attributes.verb not in part.verbs:
            raise ApiError(405, NO_METHOD, StatusDetails())
        if stream := self._streams.get((attributes.resource, attributes.subresource)):
            return await stream(request, attributes)
        media = negotiation.plain(request.headers.get("Accept", ""))
        posted = await _posted(request, part.kind) if attributes.verb == "create" else None
        if posted is not None and posted.metadata.name != attributes.name:
            raise ApiError(400, "name in URL does not match name in NetworkPolicyStatus object")
        result = await self._computes.answer(_question(request, attributes, posted))
        return await _response(
            request, (msgspec.json.encode(result),), media, 201 if posted is not None else 200
        )

    async def _create(
        self, request: web.Request, attributes: Attributes, resource: Resource, form: Form
    ) -> Pieces:
        posted = await _posted(request, resource.struct)
        name = posted.metadata.name
        if posted.metadata.namespace not in ("", attributes.namespace):
            raise ApiError(
                400, "the namespace of the provided object does not match the namespace sent on the request"
            )
        store = self.stores.get((resource.group, resource.plural))
        if store is None:
            return _shown(form, await self._computes.answer(_question(request, attributes, posted)))
        if not name:
            raise ApiError(
                422, f'{resource.kind}.{resource.group} "" is invalid: metadata.name: Required value'
            )
        if not posted.metadata.creation_timestamp:
            now = stamp()
            posted = msgspec.structs.replace(
                posted, metadata=msgspec.structs.replace(posted.metadata, creation_timestamp=now)
            )
        store.put(name, posted)
        return form.one(posted, body(posted))


def _is_of_one(attributes: Attributes) -> bool:
    """Whether the path names an object; a list has a name if its field selector allows one alone."""
    return bool(attributes.name) and attributes.verb not in ("list", "watch", "deletecollection")


def _needs_namespace(attributes: Attributes) -> bool:
    return attributes.verb in ("get", "create", "delete") and not attributes.namespace


def _question(request: web.Request, attributes: Attributes, posted: Any = None) -> Question:
    return Question(
        attributes.group,
        attributes.resource,
        attributes.subresource,
        attributes.verb,
        attributes.namespace,
        attributes.name,
        dict(request.query),
        posted,
    )


async def _posted(request: web.Request, kind: type[Any]) -> Any:
    """The object in the body. Raises Answered: 400, 413, 415."""
    async with BODIES.read(request, request.client_max_size) as text:
        return negotiation.read(text, request.headers.get("Content-Type", ""), kind)


async def _computed(store: Store) -> None:
    if not await store.filled(SYNC_SECONDS):
        raise ApiError(503, f"{store.resource.plural} are not computed yet, try again")


def _drop(store: Store, attributes: Attributes) -> Pieces:
    if store.get(attributes.key) is None:
        raise missing(store.resource, attributes.name)
    store.drop(attributes.key)
    details = StatusDetails(name=attributes.name, group=attributes.group, kind=attributes.resource)
    return (msgspec.json.encode(success(0, details)),)


def _shown(form: Form, value: msgspec.Struct) -> Pieces:
    return (msgspec.json.encode(value),) if isinstance(value, Status) else form.one(value, body(value))


async def _response(request: web.Request, pieces: Pieces, media: str, code: int) -> web.Response:
    text = b"".join(pieces)
    if request.query.get("pretty", "") in ("true", "1"):
        text = msgspec.json.format(text, indent=2)
    headers = {"Cache-Control": "no-cache, private", "Content-Type": media, "Vary": "Accept"}
    return web.Response(body=await negotiation.written(text, media), status=code, headers=headers)
