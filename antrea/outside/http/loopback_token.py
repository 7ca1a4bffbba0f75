"""The token by which a program's own antctl, in the same Pod, proves itself to its API."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from antrea.errors import Unavailable

TOKEN_FILE = Path("/var/run/antrea/apiserver/loopback-client-token")


def write_token(path: Path = TOKEN_FILE) -> str:
    """A fresh token in `path`, readable by root only; the one before is void. Raises Unavailable."""
    token = secrets.token_urlsafe(32)
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh.unlink(missing_ok=True)
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(token)
        fresh.replace(path)
    except OSError as error:
        raise Unavailable(f"token file {path}: {error.strerror}") from error
    return token
