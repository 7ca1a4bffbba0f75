"""A session with a collector by gRPC: one call for as long as it lasts, into which records go as they come."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from antrea.errors import Unavailable, describe_error
from antrea.flow_protobuf.record import write
from antrea.flow_protobuf.schema import EXPORT, ExportRequest
from antrea.outside.grpc.client import ClientStream
from antrea.outside.ipfix.exporter import TIMEOUT, record_time

if TYPE_CHECKING:
    import ssl
    from collections.abc import Sequence

    from antrea.apis.flow import FlowRecord

RECORDS: Final = 100
"""Maximum number of records of a message: below the 4 MiB that servers take, however long their texts are."""


class GrpcSession:
    """Open until a failure; then another one is made."""

    def __init__(self, domain: int) -> None:
        """`domain`: the observation domain of the Node."""
        self._domain = domain
        self._stream = ClientStream(TIMEOUT)

    async def open(self, host: str, port: int, tls: ssl.SSLContext, name: str) -> None:
        """Connect, to a server whose certificate has this name. Raises Unavailable."""
        where = f"flow collector {host}:{port} over grpc"
        try:
            tls.set_alpn_protocols(["h2"])
            await self._stream.open(host, port, EXPORT, tls, name)
        except (OSError, ValueError, Unavailable) as error:
            await self.close()
            raise Unavailable(f"{where}: {describe_error(error) if str(error) else 'no answer'}") from error

    def expect_open(self) -> None:
        """Raises Unavailable: the session has failed."""
        if self._stream.trouble:
            raise Unavailable(f"flow collector: {self._stream.trouble}")

    async def export(self, records: Sequence[FlowRecord]) -> int:
        """Send these; returns how many went out. Raises Unavailable: the session has failed."""
        self.expect_open()
        now = int(record_time())
        try:
            for at in range(0, len(records), RECORDS):
                message = ExportRequest()
                for record in records[at : at + RECORDS]:
                    write(record, message.flows.add(), domain=self._domain, now=now)
                await self._stream.send(message.SerializeToString())
        except (OSError, Unavailable) as error:
            raise Unavailable(
                f"flow collector: {describe_error(error) if str(error) else 'it takes nothing'}"
            ) from error
        return len(records)

    async def close(self) -> None:
        """End the session."""
        await self._stream.close()
