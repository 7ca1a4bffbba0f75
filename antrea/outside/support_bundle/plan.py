"""Plan of a support bundle: sent by the program that serves it to the process that collects it."""

from __future__ import annotations

from typing import Any

import msgspec


class Command(msgspec.Struct, frozen=True):
    """A file that holds what a command prints; one that is not installed is left out."""

    path: str
    arguments: tuple[str, ...]
    environment: dict[str, str] = {}


class Logs(msgspec.Struct, frozen=True):
    """A folder of the bundle for those files below `source` whose name begins with `prefix`."""

    folder: str
    source: str
    prefix: str


class Limits(msgspec.Struct, frozen=True):
    """How much a bundle may take of its Node."""

    log_bytes: int = 128 << 20
    """Maximum size of all logs together before compression; the newest lines win."""
    piece_bytes: int = 128 << 20
    """Maximum size of any other file."""
    command_seconds: float = 20.0
    seconds: float = 120.0
    """After these nothing more is begun, and what there is makes the bundle."""
    free_bytes: int = 64 << 20
    """Bytes that have to stay free on the disk."""


class Order(msgspec.Struct, frozen=True):
    """One bundle."""

    target: str
    """The tar.gz, which must not exist yet."""
    documents: dict[str, Any] = {}
    """Files by path: a text, or an object that is written as YAML."""
    commands: tuple[Command, ...] = ()
    logs: tuple[Logs, ...] = ()
    since: float | None = None
    """Unix time; only lines of logs from then on."""
    known: tuple[str, ...] = ()
    """Secrets of the program, which are taken out wherever they stand."""
    limits: Limits = Limits()


class Made(msgspec.Struct, frozen=True):
    """Result of a collection; `why` is why there is no bundle."""

    sum: str = ""
    """SHA-256 in hexadecimal."""
    size: int = 0
    why: str = ""
