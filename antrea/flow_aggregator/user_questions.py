"""Requests of users about records over HTTP: queries, streams of records, and what kube-apiserver shows them of the cluster."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import msgspec

from antrea.errors import Invalid, Unavailable
from antrea.flow_aggregator.query import QUERIES, answer
from antrea.flow_aggregator.user_antctl import MAX_POLICIES, UserAntctl
from antrea.flow_aggregator.visibility import question_of
from antrea.outside.apiserver.authentication import USER
from antrea.outside.apiserver.status import ApiError
from antrea.outside.http.handlers import json_answer
from antrea.outside.kube.answer import Forbidden
from antrea.outside.kube.client import Kube

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from aiohttp import web

    from antrea.flow_aggregator.live import LiveRecords
    from antrea.flow_aggregator.visibility import Question
    from antrea.outside.apiserver.authorization import Authorization
    from antrea.outside.clickhouse.store import Store
    from antrea.outside.http.handlers import Handler
    from antrea.outside.kube.access import Access

    Ask = Callable[[web.Request, Question], Awaitable[web.StreamResponse]]
    from collections.abc import Iterator, Mapping

BEARER: Final = "Bearer "
NODES: Final = "/api/v1/nodes"
AGENTS: Final = "/apis/crd.antrea.io/v1beta1/antreaagentinfos"
MAX_NODES: Final = 1000
"""Nodes of one answer."""
STALE: Final = 180
"""Seconds after which an agent that has not reported counts as away."""
GOOD: Final = frozenset(
    ("AgentHealthy", "ControllerConnectionUp", "OVSDBConnectionUp", "OpenflowConnectionUp")
)
"""Conditions that are True while all is well; all others are True when something is wrong."""


class _List(msgspec.Struct):
    items: list[dict[str, Any]]
    metadata: dict[str, Any] = {}


async def node_states(access: Access) -> dict[str, Any]:
    """One row for each Node. Raises Refused: the user may not list them, Unavailable."""
    async with Kube(access) as kube:
        nodes, agents = [await kube.get(path, _List, {"limit": str(MAX_NODES)}) for path in (NODES, AGENTS)]
    known = {agent["metadata"]["name"]: agent for agent in (agents.items if agents else ())}
    rows = [_row(node, known.get(node["metadata"]["name"])) for node in (nodes.items if nodes else ())]
    return {"rows": rows, "truncated": bool(nodes and nodes.metadata.get("continue"))}


def _row(node: Mapping[str, Any], agent: Mapping[str, Any] | None) -> dict[str, Any]:
    status = node.get("status", {})
    ready = {condition["type"]: condition["status"] for condition in status.get("conditions", ())}.get(
        "Ready", "Unknown"
    )
    troubles = [] if ready == "True" else ["Node is not Ready"]
    troubles.extend(agent_troubles(agent, datetime.now(UTC)) if agent else ["no agent has reported"])
    agent = agent or {}
    return {
        "name": node["metadata"]["name"],
        "addresses": [
            address["address"] for address in status.get("addresses", ()) if address["type"] == "InternalIP"
        ],
        "version": agent.get("version", ""),
        "ovsVersion": agent.get("ovsInfo", {}).get("version", ""),
        "pods": agent.get("localPodNum", 0),
        "flows": sum(agent.get("ovsInfo", {}).get("flowTable", {}).values()),
        "policies": agent.get("networkPolicyControllerInfo", {}).get("networkPolicyNum", 0),
        "troubles": troubles,
    }


def agent_troubles(agent: Mapping[str, Any], now: datetime) -> Iterator[str]:
    """Yield sentences on errors that an agent reports."""
    conditions = agent.get("agentConditions", ())
    for condition in conditions:
        if (condition["status"] == "True") != (condition["type"] in GOOD):
            yield ": ".join(
                text
                for text in (condition["type"], condition.get("message") or condition.get("reason"))
                if text
            )
    last = max(
        (datetime.fromisoformat(condition["lastHeartbeatTime"]) for condition in conditions), default=None
    )
    if last is None or (now - last).total_seconds() > STALE:
        yield (
            f"its agent has not reported since {last:%Y-%m-%dT%H:%M:%SZ}" if last else "no agent has reported"
        )


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
            return json_answer(await self._visible_answer(question, name, **question.parameters))

        return ask

    async def _visible_answer(self, question: Question, name: str, **parameters: str) -> dict[str, Any]:
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
        return await self._visible_answer(question, "map", **{**question.parameters, "by": "endpoint"})

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
