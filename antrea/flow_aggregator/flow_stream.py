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
from antrea.flow_aggregator.flow_filter import MAX_FILTERS, FlowFilter, is_visible
from antrea.flow_aggregator.visibility import streamed_namespaces
from antrea.flow_protobuf.record import write_joined
from antrea.flow_protobuf.schema import GET_FLOWS, GetFlowsRequest, GetFlowsResponse
from antrea.outside.apiserver.status import ApiError
from antrea.outside.grpc.framing import PERMISSION_DENIED, UNAUTHENTICATED, UNAVAILABLE
from antrea.outside.grpc.server import REST_SECONDS, CallRefused, ServerConnection
from antrea.outside.listener.listener import Limits
from antrea.outside.session.server import SessionServer

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

    from antrea.apis.flow import FlowRecord
    from antrea.flow_aggregator.flow_buffer import FlowBuffer
    from antrea.outside.apiserver.authentication import Authentication, User
    from antrea.outside.apiserver.authorization import Authorization
    from antrea.outside.grpc.server import Call
    from antrea.outside.session.server import Session

BATCH: Final = 500
"""Records that are looked at before others have their turn, and of one message."""
PAUSE: Final = 0.1
"""Seconds for which records are gathered into one message."""
RIGHTS_SECONDS: Final = 60.0
"""After which it is asked anew what the user of a stream may see."""
WINDOW: Final = 64 << 10
"""Bytes of a request."""
REQUEST_SECONDS: Final = 10.0
"""For the request of a call whose headers have come."""
UNPROVED_REST_SECONDS: Final = 10.0
"""For the next call of a connection that has had no call with a good token."""
ANYBODY: Final = "anybody"
"""The user of streams that need no token."""
LIMITS: Final = Limits(
    connections=1024, new=256, strangers=256, of_one=64, idle_seconds=30.0, last_seconds=0.0
)
STATUSES: Final = {401: UNAUTHENTICATED, 403: PERMISSION_DENIED}


class FlowStreams(SessionServer):
    """Serves the streams, once there is a certificate."""

    def __init__(
        self, buffer: FlowBuffer[FlowRecord], judges: tuple[Authentication, Authorization] | None
    ) -> None:
        """`judges` None: everybody sees all records."""
        super().__init__("flow streams", LIMITS)
        self._buffer, self._judges = buffer, judges
        self._certified = asyncio.Event()

    async def present(self, context: ssl.SSLContext) -> None:
        """Use this certificate from now on; streams over the one before end."""
        self.tls = context
        self._certified.set()
        await self.end_sessions()

    async def serve(self, port: int, ready: Callable[[int], None]) -> None:
        """Serve until cancelled. Raises Unavailable if the port is taken."""
        await self._certified.wait()
        await self.serve_streams("", port, ready)

    async def serve_session(self, session: Session) -> None:
        """The calls of one client."""

        async def get_flows(call: Call) -> None:
            # before anything of the message is waited for
            session.mark_request()
            session.prove((await self._user(call)).name if self._judges else ANYBODY)
            connection.rest_seconds = REST_SECONDS
            await self._get_flows(call)

        methods = {GET_FLOWS: get_flows}
        connection = ServerConnection(session, methods, window=WINDOW, rest_seconds=UNPROVED_REST_SECONDS)
        await connection.run()

    async def _get_flows(self, call: Call) -> None:
        try:
            async with asyncio.timeout(REQUEST_SECONDS):
                message = await call.receive()
        except TimeoutError:
            raise Invalid("GetFlowsRequest", f"it did not come within {REQUEST_SECONDS:.0f} s") from None
        request, filters = _request(message or b"")
        number, left, lost, judged = 0, request.max_count, 0, -math.inf
        while True:
            if time.monotonic() - judged >= RIGHTS_SECONDS:
                seen, judged = await self._visible_namespaces(call, filters), time.monotonic()
            some, gone = self._buffer.after(number, BATCH)
            lost += gone
            number += gone + len(some)
            matching = [
                record for record in some if _takes(record, request, filters) and is_visible(record, seen)
            ]
            if request.max_count:
                matching = matching[:left]
                left -= len(matching)
            if matching or gone:
                await call.send(_response(matching, lost))
            if (request.max_count and not left) or (not request.follow and not some):
                return
            if not some:
                await asyncio.sleep(PAUSE)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(RIGHTS_SECONDS):
                        await self._buffer.wait(number)

    async def _visible_namespaces(self, call: Call, filters: list[FlowFilter]) -> frozenset[str] | None:
        """Namespaces whose records the user may see; None: all. Raises CallRefused."""
        if self._judges is None:
            return None
        names = sorted({name for flow_filter in filters for name in flow_filter.namespaces})
        try:
            return await streamed_namespaces(await self._user(call), "/flows", self._judges[1], names)
        except ApiError as error:
            raise CallRefused(STATUSES.get(error.status.code, UNAVAILABLE), error.status.message) from error

    async def _user(self, call: Call) -> User:
        """Raises CallRefused: the call has no token of a user."""
        assert self._judges is not None  # noqa: S101 (asked for judged streams alone)
        try:
            return await self._judges[0].bearer_user(call.headers.get("authorization", ""), call.peer)
        except ApiError as error:
            raise CallRefused(STATUSES.get(error.status.code, UNAVAILABLE), error.status.message) from error


def _request(message: bytes) -> tuple[Any, list[FlowFilter]]:
    """Raises Invalid."""
    request = guarded("GetFlowsRequest", GetFlowsRequest.FromString, message)
    if len(request.filters) > MAX_FILTERS:
        raise Invalid("filters", f"are more than {MAX_FILTERS}")
    return request, [FlowFilter(message_filter) for message_filter in request.filters]


def _takes(record: FlowRecord, request: Any, filters: list[FlowFilter]) -> bool:
    if request.HasField("since") and record.flow_end_seconds < request.since.seconds:
        return False
    return all(flow_filter.takes(record) for flow_filter in filters)


def _response(records: list[FlowRecord], lost: int) -> bytes:
    made, now = GetFlowsResponse(dropped_count=lost), int(time.time())
    for record in records:
        write_joined(record, made.flows.add(), now=now)
    return bytes(made.SerializeToString())
