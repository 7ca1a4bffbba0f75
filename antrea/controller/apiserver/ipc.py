"""Messages between the compute process and the API server process: length-prefixed msgpack frames over a socket pair."""

from __future__ import annotations

import asyncio  # noqa: TC003 (used in a signature that is evaluated by tests)
from typing import Any

import msgspec

from antrea.errors import Unavailable
from antrea.features.framework.gate import GateStatus

NOTHING = msgspec.Raw(msgspec.msgpack.encode(None))
MAX_BYTES = 1 << 30
"""Bytes of a frame; more is a bug."""


class Frame(msgspec.Struct, frozen=True, tag=True):
    """The base of all frames, tagged by class name."""


class Start(Frame, frozen=True):
    """The first frame: the part of the configuration that the API server process needs."""

    port: int
    token_file: str
    verbosity: int
    gates: tuple[GateStatus, ...]
    certificate_file: str
    listening: int = -1
    """Descriptor of a socket that listens at the port; negative: the API server process opens one."""
    key_file: str = ""
    """Empty: the certificate's file has it."""
    namespace: str = ""
    service_account: str = ""
    feature_gates: dict[str, bool] = {}
    tls_min_version: str = ""
    tls_cipher_suites: str = ""
    client_ca_file: str = ""
    kubeconfig: str = ""
    kube_override: str = ""
    metrics: bool = True
    ca_file: str = ""
    """CA of the serving certificate, for the front of another replica."""
    elected: bool = False
    """Whether there are other replicas; then none leads until a Leader frame arrives."""
    webhook_clients: tuple[str, ...] = ()
    """Users whose certificate a webhook asks for; empty: everybody may call it."""


class Leader(Frame, frozen=True):
    """How the election stands: `is_self`, or the host:port of the replica that leads; empty: none does."""

    is_self: bool
    address: str = ""


class Put(Frame, frozen=True):
    """An object is new or has changed; `places` has the Node of each member of a group."""

    group: str
    resource: str
    key: str
    body: msgspec.Raw
    span: tuple[str, ...] = ()
    places: tuple[str, ...] = ()


class Change(Frame, frozen=True):
    """Members of a group came and went, each with its Node; `span` None: as it was."""

    group: str
    resource: str
    key: str
    added: tuple[tuple[msgspec.Raw, str], ...] = ()
    removed: tuple[tuple[msgspec.Raw, str], ...] = ()
    span: tuple[str, ...] | None = None


class Drop(Frame, frozen=True):
    """An object is gone."""

    group: str
    resource: str
    key: str


class Synced(Frame, frozen=True):
    """A whole pass has filled this store."""

    group: str
    resource: str


class Processed(Frame, frozen=True):
    """Everything for the Pods of this Node, up to this resourceVersion, was sent."""

    node: str
    version: int


class Query(Frame, frozen=True):
    """A query that the compute process answers; `body` is the posted object, or NOTHING."""

    number: int
    group: str
    resource: str
    subresource: str
    verb: str
    namespace: str
    name: str
    query: dict[str, str] = {}
    body: msgspec.Raw = NOTHING


class QueryResult(Frame, frozen=True):
    """The response to the query of this number: an object, or a Status where `is_status`. NOTHING: there is none."""

    number: int
    body: msgspec.Raw = NOTHING
    is_status: bool = False


class CatchUp(Frame, frozen=True):
    """Request to publish everything that kube-apiserver has delivered so far."""

    number: int


class CaughtUp(Frame, frozen=True):
    """The response to CatchUp; `why` is empty on success."""

    number: int
    why: str = ""


class Ping(Frame, frozen=True):
    """Liveness probe of the compute process."""

    number: int


class Pong(Frame, frozen=True):
    """The response to Ping."""

    number: int


class GetMetrics(Frame, frozen=True):
    """Request for metrics of the compute process."""

    number: int


class MetricsResult(Frame, frozen=True):
    """Metrics of the computing process, in Prometheus' text format."""

    number: int
    text: str


class Started(Frame, frozen=True):
    """The API server process serves at this port."""

    port: int


class Failed(Frame, frozen=True):
    """The API server process cannot serve; `path` names the key or file to change, if that is the cause."""

    why: str
    path: str = ""


class AgentCount(Frame, frozen=True):
    """Number of agents that watch AppliedToGroups now."""

    number: int


class LogLevel(Frame, frozen=True):
    """The verbosity was changed through the API."""

    verbosity: int


AnyFrame = (
    Start
    | Leader
    | Put
    | Change
    | Drop
    | Synced
    | Processed
    | Query
    | QueryResult
    | CatchUp
    | CaughtUp
    | Ping
    | Pong
    | GetMetrics
    | MetricsResult
    | Started
    | Failed
    | AgentCount
    | LogLevel
)
Reply = QueryResult | MetricsResult | CaughtUp | Pong
"""Each has the number of its query."""
_ENCODER, _DECODER = msgspec.msgpack.Encoder(), msgspec.msgpack.Decoder(AnyFrame)


class Channel:
    """One end of the socket pair."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    def send(self, frame: Frame) -> None:
        """Queue a frame; nothing is lost while both ends live."""
        body = _ENCODER.encode(frame)
        self._writer.write(len(body).to_bytes(4, "big") + body)

    async def drained(self) -> None:
        """Wait until the other end has taken most of what was sent."""
        await self._writer.drain()

    async def receive(self) -> Any:
        """The next frame. Raises Unavailable when the other end is gone."""
        try:
            size = int.from_bytes(await self._reader.readexactly(4), "big")
            if size > MAX_BYTES:
                raise Unavailable(f"the other process sent a frame of {size} bytes, which is too long")
            frame = await self._reader.readexactly(size)
        except (EOFError, OSError) as error:
            raise Unavailable("the other process has ended") from error
        return _DECODER.decode(frame)

    def close(self) -> None:
        """Close this end; the other end then raises Unavailable."""
        self._writer.close()


def raw(value: msgspec.Struct) -> msgspec.Raw:
    """A struct as it travels."""
    return msgspec.Raw(_ENCODER.encode(value))
