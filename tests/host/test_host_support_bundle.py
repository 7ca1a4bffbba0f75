"""SupportBundleCollection by the whole agent and the whole controller: a bundle of the Node arrives at a real file server."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import socket
import sys
import tarfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from agent_process import NODE, OBJECTS, agent_process
from certificate_world import ApiServer
from loopback import answering
from sftp_server import PASSWORD, USER, secret, sftp_server

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from agent_process import AgentProcess
    from conftest import Namespaces

COLLECTIONS = "/apis/crd.antrea.io/v1alpha1/supportbundlecollections"
SECRET = "/api/v1/namespaces/ops/secrets/file-server"
GATES = {"featureGates": {"SupportBundleCollection": True}}
DONE = [
    ("Started", "True", "", ""),
    ("BundleCollected", "True", "", ""),
    ("CollectionFailure", "False", "", ""),
    ("Completed", "True", "", ""),
]


class World:
    """A Node, its controller, and the objects of their cluster."""

    def __init__(self, folder: Path, api: ApiServer) -> None:
        self.folder, self.api = folder, api
        self.agent: AgentProcess
        self.controller: asyncio.subprocess.Process
        with socket.socket() as held:
            held.bind(("127.0.0.1", 0))
            self._port = held.getsockname()[1]

    def configure(self, server: str) -> None:
        """The files of both programs."""
        reach: dict[str, dict[str, Any]] = {"c": {"server": server}}
        reach["a"] = {"server": f"https://127.0.0.1:{self._port}", "insecure-skip-tls-verify": True}
        for name, cluster in reach.items():
            made = {
                "clusters": [{"name": name, "cluster": cluster}],
                "users": [{"name": "u", "user": {"tokenFile": "token"} if name == "a" else {}}],
                "contexts": [{"name": name, "context": {"cluster": name, "user": "u"}}],
                "current-context": name,
            }
            (self.folder / f"kubeconfig-{name}").write_text(json.dumps(made))
        config = {
            "apiPort": self._port,
            "clientConnection": {"kubeconfig": str(self.folder / "kubeconfig-c")},
            **GATES,
        }
        (self.folder / "antrea-controller.conf").write_text(json.dumps(config))

    @property
    def agent_config(self) -> dict[str, Any]:
        return {"antreaClientConnection": {"kubeconfig": str(self.folder / "kubeconfig-a")}, **GATES}

    @contextlib.asynccontextmanager
    async def running_controller(self) -> AsyncIterator[None]:
        words = [sys.executable, "-m", "antrea.controller.main", "--config", "antrea-controller.conf"]
        words += ["--certificate-dir", "certificates", "--token-file", "token", "--v", "2"]
        with (self.folder / "controller-log").open("ab") as log:
            self.controller = await asyncio.create_subprocess_exec(
                *words,
                cwd=self.folder,
                stdout=log,
                stderr=log,
                env={**os.environ, "POD_NAMESPACE": "kube-system"},
            )
        try:
            yield
        finally:
            self.controller.terminate()
            await self.controller.wait()

    def files(self) -> list[Path]:
        """All that both programs wrote, and what a reboot keeps."""
        assert self.agent.process is not None
        root = Path(f"/proc/{self.agent.process.pid}/root")
        places = (self.folder, *(root / place for place in ("run", "var/lib", "var/log")))
        return [path for place in places for path in place.rglob("*") if path.is_file()]

    def collect(self, name: str, url: str, **fields: Any) -> None:
        """From this Node, with the Secret, unless said otherwise."""
        reference = {"name": "file-server", "namespace": "ops"}
        server = {"url": url, **fields.pop("server", {})}
        body = {
            "metadata": {
                "uid": f"uid-{name}",
                "creationTimestamp": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            },
            "spec": {
                "nodes": {"nodeNames": [NODE]},
                "fileServer": server,
                "authentication": {"authType": "BasicAuthentication", "authSecret": reference},
                **fields,
            },
        }
        self.api.put(f"{COLLECTIONS}/{name}", body)

    def status(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = self.api.objects[f"{COLLECTIONS}/{name}"].get("status", {})
        return found

    def conditions(self, name: str) -> list[tuple[str, str, str, str]]:
        return [
            (one["type"], one["status"], one.get("reason", ""), one.get("message", ""))
            for one in self.status(name).get("conditions", [])
        ]

    async def until(self, true: Callable[[], object], what: str) -> None:
        await self.agent.until(lambda _: true(), what, seconds=90)

    async def complete(self, name: str) -> None:
        await self.until(
            lambda: any(one[:2] == ("Completed", "True") for one in self.conditions(name)),
            f"{name} is complete",
        )


@pytest.fixture
async def world(netns: Namespaces, tmp_path: Path) -> AsyncIterator[World]:
    api = ApiServer({**OBJECTS, SECRET: secret()})
    one = World(tmp_path, api)
    (tmp_path / "tmp").mkdir()
    async with contextlib.AsyncExitStack() as last:
        one.configure(await last.enter_async_context(answering(api.serve)))
        last.callback(lambda: print((tmp_path / "controller-log").read_text(errors="replace")))
        env = {**os.environ, "TMPDIR": str(tmp_path / "tmp")}
        one.agent = await last.enter_async_context(agent_process(netns, tmp_path, env, one.agent_config, api))
        yield one


async def test_a_bundle_arrives_at_the_file_server_without_the_credentials_in_any_file(world: World) -> None:
    async with world.running_controller(), sftp_server(world.folder / "files") as server:
        world.collect("all", server.url(), server={"hostPublicKey": _base64(server.keys[0])}, sinceTime="2h")
        await world.complete("all")
        assert world.conditions("all") == DONE
        assert (world.status("all")["collectedNodes"], world.status("all")["desiredNodes"]) == (1, 1)
        file = world.folder / "files/upload" / f"{NODE}_all.tar.gz"
        with tarfile.open(file) as archive:
            names = archive.getnames()
            assert {"flows", "agentinfo", "route", "nftables", "bundleinfo"} <= {*names}
            texts = [archive.extractfile(name).read() for name in names]  # type: ignore[union-attr]
        assert not any(PASSWORD.encode() in text for text in texts)
        assert [*(world.folder / "tmp").rglob("*.tar.gz")] == []
        wanted = {"last-word", "log", "controller-log"}
        await world.until(lambda: wanted <= {path.name for path in world.files()}, "all files are written")
        assert not [path for path in world.files() if PASSWORD.encode() in path.read_bytes()]
        assert server.asked == [USER]


def _base64(key: bytes) -> str:
    return base64.b64encode(key).decode()
