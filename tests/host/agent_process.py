"""The whole agent as a process, on a switch of its own, with an API server on loopback: all but the cluster is real."""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
import sys
from typing import TYPE_CHECKING, Any, Self

import aiohttp
from certificate_world import ApiServer
from loopback import answering
from netdev_switch import NetdevSwitch

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping
    from pathlib import Path

    from conftest import Namespaces

NODE, NODE_IP = "n1", "192.0.2.1"
API_PORT = 10350
MOUNTS = ("/run", "/var/lib", "/var/log")
"""Directories of the Node: each agent has empty ones of its own."""
OBJECTS: dict[str, dict[str, Any]] = {
    f"/api/v1/nodes/{NODE}": {
        "metadata": {"name": NODE, "uid": "node-uid"},
        "spec": {"podCIDR": "10.10.1.0/24", "podCIDRs": ["10.10.1.0/24"]},
        "status": {"addresses": [{"type": "InternalIP", "address": NODE_IP}]},
    }
}


class AgentProcess:
    """`api` has the objects of the cluster, `switch` is that of the Node."""

    def __init__(self, api: ApiServer, switch: NetdevSwitch, folder: Path, env: Mapping[str, str]) -> None:
        """`folder` has its configuration, and gets its log."""
        self.api, self.switch = api, switch
        self._folder, self._env = folder, env
        self.process: asyncio.subprocess.Process | None = None
        self.kept = folder / "kept"
        """Where there is such a folder, it is /var/lib of each agent."""

    async def start(self) -> None:
        """Start one, whose directories of the Node are empty but for what is kept."""
        mounts = " && ".join(f"mount -t tmpfs tmpfs {place}" for place in MOUNTS)
        if self.kept.exists():
            mounts += f" && mount --bind {self.kept} /var/lib"
        program = f"{sys.executable} -m antrea.agent.main --config {self._folder}/antrea-agent.conf --v 2"
        with (self._folder / "log").open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                "unshare", "--mount", "--propagation", "private", "sh", "-c", f"{mounts} && exec {program}",
                env={**self._env, "NODE_NAME": NODE}, cwd=self._folder, stdout=log, stderr=log,
            )  # fmt: skip

    async def kill(self) -> None:
        """As a crash."""
        assert self.process is not None
        self.process.kill()
        await self.process.wait()

    @property
    def _token(self) -> str:
        assert self.process is not None
        root = f"/proc/{self.process.pid}/root/run/antrea/apiserver/loopback-client-token"
        with open(root) as file:  # noqa: PTH123 (a path that leads through another mount namespace)
            return file.read()

    async def get(self, path: str) -> tuple[int, str]:
        """What its API answers; 0: it does not listen."""
        try:
            headers = {"Authorization": f"Bearer {self._token}"}
            context = ssl.create_default_context()
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            async with (
                aiohttp.ClientSession() as session,
                session.get(f"https://127.0.0.1:{API_PORT}{path}", headers=headers, ssl=context) as answer,
            ):
                return answer.status, await answer.text()
        except (aiohttp.ClientError, OSError):
            return 0, ""

    async def until(self, true: Callable[[Self], Any], what: str, seconds: float = 60) -> None:
        """Wait until this, or what it awaits, is true."""
        assert self.process is not None
        try:
            async with asyncio.timeout(seconds):
                while not (await found if asyncio.iscoroutine(found := true(self)) else found):
                    assert self.process.returncode is None, f"the agent has ended, before: {what}"
                    await asyncio.sleep(0.05)
        except TimeoutError:
            raise AssertionError(f"not in time: {what}") from None

    async def ready(self) -> bool:
        return (await self.get("/readyz"))[0] == 200


@contextlib.asynccontextmanager
async def agent_process(
    netns: Namespaces,
    folder: Path,
    env: Mapping[str, str],
    config: Mapping[str, Any] | None = None,
    api: ApiServer | None = None,
    cable: str = "",
) -> AsyncIterator[AgentProcess]:
    """Runs with `env` as long as the block lasts; its files are in `folder`, what it logs too.

    `cable` is what the shell does with eth0 and far0, the other end of its cable, before the agent starts.
    """
    netns.sh(
        f"ip link add eth0 type veth peer name far0; ip addr add {NODE_IP}/24 dev eth0; ip link set eth0 up; ip link set far0 up"
    )
    netns.sh(cable or "true")
    api, switch = api or ApiServer(OBJECTS), NetdevSwitch()
    async with contextlib.AsyncExitStack() as last:
        last.callback(switch.stop)
        switch.start()
        url = await last.enter_async_context(answering(api.serve))
        kubeconfig = {
            "clusters": [{"name": "c", "cluster": {"server": url}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": ""}}],
            "current-context": "c",
        }
        (folder / "kubeconfig").write_text(json.dumps(kubeconfig))
        settings = {
            "clientConnection": {"kubeconfig": str(folder / "kubeconfig")},
            "antreaClientConnection": {"kubeconfig": str(folder / "kubeconfig")},
            "ovsRunDir": str(switch.directory),
            "ovsDatapathType": "netdev",
            "apiPort": API_PORT,
            **(config or {}),
        }
        (folder / "antrea-agent.conf").write_text(json.dumps(settings))
        agent = AgentProcess(api, switch, folder, env)
        await agent.start()
        try:
            yield agent
        finally:
            if agent.process is not None and agent.process.returncode is None:
                agent.process.terminate()
                await agent.process.wait()
            print((folder / "log").read_text(errors="replace"))  # shown for a test that fails
