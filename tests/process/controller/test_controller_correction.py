"""A controller in a Pod with a configuration that is refused: it waits for the correction, alive and not ready."""

from __future__ import annotations

import asyncio
import http.client
import os
import signal
import ssl
import sys
import time
from typing import TYPE_CHECKING

import pytest
from certificate_world import ApiServer
from controller_program import kubeconfig
from free_port import free_port
from loopback import answering

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

CONFIG_MAP = "/api/v1/namespaces/kube-system/configmaps/antrea-config"
FILE = "antrea-controller.conf"
START_SECONDS = 15.0
"""From the correction to a program that is ready."""


class World:
    """The program, its port, and the API server that has its ConfigMap."""

    def __init__(self, folder: Path, server: str, api: ApiServer) -> None:
        self.port, self.api, self.log = free_port(), api, folder / "log"
        self._folder, self._server = folder, server

    def text(self, more: str) -> str:
        return f"apiPort: {self.port}\nclientConnection:\n  kubeconfig: {self._folder}/kubeconfig\n{more}\n"

    async def start(self, more: str) -> asyncio.subprocess.Process:
        kubeconfig(self._folder / "kubeconfig", self._server)
        path = self._folder / FILE
        path.write_text(self.text(more))
        words = [sys.executable, "-P", "-m", "antrea.controller.main", "--config", str(path)]
        words += [
            "--certificate-dir",
            f"{self._folder}/certificates",
            "--token-file",
            f"{self._folder}/token",
        ]
        with self.log.open("wb") as log:
            return await asyncio.create_subprocess_exec(
                *words, stdout=log, stderr=log, env={**os.environ, "POD_NAMESPACE": "kube-system"}
            )

    def correct(self, more: str) -> None:
        self.api.put(CONFIG_MAP, {"data": {FILE: self.text(more)}})

    async def get(self, path: str) -> tuple[int, str]:
        return await asyncio.to_thread(self._get, path)

    def _get(self, path: str) -> tuple[int, str]:
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        connection = http.client.HTTPSConnection("127.0.0.1", self.port, timeout=10, context=context)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        except OSError:
            return 0, ""
        finally:
            connection.close()


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    api = ApiServer({})
    async with answering(api.serve) as server:
        yield World(tmp_path, server, api)


async def until(seen: Callable[[], Awaitable[bool]], seconds: float = 60) -> float:
    began = time.monotonic()
    async with asyncio.timeout(seconds):
        while not await seen():  # noqa: ASYNC110 (a state of another process)
            await asyncio.sleep(0.05)
    return time.monotonic() - began


async def test_a_refused_configuration_is_waited_out(world: World) -> None:
    wrong = "featureGates: {Nope: true}"
    world.correct(wrong)
    program = await world.start(wrong)
    try:

        async def says(status: int, text: str) -> bool:
            found = await world.get("/readyz")
            return found[0] == status and text in found[1]

        await until(lambda: says(500, "configuration failed: featureGates.Nope: unrecognized feature gate"))
        assert (await world.get("/livez"))[0] == 200
        assert (await world.get("/apis"))[0] in (401, 403)
        world.correct("nodeIPAM: {enableNodeIPAM: 7}")
        await until(lambda: says(500, "nodeIPAM.enableNodeIPAM"))
        assert program.returncode is None
        assert [path for path in world.api.writes if path.endswith("/events")] != []
        lines = world.log.read_text().splitlines()
        assert len([line for line in lines if "was refused" in line and "Nope" in line]) == 1
        world.correct("featureGates: {}")
        (world.log.parent / "certificates").mkdir()
        await until(lambda: says(200, "ok"), START_SECONDS)
    finally:
        program.terminate()
        await program.wait()
    assert "The configuration was corrected" in world.log.read_text()


async def test_a_wait_ends_when_the_process_is_asked_to(world: World) -> None:
    program = await world.start("apiPort: x")
    try:

        async def waits() -> bool:
            return "waiting for its correction" in world.log.read_text()

        await until(waits)
        program.send_signal(signal.SIGTERM)
        async with asyncio.timeout(20):
            assert await program.wait() == 0
    finally:
        if program.returncode is None:
            program.kill()
            await program.wait()
