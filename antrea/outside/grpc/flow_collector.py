"""Collector of the flow records that agents stream by gRPC."""

from __future__ import annotations

from typing import TYPE_CHECKING

from antrea.decoding import guarded
from antrea.errors import Invalid
from antrea.flow_protobuf.record import read
from antrea.flow_protobuf.schema import EXPORT, ExportRequest, ExportResponse
from antrea.outside.grpc.server import ServerConnection
from antrea.outside.session.server import SessionServer

if TYPE_CHECKING:
    from collections.abc import Callable

    from antrea.apis.flow import FlowRecord
    from antrea.outside.grpc.server import Call
    from antrea.outside.session.server import Session


class GrpcCollector(SessionServer):
    """Gives each record to `take`."""

    def __init__(self, take: Callable[[FlowRecord], None]) -> None:
        super().__init__("gRPC records")
        self._take = take
        self.received = 0

    async def serve_session(self, session: Session) -> None:
        """The calls of one agent."""
        await ServerConnection(session, {EXPORT: self._export}).run()

    async def _export(self, call: Call) -> None:
        while (message := await call.receive()) is not None:
            for record in self._decoded(message):
                record.set_exporter(call.peer)
                self.received += 1
                self._take(record)
        await call.send(ExportResponse().SerializeToString())

    def _decoded(self, message: bytes) -> list[FlowRecord]:
        try:
            return guarded("ExportRequest", _records, message)
        except Invalid:
            self.refused += 1
            raise


def _records(message: bytes) -> list[FlowRecord]:
    return [read(flow) for flow in ExportRequest.FromString(message).flows]
