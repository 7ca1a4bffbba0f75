"""Flow aggregator for one configuration, and for those that differ in destinations alone: it takes agents' records, joins both Nodes', and passes them on."""

from __future__ import annotations

import asyncio
import contextlib
import time
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from antrea import VERSION
from antrea.apis.agent_api import version_info
from antrea.config.flow_aggregator import (
    ClickHouse,
    FlowCollector,
    FlowLogger,
    FlowStore,
    FlowStreamService,
    S3Uploader,
)
from antrea.config.shape import seconds
from antrea.errors import Invalid
from antrea.flow_aggregator.aggregation import Aggregation, needs_both
from antrea.flow_aggregator.answers import (
    RecordMetrics,
    conditions,
    destination_states,
    flow_records,
    metrics_text,
    record_metrics,
)
from antrea.flow_aggregator.clickhouse_output import server_for_queries
from antrea.flow_aggregator.destinations import Destinations
from antrea.flow_aggregator.intake import Intake
from antrea.flow_aggregator.live import LiveRecords, is_denied
from antrea.flow_aggregator.store_keeper import StoreKeeper, keeper_metrics
from antrea.flow_aggregator.stream_service import StreamService
from antrea.flow_aggregator.user_questions import UserQuestions
from antrea.outside.apiserver.authentication import Authentication
from antrea.outside.apiserver.authorization import Authorization
from antrea.outside.apiserver.objects import Objects
from antrea.outside.apiserver.server import Server
from antrea.outside.clickhouse.embedded import EmbeddedClickHouse
from antrea.outside.http.handlers import HEALTH, health, json_answer, loglevel, metrics_of
from antrea.outside.http.loopback_token import write_token
from antrea.outside.http.static_files import static_files
from antrea.outside.kube.client import Kube
from antrea.outside.listener.listening_socket import listen
from antrea.outside.log import klog
from antrea.outside.tls.server_context import self_signed, server_tls

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Mapping

    from aiohttp import web

    from antrea.apis.flow import FlowRecord
    from antrea.config.flow_aggregator import FlowAggregatorConfig
    from antrea.flow_aggregator.answers import Condition
    from antrea.flow_aggregator.flow_stream import FlowStreams
    from antrea.outside.apiserver.objects import Question
    from antrea.outside.clickhouse.store import Store
    from antrea.outside.http.handlers import Handler

log = klog.logger(__name__)

TICK: Final = 0.5
"""Seconds between looks at what is due."""
UI: Final = "/ui"
"""Where the web page is."""
MAX_RECORDS: Final = 1000
"""Records that are passed on before others have their turn; a quarter of a destination's buffer, if that is less."""


