"""Streams of records by gRPC: upstream's FlowStreamService, for who may see the records.

Upstream's answers everybody who reaches the port; here a call needs a token, unless `anonymous` is set.
parity: pkg/flowaggregator/flowstreamservice/service.go
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from typing import TYPE_CHECKING, Any, Final

from antrea.decoding import guarded
from antrea.errors import Invalid
from antrea.flow_aggregator.flow_filter import MOST, FlowFilter, is_visible
from antrea.flow_aggregator.visibility import streamed_namespaces
from antrea.flow_protobuf.record import write_joined
from antrea.flow_protobuf.schema import GET_FLOWS, GetFlowsRequest, GetFlowsResponse
from antrea.outside.apiserver.status import ApiError
from antrea.outside.grpc.framing import PERMISSION_DENIED, UNAUTHENTICATED, UNAVAILABLE
from antrea.outside.grpc.server import CallRefused, ServerConnection
from antrea.outside.session.server import SessionServer

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

    from antrea.apis.flow import FlowRecord
    from antrea.flow_aggregator.flow_buffer import FlowBuffer
    from antrea.outside.apiserver.authentication import Authentication
    from antrea.outside.apiserver.authorization import Authorization
    from antrea.outside.grpc.server import Call

BATCH: Final = 500
"""Records that are looked at before others have their turn, and of one message."""
PAUSE: Final = 0.1
"""Seconds for which records are gathered into one message."""
RIGHTS_SECONDS: Final = 60.0
"""After which it is asked anew what the user of a stream may see."""
STATUSES: Final = {401: UNAUTHENTICATED, 403: PERMISSION_DENIED}


class FlowStreams(SessionServer):
    """Serves the streams, once there is a certificate."""

    def __init__(
        self, buffer: FlowBuffer[FlowRecord], judges: tuple[Authentication, Authorization] | None
    ) -> None:
        """`judges` None: everybody sees all records."""
        super().__init__()
        self._buffer, self._judges = buffer, judges
        self._certified = asyncio.Event()

    async def present(self, context: ssl.SSLContext) -> None:
        """Use this certificate from now on; streams over the one before end."""
        self.tls = context
        self._certified.set()
        await self.end_sessions()

    async def serve(self, port: int, ready: Callable[[int], None]) -> None:
        """Until cancelled. Raises Unavailable: the port is taken."""
        await self._certified.wait()
        await self.serve_streams("", port, ready)

    async def serve_session(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, peer: str
    ) -> None:
        """The calls of one client."""
        await ServerConnection(reader, writer, peer, {GET_FLOWS: self._get_flows}).run()

    async def _get_flows(self, call: Call) -> None:
        asked, filters = _request(await call.receive() or b"")
        number, left, lost, judged = 0, asked.max_count, 0, -math.inf
        while True:
            if time.monotonic() - judged >= RIGHTS_SECONDS:
                seen, judged = await self._seen(call, filters), time.monotonic()
            some, gone = self._buffer.after(number, BATCH)
            lost += gone
            number += gone + len(some)
            found = [one for one in some if _takes(one, asked, filters) and is_visible(one, seen)]
            if asked.max_count:
                found = found[:left]
                left -= len(found)
            if found or gone:
                await call.send(_response(found, lost))
            if (asked.max_count and not left) or (not asked.follow and not some):
                return
            if not some:
                await asyncio.sleep(PAUSE)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(RIGHTS_SECONDS):
                        await self._buffer.wait(number)

    async def _seen(self, call: Call, filters: list[FlowFilter]) -> frozenset[str] | None:
        """Namespaces whose records the user may see; None: all. Raises CallRefused."""
        if self._judges is None:
            return None
        names = sorted({name for one in filters for name in one.namespaces})
        authentication, authorization = self._judges
        try:
            user = await authentication.bearer_user(call.headers.get("authorization", ""), call.peer)
            return await streamed_namespaces(user, "/flows", authorization, names)
        except ApiError as no:
            raise CallRefused(STATUSES.get(no.status.code, UNAVAILABLE), no.status.message) from no


def _request(message: bytes) -> tuple[Any, list[FlowFilter]]:
    """Raises Invalid."""
    asked = guarded("GetFlowsRequest", GetFlowsRequest.FromString, message)
    if len(asked.filters) > MOST:
        raise Invalid("filters", f"are more than {MOST}")
    return asked, [FlowFilter(one) for one in asked.filters]


def _takes(record: FlowRecord, asked: Any, filters: list[FlowFilter]) -> bool:
    if asked.HasField("since") and record.flow_end_seconds < asked.since.seconds:
        return False
    return all(one.takes(record) for one in filters)


def _response(records: list[FlowRecord], lost: int) -> bytes:
    made, now = GetFlowsResponse(dropped_count=lost), int(time.time())
    for one in records:
        write_joined(one, made.flows.add(), now=now)
    return bytes(made.SerializeToString())
