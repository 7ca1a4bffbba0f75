"""antrea-flow-aggregator: takes the records of agents, joins those of both Nodes, and passes them on until it is terminated."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from antrea import VERSION
from antrea.apis.agent_api import version_info
from antrea.config.flow_aggregator import FlowAggregatorConfig
from antrea.config.load import parse, read
from antrea.config.shape import seconds
from antrea.errors import AntreaError, Invalid
from antrea.flow_aggregator.acceptance import accept
from antrea.flow_aggregator.aggregation import Aggregation, needs_both
from antrea.flow_aggregator.answers import (
    RecordMetrics,
    destination_states,
    flow_records,
    metrics_text,
    record_metrics,
)
from antrea.flow_aggregator.clickhouse_output import server_for_queries
from antrea.flow_aggregator.destination import destinations
from antrea.flow_aggregator.flow_buffer import FlowBuffer
from antrea.flow_aggregator.flow_stream import FlowStreams
from antrea.flow_aggregator.intake import Intake
from antrea.flow_aggregator.live import LiveRecords, is_denied
from antrea.flow_aggregator.store_keeper import StoreKeeper, keeper_metrics
from antrea.flow_aggregator.user_questions import UserQuestions
from antrea.outside.apiserver.authentication import Authentication
from antrea.outside.apiserver.authorization import Authorization
from antrea.outside.apiserver.objects import Objects
from antrea.outside.apiserver.server import Server
from antrea.outside.clickhouse.embedded import EmbeddedClickHouse
from antrea.outside.http.handlers import HEALTH, health, json_answer, listen, loglevel, metrics_of
from antrea.outside.http.loopback_token import TOKEN_FILE, write_token
from antrea.outside.http.static_files import static_files
from antrea.outside.kube.client import Kube
from antrea.outside.log import klog
from antrea.outside.pflag import GoCommand
from antrea.outside.reload.supervisor import asked_to_end
from antrea.outside.tls.server_context import self_signed, server_tls

if TYPE_CHECKING:
    import socket
    import ssl
    from collections.abc import Callable, Mapping

    import msgspec
    from aiohttp import web

    from antrea.apis.flow import FlowRecord
    from antrea.outside.apiserver.objects import Question
    from antrea.outside.clickhouse.store import Store
    from antrea.outside.http.handlers import Handler

log = klog.logger(__name__)

TICK: Final = 0.5
"""Seconds between looks at what is due."""
UI: Final = "/ui"
"""Where the web page is."""
MOST: Final = 1000
"""Records that are passed on before others have their turn."""


class Aggregator:
    """The whole program."""

    def __init__(self, config: FlowAggregatorConfig, token_file: Path, kubeconfig: str = "") -> None:
        """`kubeconfig` empty: as this Pod. Raises Unavailable: the token file cannot be written."""
        self._config = config
        self.flows = Aggregation(
            seconds(config.active_flow_record_timeout), seconds(config.inactive_flow_record_timeout)
        )
        embedded = EmbeddedClickHouse(Path(config.store.directory)) if config.store.enable else None
        self._to = destinations(config, embedded)
        self._keeper = StoreKeeper(embedded, config.store) if embedded else None
        self.store: Store | None = embedded or server_for_queries(config)
        """What answers queries about records; None: nothing keeps them."""
        self.live = LiveRecords()
        streams = config.flow_stream_service
        self._buffer = FlowBuffer(config.record_buffer_size) if streams.enable else None
        self._streamed: ssl.SSLContext | None = None
        self.streams: FlowStreams | None = None
        """What serves streams; made with the API, which has the rights of users."""
        take = self._offer if config.mode == "Proxy" else self._add
        self.intake = Intake(config, kubeconfig, take, self._present if streams.enable else None)
        self._token, self._kubeconfig = write_token(token_file), kubeconfig

    async def run(self) -> None:
        """Until cancelled. Raises Unavailable: a port is taken."""
        async with asyncio.TaskGroup() as tasks:
            for one in self._to:
                tasks.create_task(one.run(), name=one.name)
            if self._keeper:
                tasks.create_task(self._keeper.run(), name="store")
            tasks.create_task(self._export(), name="joined records")
            tasks.create_task(self._serve(), name="API")
            tasks.create_task(self.intake.run(), name="records of agents")

    def _add(self, record: FlowRecord) -> None:
        self.flows.add(record, time.monotonic())
        if is_denied(record) and needs_both(record):
            self.live.add(record, is_half=True)  # what is denied is not kept waiting for the other Node

    async def _present(self, context: ssl.SSLContext) -> None:
        self._streamed = context
        if self.streams:
            await self.streams.present(context)

    def _offer(self, record: FlowRecord) -> None:
        record.cluster_id = self._config.cluster_id
        self.intake.add_labels(record)
        self.live.add(record, is_half=self._config.mode == "Proxy")
        for one in self._to:
            one.offer(record)
        if self._buffer:
            self._buffer.offer(record)

    async def _export(self) -> None:
        while True:
            while found := self.flows.due(time.monotonic(), MOST):
                for record in found:
                    self._offer(record)
                await asyncio.sleep(0)
            await asyncio.sleep(TICK)

    async def _serve(self) -> None:
        with contextlib.closing(listen(self._config.api_server.api_port)) as listening:
            if not self._config.api_server.authorize_users:
                await self._answer(listening, None)
                return
            async with Kube.connect(self._kubeconfig) as kube:
                await self._answer(listening, kube)

    async def _answer(self, listening: socket.socket, kube: Kube | None) -> None:
        """Until cancelled; `kube` judges users, and None leaves the token of this Pod alone."""
        pair = await asyncio.to_thread(self_signed, ("localhost",), ("127.0.0.1", "::1"))
        page = static_files(files("antrea.flow_aggregator") / "ui", UI)
        # the page is everybody's, since it is the same for all: what it asks for needs a token
        authorization = Authorization((*(f"/{name}" for name in HEALTH), *page), kube)
        own = {("GET", path): handler for path, handler in page.items()}
        questions = UserQuestions(self.store, self.live, authorization, kube, self._token)
        authentication = Authentication(self._token, kube)
        server = Server(
            authentication, authorization, Objects((), _NoResources()),
            handlers={**self._handlers(), **questions.handlers(), **own}, openapi={},
        )  # fmt: skip
        async with asyncio.TaskGroup() as tasks:
            tls = server_tls(pair, min_version="VersionTLS12", cipher_suites="")
            tasks.create_task(server.run(listening, tls), name="API over HTTPS")
            if self._buffer:
                judges = (authentication, authorization)
                tasks.create_task(self._stream(self._buffer, judges), name="streams of records")

    async def _stream(self, buffer: FlowBuffer, judges: tuple[Authentication, Authorization]) -> None:
        config = self._config.flow_stream_service
        self.streams = FlowStreams(buffer, None if config.anonymous else judges)
        if self._streamed:
            await self.streams.present(self._streamed)
        if config.anonymous:
            log.warning("Streaming records to any client that reaches the port", port=config.port)
        await self.streams.serve(
            config.port, lambda port: log.info("Streaming records of connections", port=port)
        )

    def _handlers(self) -> dict[tuple[str, str], Handler]:
        found: dict[str, Handler] = {
            # a destination that is away is no reason to send agents away, too
            **{path: handler for name in HEALTH for path, handler in health(name, {}).items()},
            **health("readyz", {"collector": lambda: self.intake.trouble}),
            "/metrics": self._metrics_page,
            "/version": _answer(lambda _: version_info(VERSION)),
            "/flowrecords": _answer(lambda query: flow_records(self.flows.records(), query)),
            "/recordmetrics": _answer(lambda _: self._metrics()),
            "/destinations": _answer(
                lambda _: destination_states(self._to, self._keeper.removed if self._keeper else 0)
            ),
            "/loglevel": loglevel,
        }
        return {("PUT", "/loglevel"): loglevel, **{("GET", path): handler for path, handler in found.items()}}

    async def _metrics_page(self, _: web.Request) -> web.Response:
        taken = self.intake
        found = metrics_text(self._metrics(), taken.refused, taken.rejected, self._to)
        return metrics_of(found + (keeper_metrics(self._keeper) if self._keeper else ""))

    def _metrics(self) -> RecordMetrics:
        flows, taken = self.flows, self.intake
        return record_metrics(taken.received, len(flows), taken.sessions, flows.dropped, self._to)


class _NoResources:
    """Stands for what computes answers to questions: this program has none."""

    async def answer(self, question: Question) -> msgspec.Struct:
        raise Invalid(question.resource, "this program has no resources")


def _answer(make: Callable[[Mapping[str, str]], Any]) -> Handler:
    async def handler(request: web.Request) -> web.Response:
        return json_answer(make(request.query))

    return handler


async def run(config: FlowAggregatorConfig, token_file: Path, kubeconfig: str = "") -> None:
    """Until SIGTERM or SIGINT. Raises Unavailable."""
    log.info("Starting antrea-flow-aggregator", version=VERSION)
    asked = asked_to_end()
    working = asyncio.create_task(Aggregator(config, token_file, kubeconfig).run(), name="aggregator")
    ending = asyncio.create_task(asked.wait(), name="signals")
    await asyncio.wait((working, ending), return_when=asyncio.FIRST_COMPLETED)
    for task in (working, ending):
        task.cancel()
    found = (await asyncio.gather(working, ending, return_exceptions=True))[0]
    if isinstance(found, Exception):
        raise found
    log.info("Stopping antrea-flow-aggregator")


@click.command(cls=GoCommand, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--config",
    "path",
    type=click.Path(path_type=Path),
    default=Path("/etc/flow-aggregator/flow-aggregator.conf"),
    show_default=True,
    help="configuration file",
)
@click.option(
    "--token-file",
    type=click.Path(path_type=Path),
    default=TOKEN_FILE,
    show_default=True,
    help="where the token of antctl in this Pod is written",
)
@click.option(
    "--kubeconfig",
    default="",
    help="kubeconfig file, outside of a Pod; certificates for tls are kept in the cluster",
)
@klog.flags
def main(path: Path, token_file: Path, kubeconfig: str, *, log: klog.Options) -> None:
    """Join and pass on records of connections."""
    klog.start(log, "antrea-flow-aggregator")
    try:
        loaded = parse(FlowAggregatorConfig, read(path))
        for unknown in loaded.unknown:
            klog.logger(__name__).warning("Unknown key in the configuration", err=unknown.sentence)
        accept(loaded.config)
        asyncio.run(run(loaded.config, token_file, kubeconfig))
    except* AntreaError as no:
        click.echo(f"antrea-flow-aggregator: {no.exceptions[0]}", err=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
