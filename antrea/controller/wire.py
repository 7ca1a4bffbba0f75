"""What the computing process and the front say to each other: msgpack frames, each after its length, over a socket pair."""

from __future__ import annotations

import asyncio  # noqa: TC003 (used in a signature that is evaluated by tests)
from typing import Any

import msgspec

from antrea.errors import Unavailable
from antrea.features.gate import GateStatus

NOTHING = msgspec.Raw(msgspec.msgpack.encode(None))
MOST = 1 << 30
"""Bytes of a frame; more is a bug."""


class Frame(msgspec.Struct, frozen=True, tag=True):
    """The base of all frames, told apart by their name."""


class Start(Frame, frozen=True):
    """The first frame: what the front needs of the configuration."""

    port: int
    token_file: str
    verbosity: int
    gates: tuple[GateStatus, ...]
    certificate_file: str
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
    """Whether there are other replicas; then nobody leads until a Leader says so."""


class Leader(Frame, frozen=True):
    """How the election stands: `own`, or the host:port of the replica that leads; empty: none does."""

    own: bool
    address: str = ""


class Put(Frame, frozen=True):
    """An object is new or has changed; `places` has the Node of each member of a group."""

    group: str
    resource: str
    key: str
    found: msgspec.Raw
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
    """All about the Pods of this Node, up to this resourceVersion, has been said."""

    node: str
    version: int


class Ask(Frame, frozen=True):
    """A question of the front; `found` is the posted object, or NOTHING."""

    number: int
    group: str
    resource: str
    subresource: str
    verb: str
    namespace: str
    name: str
    query: dict[str, str] = {}
    found: msgspec.Raw = NOTHING


class Answer(Frame, frozen=True):
    """The answer to the question of this number: an object, or a Status where `is_status`. NOTHING: there is none."""

    number: int
    found: msgspec.Raw = NOTHING
    is_status: bool = False


class CatchUp(Frame, frozen=True):
    """The front asks that it be told of all that the API server has told already."""

    number: int


class CaughtUp(Frame, frozen=True):
    """It has been told, or not, and why."""

    number: int
    why: str = ""


class Knock(Frame, frozen=True):
    """The front asks whether anybody hears it."""

    number: int


class Heard(Frame, frozen=True):
    """Somebody does."""

    number: int


class Measure(Frame, frozen=True):
    """The front asks for metrics."""

    number: int


class Measured(Frame, frozen=True):
    """Metrics of the computing process, in Prometheus' text format."""

    number: int
    text: str


class Started(Frame, frozen=True):
    """The front serves at this port."""

    port: int


class Failed(Frame, frozen=True):
    """The front cannot serve, and why; `path` names what the user has to change, if that is it."""

    why: str
    path: str = ""


class Agents(Frame, frozen=True):
    """How many watch AppliedToGroups now."""

    number: int


class Level(Frame, frozen=True):
    """The verbosity was changed through the API."""

    verbosity: int


Said = (
    Start
    | Leader
    | Put
    | Change
    | Drop
    | Synced
    | Processed
    | Ask
    | Answer
    | CatchUp
    | CaughtUp
    | Knock
    | Heard
    | Measure
    | Measured
    | Started
    | Failed
    | Agents
    | Level
)
Reply = Answer | Measured | CaughtUp | Heard
"""Each has the number of its question."""
_ENCODER, _DECODER = msgspec.msgpack.Encoder(), msgspec.msgpack.Decoder(Said)


class Channel:
    """One end of the socket pair."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    def say(self, frame: Frame) -> None:
        """Queue a frame; nothing is lost while both ends live."""
        body = _ENCODER.encode(frame)
        self._writer.write(len(body).to_bytes(4, "big") + body)

    async def drained(self) -> None:
        """Until the other end has taken most of what was said."""
        await self._writer.drain()

    async def hear(self) -> Any:
        """The next frame. Raises Unavailable when the other end is gone."""
        try:
            size = int.from_bytes(await self._reader.readexactly(4), "big")
            if size > MOST:
                raise Unavailable(f"the other process: a frame of {size} bytes")
            return _DECODER.decode(await self._reader.readexactly(size))
        except (EOFError, OSError) as why:
            raise Unavailable("the other process has ended") from why

    def close(self) -> None:
        """The other end hears that."""
        self._writer.close()


def raw(found: msgspec.Struct) -> msgspec.Raw:
    """A struct as it travels."""
    return msgspec.Raw(_ENCODER.encode(found))
