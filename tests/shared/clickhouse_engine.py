"""ClickHouse's own engine for tests: its package, kept in the cache, and a server made of it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from image_build import cache

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

ROOT = Path(__file__).resolve().parents[2]
LOCK = ROOT / "requirements/flow-store.txt"
TIMEOUT = 60.0
PASSWORD = "let me in"
CLUSTER = (
    "<clickhouse><tcp_port>9000</tcp_port><remote_servers><{name}><shard><replica><host>localhost</host><port>9000</port>"
    "</replica></shard></{name}></remote_servers></clickhouse>"
)
"""Its one server is this one, by the port that it would have."""


def engine_folder() -> Path:
    """For PYTHONPATH: the package as requirements/flow-store.txt locks it, installed once on this machine."""

    def install(part: Path) -> None:
        words = ("install", "-q", "--no-deps", "--require-hashes", "--only-binary=:all:", "-r", str(LOCK))
        subprocess.run([sys.executable, "-m", "pip", *words, "--target", str(part)], check=True, timeout=600)

    return cache.made("flow-store", cache.digest(LOCK), install)


@contextlib.asynccontextmanager
async def serving(folder: Path, port: int, *, cluster: str = "") -> AsyncIterator[None]:
    """A server on loopback whose rows are below `folder`, and which outlives none of its callers; alone in this `cluster`."""
    program = ROOT / "lab/clickhouse_server.py"
    rows = str(folder / "data")
    if cluster:
        (folder / "cluster.xml").write_text(CLUSTER.format(name=cluster))
        rows += f"?config-file={folder / 'cluster.xml'}"
    words = (sys.executable, str(program), rows, f"--port={port}")
    secret = {"PYTHONPATH": str(engine_folder()), "CLICKHOUSE_PASSWORD": PASSWORD}
    with (folder / "server.log").open("a") as log:
        process = await asyncio.create_subprocess_exec(
            *words, env=os.environ | secret, stderr=log, stdout=log
        )
        try:
            async with asyncio.timeout(TIMEOUT):
                while True:
                    with contextlib.suppress(OSError):
                        _, writer = await asyncio.open_connection("127.0.0.1", port)
                        writer.close()
                        break
                    assert process.returncode is None, (folder / "server.log").read_text()
                    await asyncio.sleep(0.05)
            yield
        finally:
            process.kill()
            await process.wait()
