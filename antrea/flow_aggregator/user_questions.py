"""Requests of users about records over HTTP: queries, streams of records, and what kube-apiserver shows them of the cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from antrea.errors import Invalid, Unavailable
from antrea.flow_aggregator.node_states import node_states
from antrea.flow_aggregator.query import QUERIES, answer
from antrea.flow_aggregator.user_antctl import MAX_POLICIES, UserAntctl
from antrea.flow_aggregator.visibility import question_of
from antrea.outside.apiserver.authentication import USER
from antrea.outside.apiserver.status import ApiError
from antrea.outside.http.handlers import json_answer
from antrea.outside.kube.answer import Forbidden

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from aiohttp import web

    from antrea.flow_aggregator.live import LiveRecords
    from antrea.flow_aggregator.visibility import Question
    from antrea.outside.apiserver.authorization import Authorization
    from antrea.outside.clickhouse.store import Store
    from antrea.outside.http.handlers import Handler
    from antrea.outside.kube.access import Access
    from antrea.outside.kube.client import Kube

    Ask = Callable[[web.Request, Question], Awaitable[web.StreamResponse]]

BEARER: Final = "Bearer "


class UserQuestions:
    """Their handlers; `kube` None: users are not authorized, and antctl in this Pod alone may ask."""

    def __init__(
        self,
        store: Callable[[], Store | None],
        live: LiveRecords,
        authorization: Authorization,
        kube: Kube | None,
        token: str,
    ) -> None:
        """`token` is that of antctl in this Pod, which kube-apiserver does not know."""
        self._store, self._live, self._authorization = store, live, authorization
        self._kube, self._own, self._antctl = kube, token, UserAntctl()

    def handlers(self) -> dict[tuple[str, str], Handler]:
        """Return the handlers by method and path."""
        ask: dict[tuple[str, str], Ask] = {
            ("GET", "live"): self._follow,
            ("GET", "explain"): self._explain,
            ("GET", "nodes"): self._nodes,
            ("GET", "recommend"): self._recommend,
            ("POST", "replay"): self._replay,
        }
        handlers = {(method, f"/flows/{name}"): self._handler(query) for (method, name), query in ask.items()}
        queries = {("GET", _path(name)): self._handler(self._query(name)) for name in QUERIES}
        return {**handlers, **queries}

    def _handler(self, ask: Ask) -> Handler:
        async def handler(request: web.Request) -> web.StreamResponse:
            try:
                return await ask(request, await question_of(request, self._authorization))
            except Forbidden as error:
                raise ApiError(403, error.why) from error
            except Invalid as error:
                raise Invalid("", str(error)) from error  # an answer has no other place for the parameter

        return handler

    def _query(self, name: str) -> Ask:
        async def ask(_: web.Request, question: Question) -> web.StreamResponse:
            return json_answer(await self._seen(question, name, **question.parameters))

        return ask

    async def _seen(self, question: Question, name: str, **parameters: str) -> dict[str, Any]:
        store = self._store()
        if store is None:
            raise Unavailable(
                "no records are kept: set store.enable or clickHouse.enable in flow-aggregator.conf"
            )
        return await answer(store, name, parameters, question.namespaces)

    async def _follow(self, request: web.Request, question: Question) -> web.StreamResponse:
        return await self._live.follow(request, request[USER].name, question.parameters, question.namespaces)

    async def _explain(self, request: web.Request, question: Question) -> web.StreamResponse:
        return json_answer(
            await self._antctl.explained(request[USER].name, self._access(request), question.parameters)
        )

    async def _nodes(self, request: web.Request, _: Question) -> web.StreamResponse:
        return json_answer(await node_states(self._access(request)))

    async def _recommend(self, request: web.Request, question: Question) -> web.StreamResponse:
        access, namespace = self._access(request), question.parameters.get("namespace", "")
        answer = await self._antctl.recommended(
            request[USER].name, access, namespace, await self._links(question)
        )
        return json_answer({**answer, "partial": question.namespaces is not None})

    async def _replay(self, request: web.Request, question: Question) -> web.StreamResponse:
        access, policies = self._access(request), await request.content.read(MAX_POLICIES + 1)
        while len(policies) <= MAX_POLICIES and (more := await request.content.read(MAX_POLICIES)):
            policies += more
        namespace = question.parameters.get("namespace", "")
        return json_answer(
            await self._antctl.replayed(
                request[USER].name, access, namespace, policies, await self._links(question)
            )
        )

    async def _links(self, question: Question) -> dict[str, Any]:
        return await self._seen(question, "map", **{**question.parameters, "by": "endpoint"})

    def _access(self, request: web.Request) -> Access:
        """To kube-apiserver as this user. Raises ApiError."""
        token = request.headers.get("Authorization", "").removeprefix(BEARER).strip()
        if self._kube is None or not token or token == self._own:
            raise ApiError(
                403, "this is for users of the cluster: set apiServer.authorizeUsers, and ask with a token"
            )
        return self._kube.access.as_bearer(token)


def _path(query: str) -> str:
    return "/flows" if query == "flows" else f"/flows/{query}"
