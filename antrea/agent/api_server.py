"""The agent's own API, for antctl and kubelet's probes: https at apiPort.

Handlers are functions of an `AgentView` and the query; source: upstream pkg/agent/apiserver/handlers.
"""

from __future__ import annotations

import importlib.metadata
import inspect
import os
import re
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
from aiohttp import web

from antrea.apis.agent_api import (
    AgentCondition,
    AgentInfoAnswer,
    FlowAnswer,
    OvsInfo,
    PodInterfaceAnswer,
    version_info,
)
from antrea.apis.core import ObjectReference
from antrea.config.agent import AgentConfig
from antrea.config.effect import InEffect, values
from antrea.engine import Facts
from antrea.errors import Invalid
from antrea.facts.node import ThisNode
from antrea.facts.ovs import PodInterface
from antrea.features.gate import EnabledGates, statuses
from antrea.outside.serving import (
    TOKEN_FILE,
    ApiServer,
    Check,
    json_answer,
    self_signed,
    server_tls,
    write_token,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from pathlib import Path

    from antrea.outside.serving import Handler


class Dumper(Protocol):
    """What outside.ofctl_run.Ofctl does for us."""

    def lines(self, command: str, *arguments: str) -> AsyncIterator[str]:
        """Lines of a dump without its header. Raises Unavailable."""


class AgentView(msgspec.Struct):
    """What the API shows of the agent. `tables` maps a table's name to its number; checks say "" or why they fail.

    `conditions` are those of /agentinfo beside AgentHealthy, which is every check together.
    """

    in_effect: Callable[[], InEffect[AgentConfig, EnabledGates]]
    facts: Facts
    ofctl: Dumper
    tables: dict[str, int]
    ready: dict[str, Check] = {}
    live: dict[str, Check] = {}
    conditions: dict[str, Check] = {}

    @property
    def now(self) -> InEffect[AgentConfig, EnabledGates]:
        """The configuration in effect."""
        return self.in_effect()

    @property
    def config(self) -> AgentConfig:
        """What the agent runs with."""
        return self.now.config


class NotFound(Exception):
    """There is nothing of that name."""


def podinterfaces(view: AgentView, query: Mapping[str, str]) -> list[PodInterfaceAnswer]:
    """Interfaces of local Pods, by `name` and `namespace`. Raises NotFound for a name that is not there."""
    name, namespace = query.get("name", ""), query.get("namespace", "")
    found = [
        PodInterfaceAnswer(
            name=row.pod_name,
            pod_namespace=row.pod_namespace,
            interface_name=row.name,
            ips=row.ips,
            mac=row.mac,
            port_uuid=row.port_uuid,
            of_port=row.ofport,
            container_id=row.container_id,
        )
        for row in view.facts.all(PodInterface)
        if name in ("", row.pod_name) and namespace in ("", row.pod_namespace)
    ]
    if name and not found:
        raise NotFound(f"Pod {namespace or '*'}/{name} has no interface on this Node")
    return found


async def ovsflows(view: AgentView, query: Mapping[str, str]) -> list[FlowAnswer]:
    """Flows, groups or table names, as `query` asks. Raises Invalid, NotFound, Unavailable."""
    if "table-names-only" in query:
        return [FlowAnswer(name) for name in sorted(view.tables)]
    if (query.get("pod") or query.get("service")) and not query.get("namespace"):
        raise Invalid("namespace", "namespace must be provided")
    if query.get("pod"):
        return await _pod_flows(view, query["pod"], query["namespace"])
    for feature, key in (("AntreaProxy", "service"), ("NetworkPolicy", "networkpolicy")):
        if query.get(key):
            raise Invalid(key, f"{feature} is not built yet")
    if query.get("table"):
        return [
            flow for table in query["table"].split(",") for flow in await _table_flows(view, table.strip())
        ]
    if query.get("groups"):
        return await _groups(view, query["groups"])
    if query.get("namespace"):
        raise Invalid("namespace", "unsupported parameter combination")
    return await _dump(view)


async def _dump(view: AgentView, *arguments: str) -> list[FlowAnswer]:
    names = {number: name for name, number in view.tables.items()}
    return [
        FlowAnswer(named(line, names)) async for line in view.ofctl.lines("dump-flows", *arguments, "--names")
    ]


def named(line: str, names: Mapping[int, str]) -> str:
    """A dumped flow with names of tables in place of numbers, as upstream's antctl prints them.

    table=5 ... resubmit(,7) ... ct(table=9) ... goto_table:8
    """

    def name(match: re.Match[str]) -> str:
        number = int(match["number"])
        return match["before"] + names.get(number, match["number"])

    return re.sub(r"(?P<before>\btable=|\bgoto_table:|\bresubmit\([^,)]*,)(?P<number>\d+)", name, line)


async def _table_flows(view: AgentView, table: str) -> list[FlowAnswer]:
    number = int(table) if table.isdecimal() else view.tables.get(table, -1)
    if number not in view.tables.values():
        raise Invalid("table", "invalid table name or number")
    return await _dump(view, f"table={number}")


async def _groups(view: AgentView, groups: str) -> list[FlowAnswer]:
    ids = [part.strip() for part in groups.split(",")]
    if groups.lower() != "all" and not all(part.isdecimal() and int(part) < 2**32 for part in ids):
        raise Invalid("groups", "invalid group ID")
    wanted = None if groups.lower() == "all" else {f"group_id={int(part)}" for part in ids}
    return [
        FlowAnswer(line)
        async for line in view.ofctl.lines("dump-groups")
        if wanted is None or line.split(",", 1)[0] in wanted
    ]


async def _pod_flows(view: AgentView, name: str, namespace: str) -> list[FlowAnswer]:
    rows = view.facts.by(PodInterface, "pod", f"{namespace}/{name}")
    if not rows:
        raise NotFound(f"Pod {namespace}/{name} has no interface on this Node")
    marks = {text for row in rows for text in (f'"{row.name}"', row.name, str(row.ofport), row.mac, *row.ips)}
    return [flow for flow in await _dump(view) if _matches(flow.flow, marks)]


def _matches(flow: str, marks: set[str]) -> bool:
    """Whether a flow matches on a port or address of `marks`."""
    fields = ("in_port=", "dl_src=", "dl_dst=", "nw_src=", "nw_dst=", "ipv6_src=", "ipv6_dst=", "arp_", "nd_")
    match = flow.split(" actions=", 1)[0]
    return any(
        part.startswith(fields) and part.partition("=")[2] in marks for part in re.split(r"[, ]+", match)
    )


async def agentinfo(view: AgentView) -> AgentInfoAnswer:
    """The agent in one row. Raises NotFound before the Node is known."""
    node = view.facts.get(ThisNode)
    if node is None:
        raise NotFound("the agent does not know its Node yet")
    counts: Counter[str] = Counter(dict.fromkeys(view.tables, 0))
    for answer in await _dump(view):
        table = re.search(r"\btable=([^,]+)", answer.flow)
        counts[table[1] if table else next(iter(view.tables), "")] += 1
    failures = [why for checks in (view.live, view.ready) for test in checks.values() if (why := test())]
    return AgentInfoAnswer(
        version=f"v{importlib.metadata.version('antrea')}",
        pod_ref=ObjectReference("Pod", os.environ.get("POD_NAME", ""), os.environ.get("POD_NAMESPACE", "")),
        node_ref=ObjectReference("Node", node.name),
        node_subnets=node.pod_cidrs,
        ovs_info=OvsInfo(view.config.ovs_bridge, dict(counts)),
        local_pod_num=len(view.facts.all(PodInterface)),
        agent_conditions=(
            _condition("AgentHealthy", "; ".join(failures)),
            *(_condition(name, test()) for name, test in view.conditions.items()),
            *_rejected(view.now.rejected),
        ),
        api_port=view.config.api_port,
    )


def _rejected(why: str) -> tuple[AgentCondition, ...]:
    """The one condition that is only there when something is wrong."""
    return (AgentCondition("ConfigRejected", "True", why),) if why else ()


def _condition(name: str, failure: str) -> AgentCondition:
    return AgentCondition(name, "False" if failure else "True", failure)


def _route(make: Callable[[Mapping[str, str]], Any]) -> Handler:
    """A handler that answers with what `make` makes of the query, now or when awaited."""

    async def handler(request: web.Request) -> web.StreamResponse:
        try:
            made = make(request.query)
            return json_answer(await made if inspect.isawaitable(made) else made)
        except NotFound as why:
            return web.Response(status=404, text=str(why))

    return handler


def api_server(view: AgentView, *, token_file: Path = TOKEN_FILE) -> ApiServer:
    """The server; `await server.run()` serves until cancelled. Raises Invalid (tlsCipherSuites), Unavailable."""
    tls = server_tls(
        self_signed(("antrea-agent-api", "localhost"), ("127.0.0.1", "::1")),
        min_version=view.config.tls_min_version,
        cipher_suites=view.config.tls_cipher_suites,
    )
    own = version_info(importlib.metadata.version("antrea"))
    return ApiServer(
        view.config.api_port,
        tls,
        write_token(token_file),
        routes={
            "/version": _route(lambda _: own),
            "/featuregates": _route(lambda _: statuses(view.now.gates)),
            "/config": _route(lambda _: values(view.now)),
            "/podinterfaces": _route(lambda query: podinterfaces(view, query)),
            "/ovsflows": _route(lambda query: ovsflows(view, query)),
            "/agentinfo": _route(lambda _: agentinfo(view)),
        },
        checks={"healthz": view.live, "livez": view.live, "readyz": view.live | view.ready},
        metrics=view.config.enable_prometheus_metrics,
    )
