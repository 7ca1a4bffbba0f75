"""What a process uploads, and what became of it: JSON on its standard input and output."""

from __future__ import annotations

from urllib.parse import urlsplit

import msgspec

from antrea.errors import Invalid

TRIES = 5
PAUSE_SECONDS = 5.0
# parity: pkg/util/sftp/sftp.go uploadToFileServerMaxRetries, uploadToFileServerRetryDelay
SSH_PORT, TLS_PORT = 22, 443


class Credentials(msgspec.Struct, frozen=True):
    """How the server knows the sender: one of the three."""

    username: str = ""
    password: str = ""
    bearer_token: str = ""
    api_key: str = ""


class UploadOrder(msgspec.Struct, frozen=True):
    """One file."""

    url: str
    """Of a directory; the file's own name is added."""
    name: str
    source: str
    """Path of the file."""
    credentials: Credentials = Credentials()
    host_key: bytes = b""
    """The only public key of the server that is accepted, in SSH's wire format; empty: any of an SFTP server."""
    tries: int = TRIES
    pause_seconds: float = PAUSE_SECONDS
    connect_seconds: float = 5.0
    seconds: float = 300.0
    """Of one try."""


class Uploaded(msgspec.Struct, frozen=True):
    """What became of it."""

    failures: tuple[str, ...] = ()
    """Of each try, why it failed; as many as there were tries: the file is not there."""


class Target(msgspec.Struct, frozen=True):
    """Where a file goes."""

    scheme: str
    host: str
    port: int
    path: str


def target(url: str, name: str) -> Target:
    """Where `name` goes below `url`: sftp://host:port/path, or the same without a scheme. Raises Invalid."""
    try:
        split = urlsplit(url if "://" in url else f"sftp://{url}")
        port = split.port
    except ValueError as why:
        raise Invalid("fileServer.url", f"{url!r}: {why}") from why
    if split.scheme not in ("sftp", "https"):
        raise Invalid("fileServer.url", f"not sftp protocol: {url!r}; https is possible, too")
    if not split.hostname or split.username or split.query or split.fragment:
        raise Invalid("fileServer.url", f"{url!r} is not scheme://host:port/path")
    default = SSH_PORT if split.scheme == "sftp" else TLS_PORT
    return Target(split.scheme, split.hostname, port or default, f"{split.path.rstrip('/')}/{name}")