class Aggregator:
    """The whole program."""

    def __init__(
        self,
        config: FlowAggregatorConfig,
        token_file: Path,
        kubeconfig: str = "",
        more_metrics: Callable[[], str] = str,
        rejected: Callable[[], str] = str,
    ) -> None:
        """`kubeconfig` empty: as this Pod; `more_metrics` are those of its caller, `rejected` why a newer configuration is not in effect.

        Raises Unavailable: the token file cannot be written.
        """
        self._config, self._more_metrics, self._rejected = config, more_metrics, rejected
        self.flows = Aggregation(
            seconds(config.active_flow_record_timeout), seconds(config.inactive_flow_record_timeout)
        )
        self._embedded = EmbeddedClickHouse(Path(config.store.directory)) if config.store.enable else None
        self._to = Destinations(config, self._embedded)
        self._keeper = StoreKeeper(self._embedded, config.store) if self._embedded else None
        self.store: Store | None = self._embedded or server_for_queries(config)
        """Store that answers queries about records; None: records are not kept."""
        self.live = LiveRecords()
        self._streaming = StreamService(config.flow_stream_service, config.record_buffer_size)
        take = self._offer if config.mode == "Proxy" else self._add
        self.intake = Intake(config, kubeconfig, take, self._streaming.present)
        self._token, self._kubeconfig = write_token(token_file), kubeconfig

    @property
    def streams(self) -> FlowStreams | None:
        """Server of streams of records."""
        return self._streaming.streams

    async def run(self) -> None:
        """Run until cancelled. Raises Unavailable if a port is taken."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._to.run(), name="destinations")
            if self._keeper:
                tasks.create_task(self._keeper.run(), name="store")
            tasks.create_task(self._export(), name="joined records")
            tasks.create_task(self._serve(), name="API")
            tasks.create_task(self.intake.run(), name="records of agents")

    async def change(self, config: FlowAggregatorConfig) -> bool:
        """Send records where this configuration has them, while `run` runs; false if more than that differs, and nothing was done."""
        before, queried = self._config, self.store
        if _rest(before) != _rest(config):
            return False
        self._config = config
        self._to.change(config)
        self._streaming.change(config.flow_stream_service)
        if self._keeper:
            self._keeper.change(config.store)
        if before.click_house != config.click_house and not self._embedded:
            self.store = server_for_queries(config)
            if queried:
                await queried.close()
        return True

    def _add(self, record: FlowRecord) -> None:
        self.flows.add(record, time.monotonic())
        if is_denied(record) and needs_both(record):
            # what is denied is not kept waiting for the other Node
            shown = msgspec.structs.replace(record, cluster_id=self._config.cluster_id)
            self.intake.add_asked(shown)
            self.live.add(shown, is_half=not (shown.source_pod_name and shown.destination_pod_name))

    def _offer(self, record: FlowRecord) -> None:
        record.cluster_id = self._config.cluster_id
        self.intake.add_asked(record)
        self.live.add(record, is_half=self._config.mode == "Proxy")
        self._to.offer(record)
        self._streaming.offer(record)

    async def _export(self) -> None:
        most = min(MAX_RECORDS, max(self._config.record_buffer_size // 4, 1))
        while True:
            while records := self.flows.due(time.monotonic(), most):
                for record in records:
                    self._offer(record)
                await asyncio.sleep(0)
                await self._to.room()  # until then records are joined to those before them
            await asyncio.sleep(TICK)

    async def _serve(self) -> None:
        with contextlib.closing(listen(self._config.api_server.api_port)) as listening:
            if not self._config.api_server.authorize_users:
                await self._answer(listening, None)
                return
            async with Kube.connect(self._kubeconfig) as kube:
                await self._answer(listening, kube)

    async def _answer(self, listening: socket.socket, kube: Kube | None) -> None:
        """Answer requests until cancelled; `kube` authorizes users, and None accepts only the token of this Pod."""
        pair = await asyncio.to_thread(self_signed, ("localhost",), ("127.0.0.1", "::1"))
        page = static_files(files("antrea.flow_aggregator") / "ui", UI)
        # the page is everybody's, since it is the same for all: what it asks for needs a token
        authorization = Authorization((*(f"/{name}" for name in HEALTH), *page), kube)
        handlers = {("GET", path): handler for path, handler in page.items()}
        questions = UserQuestions(lambda: self.store, self.live, authorization, kube, self._token)
        authentication = Authentication(self._token, kube)
        server = Server(
            authentication, authorization, Objects((), _NoResources()),
            handlers={**self._handlers(), **questions.handlers(), **handlers}, openapi={},
        )  # fmt: skip
        async with asyncio.TaskGroup() as tasks:
            tls = server_tls(pair, min_version="VersionTLS12", cipher_suites="")
            tasks.create_task(server.run(listening, tls), name="API over HTTPS")
            judges = (authentication, authorization)
            tasks.create_task(self._streaming.run(judges), name="streams of records")

    def _handlers(self) -> dict[tuple[str, str], Handler]:
        handlers: dict[str, Handler] = {
            # a destination that is away is no reason to send agents away, too
            **{path: handler for name in HEALTH for path, handler in health(name, {}).items()},
            **health("readyz", {"collector": lambda: self.intake.trouble}),
            "/metrics": self._metrics_page,
            "/version": _answer(lambda _: version_info(VERSION)),
            "/flowrecords": _answer(lambda query: flow_records(self.flows.records(), query)),
            "/recordmetrics": _answer(lambda _: self._metrics()),
            "/destinations": _answer(
                lambda _: destination_states(self._to.all, self._keeper.removed if self._keeper else 0)
            ),
            "/conditions": _answer(lambda _: self._conditions()),
            "/loglevel": loglevel,
        }
        return {
            ("PUT", "/loglevel"): loglevel,
            **{("GET", path): handler for path, handler in handlers.items()},
        }

    async def _metrics_page(self, _: web.Request) -> web.Response:
        text = metrics_text(self._metrics(), self.intake, self._to.all)
        kept = keeper_metrics(self._keeper) if self._keeper else ""
        return metrics_of(f"{text}{kept}{self._more_metrics()}")

    def _conditions(self) -> list[Condition]:
        return conditions(
            ConfigRejected=self._rejected(),
            RecordsNotTaken=self.intake.trouble,
            CertificatesFailing=self.intake.certificates_trouble,
        )

    def _metrics(self) -> RecordMetrics:
        flows, taken = self.flows, self.intake
        return record_metrics(taken.received, len(flows), taken.sessions, flows.dropped, self._to.all)


class _NoResources:
    """Stands for what computes answers to questions: this program has none."""

    async def answer(self, question: Question) -> msgspec.Struct:
        raise Invalid(question.resource, "this program has no resources")


def _rest(config: FlowAggregatorConfig) -> FlowAggregatorConfig:
    """Return the settings that cannot change at run time: all but the destinations."""
    kept = msgspec.structs.replace(FlowStore(), enable=config.store.enable, directory=config.store.directory)
    # what has to be asked of kube-apiserver for it
    uids = config.flow_collector.enable and config.flow_collector.include_k8s_uids
    replaced = msgspec.structs.replace(
        config, store=kept, flow_collector=FlowCollector(include_k8s_uids=uids), flow_logger=FlowLogger(), click_house=ClickHouse(),
        s3_uploader=S3Uploader(), flow_stream_service=FlowStreamService(),
    )  # fmt: skip
    if config.grpc_collector.enable or config.aggregator_transport_protocol == "tls":
        return replaced
    # there are no certificates but those of streams
    return msgspec.structs.replace(replaced, flow_stream_service=config.flow_stream_service)


def _answer(make: Callable[[Mapping[str, str]], Any]) -> Handler:
    async def handler(request: web.Request) -> web.Response:
        return json_answer(make(request.query))

    return handler
