"""The agent's own API, for antctl, Prometheus and kubelet's probes: https at apiPort.

Handlers are functions of an `AgentView` and the query; source: upstream pkg/agent/apiserver/handlers. Health needs
no credentials; everything else needs the token of this Pod, or a user whom kube-apiserver authenticates and authorizes.
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
from antrea.agent.api.agent_info import agent_info
from antrea.agent.api.metrics import agent_metrics
from antrea.agent.api.support_bundle import contents
from antrea.agent.api.trace_packet import PacketTracer, named
from antrea.apis.agent_api import FlowAnswer, PodInterfaceAnswer, version_info
from antrea.config.effect import values
from antrea.config.idle import without_effect
from antrea.decoding import is_number
from antrea.errors import Invalid
from antrea.facts.ovs import PodInterface
from antrea.features.framework.agent_part import NotFound
from antrea.features.framework.gate import statuses
from antrea.features.framework.plug import merged
from antrea.features.registry.api_resources import SUPPORT_BUNDLES
from antrea.outside.apiserver.authentication import Authentication
from antrea.outside.apiserver.authorization import Authorization
from antrea.outside.apiserver.objects import Objects
from antrea.outside.apiserver.server import Server
from antrea.outside.apiserver.trust import follow_trust
from antrea.outside.http.handlers import HEALTH, health, json_answer, loglevel, metrics_of, warn
from antrea.outside.http.loopback_token import TOKEN_FILE, write_token
from antrea.outside.listener.listening_socket import listen
from antrea.outside.log import klog
from antrea.outside.support_bundle.server import SupportBundles
from antrea.outside.tls.server_context import load_pair, server_tls
from antrea.outside.vswitch.appctl import Tracer

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Mapping

    from antrea.agent.api.view import AgentView
    from antrea.config.agent import AgentConfig
    from antrea.config.effect import InEffect
    from antrea.features.framework.agent_part import FlowSelection
    from antrea.features.framework.gate import EnabledGates
    from antrea.outside.http.handlers import Handler
    from antrea.outside.kube.client import Kube
    from antrea.outside.tls.server_context import Certificate

log = klog.logger(__name__)


def podinterfaces(view: AgentView, query: Mapping[str, str]) -> list[PodInterfaceAnswer]:
    """List the interfaces of local Pods, filtered by `name` and `namespace`. Raises NotFound if no Pod has that name."""
    name, namespace = query.get("name", ""), query.get("namespace", "")
    interfaces = [
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
    if name and not interfaces:
        raise NotFound(f"Pod {namespace or '*'}/{name} has no interface on this Node")
    return interfaces


async def ovsflows(view: AgentView, query: Mapping[str, str]) -> list[FlowAnswer]:
    """List flows, groups or table names, selected by `query`. Raises Invalid, NotFound, Unavailable."""
    if "table-names-only" in query:
        return [FlowAnswer(name) for name in sorted(view.tables)]
    selections = merged("parameter of /ovsflows", (part.flow_selections() for part in view.parts))
    selected = next((key for key in selections if query.get(key)), "")
    if (query.get("pod") or selected) and not query.get("namespace"):
        raise Invalid("namespace", "namespace must be provided")
    if query.get("pod"):
        return await _pod_flows(view, query["pod"], query["namespace"])
    if selected:
        return await _selected_flows(view, selections[selected](query["namespace"], query[selected]))
    if query.get("networkpolicy"):
        raise Invalid("networkpolicy", "NetworkPolicy is not built yet")
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
    number = int(table) if is_number(table, 255) else view.tables.get(table, -1)
    if number not in view.tables.values():
        raise Invalid("table", "invalid table name or number")
    return await _dump(view, f"table={number}")


async def _groups(view: AgentView, groups: str) -> list[FlowAnswer]:
    ids = [part.strip() for part in groups.split(",")]
    if groups.lower() != "all" and not all(is_number(part, 2**32 - 1) for part in ids):
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


async def _selected_flows(view: AgentView, selection: FlowSelection) -> list[FlowAnswer]:
    """List the selected flows, then the selected groups."""
    flows = [flow for flow in await _dump(view) if selection.matches(flow.flow)]
    return [*flows, *await _groups(view, ",".join(map(str, sorted(selection.groups))))]


def _matches(flow: str, marks: set[str]) -> bool:
    """Whether a flow matches on a port or address of `marks`."""
    fields = ("in_port=", "dl_src=", "dl_dst=", "nw_src=", "nw_dst=", "ipv6_src=", "ipv6_dst=", "arp_", "nd_")
    match = flow.split(" actions=", 1)[0]
    return any(
        part.startswith(fields) and part.partition("=")[2] in marks for part in re.split(r"[, ]+", match)
    )


def _route(make: Callable[[Mapping[str, str]], Any]) -> Handler:
    """Make a handler that answers with the result of `make`, awaited if necessary."""

    async def handler(request: web.Request) -> web.StreamResponse:
        try:
            made = make(request.query)
            return json_answer(await made if inspect.isawaitable(made) else made)
        except NotFound as error:
            return web.Response(status=404, text=str(error))

    return handler


def _key_warnings(now: InEffect[AgentConfig, EnabledGates]) -> list[str]:
    """List warnings about unknown keys and about keys without effect."""
    return [*(key.sentence for key in now.unknown), *without_effect(now)]


def _feature_gates(view: AgentView) -> Handler:
    """Answer with the gates in effect, and a warning if the newest configuration was rejected."""

    async def handler(_: web.Request) -> web.Response:
        now = view.now
        refused = f"{now.config.file}: rejected, the last good configuration stays in effect: {now.rejected}"
        return warn(json_answer(statuses(now.gates)), [refused] if now.rejected else [])

    return handler


def _metrics(view: AgentView) -> Handler:
    async def handler(_: web.Request) -> web.Response:
        return metrics_of(await agent_metrics(view))

    return handler


class AgentApi:
    """Server of the agent's API; `kube` authenticates and authorizes users; without it only the agent's own token is accepted."""

    def __init__(
        self,
        view: AgentView,
        pair: Certificate,
        kube: Kube | None,
        *,
        token_file: Path = TOKEN_FILE,
        listens: Callable[[int], socket.socket] = listen,
    ) -> None:
        """`listens` opens a listening socket for a port. Raises Invalid (tlsCipherSuites), Unavailable (token file)."""
        config = view.config
        self._kube = kube
        self._port, self._listen = config.api_port, listens
        self._tls = server_tls(
            pair, min_version=config.tls_min_version, cipher_suites=config.tls_cipher_suites
        )
        self._authentication = Authentication(write_token(token_file), kube)
        self._bundles = SupportBundles("agent", lambda: contents(view), token_file=token_file)
        self.serves = asyncio.Event()
        """Set once the server listens, at `port`."""
        self.port = 0
        self._server = Server(
            self._authentication,
            Authorization((f"/{name}" for name in HEALTH), kube),
            Objects((SUPPORT_BUNDLES,), self._bundles, self._bundles.streams),
            handlers=_handlers(view, kube),
            openapi={},
        )

    def present(self, pair: Certificate) -> None:
        """Use this certificate and key for new connections. Raises Invalid."""
        load_pair(self._tls, pair)

    async def run(self) -> None:
        """Serve until cancelled. Raises Unavailable if the port is taken."""
        # closed here, too: a server that is cancelled before it has begun would keep the port from the next one
        async with contextlib.AsyncExitStack() as last:
            listening = last.enter_context(self._listen(self._port))
            self.port = listening.getsockname()[1]
            self.serves.set()
            log.info("Serving API", port=self.port)
            last.push_async_callback(self._bundles.close)
            tasks = await last.enter_async_context(asyncio.TaskGroup())
            tasks.create_task(self._server.run(listening, self._tls), name="API server")
            if self._kube:
                trust = follow_trust(self._kube, self._authentication, self._tls, "")
                tasks.create_task(trust, name="client CA watch")


def _handlers(view: AgentView, kube: Kube | None) -> dict[tuple[str, str], Handler]:
    """Make the handlers of everything beside resources, by method and path."""
    version = version_info(VERSION)
    tracing = PacketTracer(view, kube, Tracer(Path(view.config.ovs_run_dir), view.config.ovs_bridge))
    checks = {"healthz": view.live, "livez": view.live, "readyz": view.live | view.ready}
    handlers: dict[str, Handler] = {
        **{
            path: handler
            for name in HEALTH
            for path, handler in health(name, checks[name], view.tolerant).items()
        },
        "/version": _route(lambda _: version),
        "/featuregates": _feature_gates(view),
        "/config": _route(lambda _: values(view.now)),
        "/config/unknown": _route(lambda _: _key_warnings(view.now)),
        "/podinterfaces": _route(lambda query: podinterfaces(view, query)),
        "/ovsflows": _route(lambda query: ovsflows(view, query)),
        "/ovstracing": _route(tracing.answer),
        "/agentinfo": _route(lambda _: agent_info(view)),
        "/loglevel": loglevel,
    }
    routes = merged("path", (part.routes() for part in view.parts))
    handlers = merged("path", (handlers, {path: _route(make) for path, make in routes.items()}))
    if view.config.enable_prometheus_metrics:
        handlers["/metrics"] = _metrics(view)
    return {("PUT", "/loglevel"): loglevel, **{("GET", path): handler for path, handler in handlers.items()}}
