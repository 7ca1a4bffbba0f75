"""An agent in a Pod with a configuration that is refused: it waits for the correction, alive and not ready."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import ssl
import sys
from typing import TYPE_CHECKING

import aiohttp
from certificate_world import ApiServer
from controller_program import kubeconfig
from free_port import free_port
from loopback import answering

if TYPE_CHECKING:
    from pathlib import Path

WRONG = "trafficEncapMode: encap\ntunnelType: stt\nnoSNAT: true\n"


async def answer(port: int, path: str) -> tuple[int, str]:
    """Its status and text; 0 while nothing listens."""
    tls = ssl.create_default_context()
    tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
    with contextlib.suppress(aiohttp.ClientError):
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"https://127.0.0.1:{port}{path}", ssl=tls) as got,
        ):
            return got.status, await got.text()
    return 0, ""


async def test_a_refused_configuration_is_in_the_readiness_and_events_with_all_wrong_keys(
    tmp_path: Path,
) -> None:
    api, port, path = ApiServer({}), free_port(), tmp_path / "antrea-agent.conf"
    async with answering(api.serve) as server:
        connection = f"clientConnection:\n  kubeconfig: {kubeconfig(tmp_path / 'kubeconfig', server)}\n"
        path.write_text(f"apiPort: {port}\n{connection}{WRONG}")
        words = [sys.executable, "-P", "-m", "antrea.agent.main", "--config", str(path)]
        environment = {**os.environ, "POD_NAMESPACE": "kube-system", "NODE_NAME": "n1"}
        program = await asyncio.create_subprocess_exec(*words, env=environment)
        try:
            async with asyncio.timeout(60):
                while not (await answer(port, "/readyz"))[0]:  # noqa: ASYNC110 (of another process)
                    await asyncio.sleep(0.05)
                while not any(one.endswith("/events") for one in api.writes):  # noqa: ASYNC110 (of another process)
                    await asyncio.sleep(0.05)
            status, why = await answer(port, "/readyz")
            assert (status, "configuration failed: noSNAT:" in why, "tunnelType:" in why) == (
                500,
                True,
                True,
            ), why
            assert (await answer(port, "/livez"))[0] == 200
            program.send_signal(signal.SIGTERM)
            async with asyncio.timeout(20):
                assert await program.wait() == 0
        finally:
            if program.returncode is None:
                program.kill()
                await program.wait()
