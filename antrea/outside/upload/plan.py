"""Plan and result of an uploading process: JSON on its standard input and output."""

from __future__ import annotations

from urllib.parse import parse_qs, urlsplit

import msgspec

from antrea.apis.annotation import ACCEPT_ANY_HOST_KEY
from antrea.errors import Invalid

TRIES = 5
PAUSE_SECONDS = 5.0
# parity: pkg/util/sftp/sftp.go uploadToFileServerMaxRetries, uploadToFileServerRetryDelay
SSH_PORT, TLS_PORT = 22, 443
SCHEMES = {"sftp": SSH_PORT, "https": TLS_PORT, "s3": TLS_PORT}
"""With their ports."""
REGION = "us-east-1"
"""Region of an S3 server unless its URL names another one."""


class Credentials(msgspec.Struct, frozen=True):
    """How the sender authenticates: a pair, a token or a key."""

    username: str = ""
    password: str = ""
    bearer_token: str = ""
    api_key: str = ""
    session_token: str = ""
    """Token of an S3 server, beside username and password, where these are temporary."""


class UploadOrder(msgspec.Struct, frozen=True):
    """One file."""

    url: str
    """URL of a directory; the file's own name is added."""
    name: str
    source: str
    """Path of the file."""
    credentials: Credentials = Credentials()
    host_key: bytes = b""
    """The only public key of the server that is accepted, in SSH's wire format."""
    any_host_key: bool = False
    """Whether an SFTP server may have any key where `host_key` is empty."""
    tries: int = TRIES
    pause_seconds: float = PAUSE_SECONDS
    connect_seconds: float = 5.0
    seconds: float = 300.0
    """Timeout of one try."""


class Uploaded(msgspec.Struct, frozen=True):
    """Result of an upload."""

    failures: tuple[str, ...] = ()
    """Reasons of failed tries; as many as there were tries: the file is not there."""
    invalid: str = ""
    """Error that the user must correct: it was not tried again, and the file is not there."""


class Target(msgspec.Struct, frozen=True):
    """Where a file goes."""

    scheme: str
    host: str
    port: int
    path: str
    region: str = ""
    """Region of an S3 server."""


def expect_known_host(url: str, host_key: bytes, *, any_host_key: bool) -> None:
    """Raises Invalid: nothing would show that an SFTP server is the right one before it is sent the password."""
    if target(url, "").scheme == "sftp" and not host_key and not any_host_key:
        raise Invalid(
            "fileServer.hostPublicKey",
            "it is empty, so any server at the address could take the password and the file: set it to the key that ssh-keyscan "
            f'prints for the server, or annotate the object with {ACCEPT_ANY_HOST_KEY}: "true"',
        )


def target(url: str, name: str) -> Target:
    """Where `name` goes below `url`: sftp://host:port/path, the same without a scheme, https or s3. Raises Invalid."""
    try:
        split = urlsplit(url if "://" in url else f"sftp://{url}")
        port = split.port
    except ValueError as error:
        raise Invalid("fileServer.url", f"{url!r}: {error}") from error
    if split.scheme not in SCHEMES:
        raise Invalid("fileServer.url", f"not sftp protocol: {url!r}; https and s3 are possible, too")
    query = parse_qs(split.query) if split.scheme == "s3" else {"": [split.query]} if split.query else {}
    if not split.hostname or split.username or split.fragment or query.keys() - {"region"}:
        raise Invalid("fileServer.url", f"{url!r} is not scheme://host:port/path")
    path = f"{split.path.rstrip('/')}/{name}"
    if split.scheme != "s3":
        return Target(split.scheme, split.hostname, port or SCHEMES[split.scheme], path)
    if path.count("/") < 2:
        raise Invalid("fileServer.url", f"{url!r} is not s3://host:port/bucket, with ?region= if need be")
    return Target("s3", split.hostname, port or TLS_PORT, path, query.get("region", [REGION])[0])
