"""A registry of images on loopback: docker-registry of Debian."""

from __future__ import annotations

import json
import socket
import subprocess
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from free_port import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextmanager
def registry(folder: Path, **http: Any) -> Iterator[str]:
    """Yields its address; `http` are settings of its server beside the address, and `auth` is who may use it."""
    auth = http.pop("auth", None)
    port = free_port()
    settings: dict[str, Any] = {
        "version": 0.1,
        "log": {"level": "error"},
        "storage": {"filesystem": {"rootdirectory": str(folder / "storage")}},
        "http": {"addr": f"127.0.0.1:{port}", **http},
        **({"auth": auth} if auth else {}),
    }
    config = folder / "config.yml"
    config.write_text(json.dumps(settings))
    with (folder / "registry.log").open("wb") as log:
        process = subprocess.Popen(["docker-registry", "serve", config], stdout=log, stderr=log)
    try:
        until = time.monotonic() + 60
        while time.monotonic() < until:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                assert process.poll() is None, (folder / "registry.log").read_text()
                time.sleep(0.05)
        yield f"localhost:{port}"
    finally:
        process.terminate()
        process.wait(30)
