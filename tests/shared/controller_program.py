"""antrea-controller as a program, over a small API server of the test."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import sys
from typing import TYPE_CHECKING

from loopback import answering

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from pathlib import Path

    from certificate_world import ApiServer


def kubeconfig(path: Path, server: str, token: str = "") -> str:
    made = {
        "clusters": [{"name": "c", "cluster": {"server": server, "insecure-skip-tls-verify": True}}],
        "users": [{"name": "u", "user": {"token": token} if token else {}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "c",
    }
    path.write_text(json.dumps(made))
    return str(path)


@contextlib.asynccontextmanager
async def controller_program(
    folder: Path, api: ApiServer, gates: Mapping[str, bool]
) -> AsyncIterator[tuple[str, str]]:
    """Runs antrea-controller; gives its address, and a token that it takes."""
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", 0))
        port = held.getsockname()[1]
        async with contextlib.AsyncExitStack() as last:
            server = await last.enter_async_context(answering(api.serve))
            connection = {"kubeconfig": kubeconfig(folder / "controller.kubeconfig", server)}
            config = folder / "antrea-controller.conf"
            written = {"apiPort": port, "clientConnection": connection, "featureGates": gates}
            config.write_text(json.dumps(written))
            token = folder / "token"
            words = [sys.executable, "-P", "-m", "antrea.controller.main", "--config", str(config)]
            words += ["--certificate-dir", f"{folder}/certificates", "--token-file", str(token)]
            log = last.enter_context((folder / "controller.log").open("wb"))
            program = await asyncio.create_subprocess_exec(*words, cwd=folder, stdout=log, stderr=log)
            last.push_async_callback(program.wait)
            last.callback(program.terminate)
            last.callback(lambda: print((folder / "controller.log").read_text(errors="replace")))
            async with asyncio.timeout(60):
                while not (token.exists() and token.read_text()):  # noqa: ASYNC110 (a file of another process)
                    await asyncio.sleep(0.05)
            yield f"https://127.0.0.1:{port}", token.read_text()
