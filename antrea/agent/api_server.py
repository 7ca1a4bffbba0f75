"""The agent's own API, for antctl, Prometheus and kubelet's probes: https at apiPort.

Handlers are functions of an `AgentView` and the query; source: upstream pkg/agent/apiserver/handlers. Health is
everybody's; all else is for the token file of this Pod, and for whom kube-apiserver knows and allows it.
parity: pkg/agent/apiserver/apiserver.go newConfig (delegated authentication and authorization)
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aiohttp import web

from antrea import VERSION
from antrea.agent.agent_info import agent_info
from antrea.agent.agent_view import NotFound
from antrea.agent.membership import memberlist
from antrea.agent.metrics import agent_metrics
from antrea.agent.policy_view import address_groups, applied_to_groups, fqdn_cache, network_policies
from antrea.agent.support_bundle import contents
from antrea.agent.table_name import named
from antrea.agent.tracing import Tracing
from antrea.apis.agent_api import FlowAnswer, PodInterfaceAnswer, version_info
from antrea.config.effect import values
from antrea.errors import Invalid
from antrea.facts.ovs import PodInterface
from antrea.features.gate import statuses
from antrea.features.registry import SUPPORT_BUNDLES
from antrea.outside import klog
from antrea.outside.aggregated.authentication import Authentication
from antrea.outside.aggregated.authorization import Authorization
from antrea.outside.aggregated.objects import Objects
from antrea.outside.aggregated.server import Server
from antrea.outside.aggregated.trust import follow_trust
from antrea.outside.loopback_token import TOKEN_FILE, write_token
from antrea.outside.ovs_control import Tracer
from antrea.outside.serving import HEALTH, health, json_answer, listen, loglevel, metrics_of
from antrea.outside.support_bundle import SupportBundles
from antrea.outside.tls import self_signed, server_tls

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from antrea.agent.agent_view import AgentView
    from antrea.outside.kube import Kube
    from antrea.outside.serving import Handler
    from antrea.outside.tls import Certificate

log = klog.logger(__name__)


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


def _route(make: Callable[[Mapping[str, str]], Any]) -> Handler:
    """A handler that answers with what `make` makes of the query, now or when awaited."""

    async def handler(request: web.Request) -> web.StreamResponse:
        try:
            made = make(request.query)
            return json_answer(await made if inspect.isawaitable(made) else made)
        except NotFound as why:
            return web.Response(status=404, text=str(why))

    return handler


def _metrics(view: AgentView) -> Handler:
    async def handler(_: web.Request) -> web.Response:
        return metrics_of(await agent_metrics(view))

    return handler


def certificate() -> Certificate:
    """What the server proves itself with. Raises Unavailable."""
    return self_signed(("antrea-agent-api", "localhost"), ("127.0.0.1", "::1"))


class AgentApi:
    """The server, from `run` until that is cancelled; who may ask what is asked of `kube`, None: own token only."""

    def __init__(
        self, view: AgentView, pair: Certificate, kube: Kube | None, *, token_file: Path = TOKEN_FILE
    ) -> None:
        """Raises Invalid (tlsCipherSuites), Unavailable (token file)."""
        config = view.config
        self._kube = kube
        self._port = config.api_port
        self._tls = server_tls(
            pair, min_version=config.tls_min_version, cipher_suites=config.tls_cipher_suites
        )
        self._authentication = Authentication(write_token(token_file), kube)
        self._bundles = SupportBundles("agent", lambda: contents(view), token_file=token_file)
        self.serves = asyncio.Event()
        """Set once it listens, at `port`."""
        self.port = 0
        self._server = Server(
            self._authentication,
            Authorization((f"/{name}" for name in HEALTH), kube),
            Objects((SUPPORT_BUNDLES,), self._bundles, self._bundles.streams),
            handlers=_handlers(view, kube),
            openapi={},
        )

    async def run(self) -> None:
        """Serve until cancelled. Raises Unavailable if the port is taken."""
        # closed here, too: a server that is cancelled before it has begun would keep the port from the next one
        async with contextlib.AsyncExitStack() as last:
            listening = last.enter_context(listen(self._port))
            self.port = listening.getsockname()[1]
            self.serves.set()
            log.info("Serving API", port=self.port)
            last.push_async_callback(self._bundles.close)
            tasks = await last.enter_async_context(asyncio.TaskGroup())
            tasks.create_task(self._server.run(listening, self._tls), name="API server")
            if self._kube:
                trust = follow_trust(self._kube, self._authentication, self._tls, "")
                tasks.create_task(trust, name="trust")


def _handlers(view: AgentView, kube: Kube | None) -> dict[tuple[str, str], Handler]:
    """What is answered beside resources, by method and path."""
    own = version_info(VERSION)
    tracing = Tracing(view, kube, Tracer(Path(view.config.ovs_run_dir), view.config.ovs_bridge))
    checks = {"healthz": view.live, "livez": view.live, "readyz": view.live | view.ready}
    found: dict[str, Handler] = {
        **{f"/{name}": health(checks[name]) for name in HEALTH},
        "/version": _route(lambda _: own),
        "/featuregates": _route(lambda _: statuses(view.now.gates)),
        "/config": _route(lambda _: values(view.now)),
        "/config/unknown": _route(lambda _: [key.sentence for key in view.now.unknown]),
        "/podinterfaces": _route(lambda query: podinterfaces(view, query)),
        "/ovsflows": _route(lambda query: ovsflows(view, query)),
        "/ovstracing": _route(tracing.answer),
        "/networkpolicies": _route(lambda query: network_policies(view, query)),
        "/addressgroups": _route(lambda query: address_groups(view, query)),
        "/appliedtogroups": _route(lambda query: applied_to_groups(view, query)),
        "/fqdncache": _route(lambda query: fqdn_cache(view, query)),
        "/memberlist": _route(lambda _: memberlist(view.facts, view.membership)),
        "/agentinfo": _route(lambda _: agent_info(view)),
        "/loglevel": loglevel,
    }
    if view.config.enable_prometheus_metrics:
        found["/metrics"] = _metrics(view)
    return {("PUT", "/loglevel"): loglevel, **{("GET", path): handler for path, handler in found.items()}}
