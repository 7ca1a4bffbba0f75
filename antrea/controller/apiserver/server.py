"""The process that serves: TLS, authentication, authorization, the aggregated API, webhooks, health, metrics.

It computes nothing, so that no computation delays an answer. Started by `antrea.controller.main` with one end of a
socket pair; it ends when the other end is closed.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from antrea import VERSION
from antrea.apis.agent_api import version_info
from antrea.controller.apiserver import connected_agents, ipc
from antrea.controller.apiserver.endpoint_query import endpoint
from antrea.controller.apiserver.feature_gates import feature_gates
from antrea.controller.apiserver.leader_proxy import LeaderProxy, LeaderState
from antrea.controller.apiserver.metrics import metrics
from antrea.controller.apiserver.single_flight import SingleFlight
from antrea.controller.apiserver.store_sync import ComputeClient, apply, follow_agents
from antrea.controller.apiserver.support_bundle import BundleIntake, contents
from antrea.controller.apiserver.traffic_statistics import StatsIntake, TrafficCounts
from antrea.controller.webhook.runtime import Webhooks
from antrea.errors import AntreaError, Invalid, Unavailable
from antrea.features.framework.admission import wanted_gates
from antrea.features.registry.api_resources import RESOURCES
from antrea.features.registry.openapi_names import definition_name
from antrea.outside.apiserver import openapi
from antrea.outside.apiserver.authentication import Authentication
from antrea.outside.apiserver.authorization import Authorization
from antrea.outside.apiserver.objects import Objects
from antrea.outside.apiserver.server import Server
from antrea.outside.apiserver.trust import follow_trust
from antrea.outside.http.handlers import HEALTH, health, json_answer, loglevel
from antrea.outside.http.liveness_probe import LivenessProbe
from antrea.outside.http.loopback_token import write_token
from antrea.outside.kube.client import Kube
from antrea.outside.listener.listening_socket import listen
from antrea.outside.log import klog
from antrea.outside.support_bundle.server import FOLDER, SupportBundles
from antrea.outside.tls.server_context import self_signed, server_tls
from antrea.outside.tls.serving_certificate import ServingCertificate

if TYPE_CHECKING:
    from collections.abc import Iterable
    from ssl import SSLContext

    from aiohttp import web

    from antrea.outside.http.handlers import Check, Handler

log = klog.logger(__name__)
FAREWELL_SECONDS = 2.0
"""Seconds between the end of this replica and that of its API, in which kube-apiserver switches to another replica."""
NAMES, ADDRESSES = ("antrea", "antrea-controller", "localhost"), ("127.0.0.1", "::1")


class ApiServer:
    """Everything this process serves, put together."""

    def __init__(self, channel: ipc.Channel, start: ipc.Start) -> None:
        """Raises Invalid (TLS keys), Unavailable (port, token file)."""
        self._channel = channel
        self._start = start
        self._kube = _kube(start)
        self._computing = ComputeClient(channel)
        self._liveness = LivenessProbe("the computing process", self._computing.probe)
        token_file = Path(start.token_file)
        self._bundles = SupportBundles(
            "controller",
            lambda: contents(self._port, token_file),
            token_file=token_file,
            folder=token_file.parent / FOLDER,
        )
        computes = StatsIntake(BundleIntake(self._bundles, self._computing))
        self._objects = Objects(RESOURCES, computes, self._bundles.streams)
        gates = wanted_gates(start.feature_gates)
        self._counts = computes.counts = TrafficCounts(self._objects.stores, gates)
        self._leading = LeaderState(elected=start.elected)
        self._connected_agents = connected_agents.ConnectedAgents()
        self._forward = self._forwarding(start)
        self._webhooks = _webhooks(self._kube, start)
        posts = self._webhooks.routes if self._webhooks else {}
        replica = f"system:serviceaccount:{start.namespace}:{start.service_account}" if start.elected else ""
        self._authentication = Authentication(write_token(token_file), self._kube, replica=replica)
        self._server = Server(
            self._authentication,
            self._authorization(posts, replica),
            self._forward,
            handlers={
                **self._gets(),
                **self._puts(),
                **{("POST", path): handler for path, handler in posts.items()},
            },
            openapi=openapi.documents(RESOURCES, definition_name, f"v{VERSION}"),
        )
        # until the certificate that others verify is there, one that serves this Pod and its probes
        self._tls = server_tls(
            self_signed(NAMES, ADDRESSES),
            min_version=start.tls_min_version,
            cipher_suites=start.tls_cipher_suites,
        )
        self._certificate = _certificate(self._tls, start)
        self._listening = listen(start.port) if start.listening < 0 else socket.socket(fileno=start.listening)

    def _authorization(self, posts: Iterable[str], replica: str) -> Authorization:
        clients = frozenset(self._start.webhook_clients)
        return Authorization(
            [*(f"/{name}" for name in HEALTH), *(() if clients else posts)],
            self._kube,
            granted={
                **({connected_agents.PATH: frozenset([replica])} if replica else {}),
                **dict.fromkeys(posts, clients),
            },
        )

    def _gets(self) -> dict[tuple[str, str], Handler]:
        levels = _levels(self._channel)
        lives: dict[str, Check] = {"computing": lambda: self._liveness.trouble}
        ready = dict(lives)
        if self._kube:
            ready["certificate"] = lambda: self._certificate.lacks
        if self._start.elected:
            # the next of several Pods is replaced only when agents can turn to this one
            ready["computed"] = self._objects.lacks
        checks = {"healthz": lives, "livez": lives, "readyz": ready}
        handlers: dict[tuple[str, str], Handler] = {
            ("GET", path): handler for name in HEALTH for path, handler in health(name, checks[name]).items()
        }
        handlers["GET", "/version"] = _always(version_info(VERSION))
        handlers["GET", "/featuregates"] = feature_gates(self._start.gates, self._kube, self._start.namespace)
        handlers["GET", "/endpoint"] = endpoint(self._kube, self._objects.stores)
        handlers["GET", "/loglevel"] = handlers["PUT", "/loglevel"] = levels
        if self._start.metrics:
            handlers["GET", "/metrics"] = metrics(self._computing)
        return handlers

    def _forwarding(self, start: ipc.Start) -> LeaderProxy:
        return LeaderProxy(
            self._objects,
            self._leading,
            self._kube,
            server_name=f"antrea.{start.namespace}.svc",
            ca_file=Path(start.ca_file),
            fresh=SingleFlight(self._computing.catch_up).run,
        )

    def _puts(self) -> dict[tuple[str, str], Handler]:
        """Return handlers of requests that only other replicas send."""
        return (
            {("PUT", connected_agents.PATH): self._connected_agents.handler()} if self._start.elected else {}
        )

    @property
    def _port(self) -> int:
        return int(self._listening.getsockname()[1])

    async def _receive(self) -> None:
        try:
            await apply(self._channel, self._objects, self._computing, self._leading)
        except Unavailable:
            await self._server.farewell(FAREWELL_SECONDS if self._start.elected else 0)
            raise

    async def run(self) -> None:
        """Run until the channel ends. Raises Unavailable then, Invalid (clientCAFile)."""
        kube, start = self._kube, self._start
        self._certificate.load()
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._server.run(self._listening, self._tls), name="server")
                tasks.create_task(self._receive(), name="publications")
                tasks.create_task(self._liveness.run(), name="liveness probe")
                tasks.create_task(
                    follow_agents(self._channel, self._objects, self._connected_agents, self._forward),
                    name="agents",
                )
                tasks.create_task(self._counts.follow(self._leading), name="statistics")
                tasks.create_task(self._certificate.run(), name="certificate")
                if kube:
                    trust = follow_trust(kube, self._authentication, self._tls, start.client_ca_file)
                    tasks.create_task(trust, name="trust")
                if self._webhooks:
                    tasks.create_task(self._webhooks.run(), name="webhooks")
                self._channel.send(ipc.Started(self._port))
        finally:
            await self._bundles.close()
            await self._forward.close()


def _certificate(tls: SSLContext, start: ipc.Start) -> ServingCertificate:
    return ServingCertificate(
        tls, Path(start.certificate_file), Path(start.key_file) if start.key_file else None
    )


def _webhooks(kube: Kube | None, start: ipc.Start) -> Webhooks | None:
    if kube is None:
        return None
    return Webhooks(
        kube, start.feature_gates, namespace=start.namespace, service_account=start.service_account
    )


def _kube(start: ipc.Start) -> Kube | None:
    try:
        return Kube.connect(start.kubeconfig, start.kube_override)
    except AntreaError as error:
        log.warning("No access to kube-apiserver; only this Pod's own token is accepted", err=str(error))
        return None


def _always(body: object) -> Handler:
    async def handler(_: web.Request) -> web.StreamResponse:
        return json_answer(body)

    return handler


def _levels(channel: ipc.Channel) -> Handler:
    async def handler(request: web.Request) -> web.StreamResponse:
        response = await loglevel(request)
        channel.send(ipc.LogLevel(klog.verbosity()))
        return response

    return handler


async def connect(number: int) -> ipc.Channel:
    """The channel over an inherited socket."""
    reader, writer = await asyncio.open_unix_connection(sock=socket.socket(fileno=number))
    return ipc.Channel(reader, writer)


async def serve(number: int) -> None:
    """Serve until the other process closes the channel. On a failure send Failed."""
    channel = await connect(number)
    try:
        start = await channel.receive()
        klog.set_verbosity(start.verbosity)
        await ApiServer(channel, start).run()
    except* AntreaError as group:
        wrong = next((exception for exception in group.exceptions if isinstance(exception, Invalid)), None)
        why = "; ".join(str(exception) for exception in group.exceptions)
        channel.send(ipc.Failed(wrong.why, wrong.path) if wrong else ipc.Failed(why))
        with contextlib.suppress(OSError):
            await channel.drained()


def main() -> None:
    """`python -m antrea.controller.apiserver.server FD`"""
    # the signals are for the other process, which then closes the channel
    for ignored in (signal.SIGINT, signal.SIGTERM):
        signal.signal(ignored, signal.SIG_IGN)
    klog.start(klog.Options(), "antrea-controller")
    asyncio.run(serve(int(sys.argv[1])))


if __name__ == "__main__":
    main()
