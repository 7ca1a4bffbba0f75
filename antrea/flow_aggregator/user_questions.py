"""What users ask about records over HTTP: queries, and records as they come."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from antrea.errors import Invalid, Unavailable
from antrea.flow_aggregator.query import QUERIES, answer
from antrea.flow_aggregator.visibility import question_of
from antrea.outside.http.handlers import json_answer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from aiohttp import web

    from antrea.flow_aggregator.live import LiveRecords
    from antrea.flow_aggregator.visibility import Question
    from antrea.outside.apiserver.authorization import Authorization
    from antrea.outside.clickhouse.store import Store
    from antrea.outside.http.handlers import Handler

    Ask = Callable[[web.Request, Question], Awaitable[web.StreamResponse]]


class UserQuestions:
    """Their handlers."""

    def __init__(
        self,
        store: Store | None,
        live: LiveRecords,
        authorization: Authorization,
    ) -> None:
        self._store, self._live, self._authorization = store, live, authorization

    def handlers(self) -> dict[tuple[str, str], Handler]:
        """By method and path."""
        ask: dict[tuple[str, str], Ask] = {
            ("GET", "live"): self._follow,
        }
        found = {(method, f"/flows/{name}"): self._handler(one) for (method, name), one in ask.items()}
        queries = {("GET", _path(name)): self._handler(self._query(name)) for name in QUERIES}
        return {**found, **queries}

    def _handler(self, ask: Ask) -> Handler:
        async def handler(request: web.Request) -> web.StreamResponse:
            try:
                return await ask(request, await question_of(request, self._authorization))
            except Invalid as no:
                raise Invalid("", str(no)) from no  # an answer has no other place for the parameter

        return handler

    def _query(self, name: str) -> Ask:
        async def ask(_: web.Request, question: Question) -> web.StreamResponse:
            return json_answer(await self._seen(question, name, **question.parameters))

        return ask

    async def _seen(self, question: Question, name: str, **parameters: str) -> dict[str, Any]:
        if self._store is None:
            raise Unavailable(
                "no records are kept: set store.enable or clickHouse.enable in flow-aggregator.conf"
            )
        return await answer(self._store, name, parameters, question.namespaces)

    async def _follow(self, request: web.Request, question: Question) -> web.StreamResponse:
        return await self._live.follow(request, question.parameters, question.namespaces)


def _path(query: str) -> str:
    return "/flows" if query == "flows" else f"/flows/{query}"
