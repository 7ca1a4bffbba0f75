"""SupportBundleCollection by the whole agent and the whole controller: a bundle of the Node arrives at a real file server."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import sys
import tarfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from agent_process import NODE, OBJECTS, agent_process
from certificate_world import ApiServer
from free_port import free_port
from loopback import answering
from sftp_server import PASSWORD, USER, new_key, secret, sftp_server

from antrea.apis.annotation import ACCEPT_ANY_HOST_KEY

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
        self._port = free_port()

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
        words = [sys.executable, "-P", "-m", "antrea.controller.main", "--config", "antrea-controller.conf"]
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
            with contextlib.suppress(ProcessLookupError):
                self.controller.terminate()
            await self.controller.wait()

    def files(self) -> list[Path]:
        """All that both programs wrote, and what a reboot keeps."""
        assert self.agent.process is not None
        root = Path(f"/proc/{self.agent.process.pid}/root")
        places = (self.folder, *(root / place for place in ("run", "var/lib", "var/log")))
        return [path for place in places for path in place.rglob("*") if path.is_file()]

    def uploaded(self) -> list[str]:
        """Names of the files at the server."""
        return sorted(path.name for path in (self.folder / "files/upload").iterdir())

    def events(self) -> list[dict[str, Any]]:
        return [one for path, one in self.api.objects.items() if "/events/" in path]

    def collect(self, name: str, url: str, age: float = 0, **fields: Any) -> None:
        """From this Node, with the Secret, unless said otherwise."""
        reference = {"name": "file-server", "namespace": "ops"}
        server = {"url": url, **fields.pop("server", {})}
        body = {
            "metadata": {
                "uid": f"uid-{name}",
                "creationTimestamp": _before(age),
                "annotations": {} if "hostPublicKey" in server else {ACCEPT_ANY_HOST_KEY: "true"},
            },
            "spec": {
                "nodes": {"nodeNames": [NODE]},
                "fileServer": server,
                "authentication": {"authType": "BasicAuthentication", "authSecret": reference},
                **fields,
            },
        }
        self.api.put(f"{COLLECTIONS}/{name}", body)

    def make_older(self, name: str, age: float) -> None:
        """As if it had been created so many seconds ago."""
        held = self.api.objects[f"{COLLECTIONS}/{name}"]
        meta = {**held["metadata"], "creationTimestamp": _before(age)}
        self.api.put(f"{COLLECTIONS}/{name}", {**held, "metadata": meta})

    def status(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = self.api.objects[f"{COLLECTIONS}/{name}"].get("status", {})
        return found

    def conditions(self, name: str) -> list[tuple[str, str, str, str]]:
        return [
            (one["type"], one["status"], one.get("reason", ""), one.get("message", ""))
            for one in self.status(name).get("conditions", [])
        ]

    async def until(self, true: Callable[[], object], what: str) -> None:
        try:
            await self.agent.until(lambda _: true(), what, seconds=90)
        except AssertionError as error:
            paths = [path for path in self.api.objects if path.startswith(COLLECTIONS)]
            found = {path.rpartition("/")[2]: self.api.objects[path].get("status") for path in paths}
            raise AssertionError(f"{error}; statuses: {json.dumps(found)}") from None

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
        env = {**os.environ, "TMPDIR": str(tmp_path / "tmp")}
        one.agent = await last.enter_async_context(agent_process(netns, tmp_path, env, one.agent_config, api))
        last.callback(lambda: print((tmp_path / "controller-log").read_text(errors="replace")))
        yield one


@pytest.mark.timeout(240)
async def test_a_bundle_arrives_at_the_file_server_without_the_credentials_in_any_file(world: World) -> None:
    async with world.running_controller():
        for name, address in (("four", "127.0.0.1"), ("six", "::1")):
            async with sftp_server(world.folder / "files", address=address) as server:
                key = _base64(server.keys[0])
                world.collect(name, server.url(), server={"hostPublicKey": key}, sinceTime="2h")
                await world.complete(name)
                assert server.asked == [USER]
            assert world.conditions(name) == DONE
            assert (world.status(name)["collectedNodes"], world.status(name)["desiredNodes"]) == (1, 1)
            with tarfile.open(world.folder / "files/upload" / f"{NODE}_{name}.tar.gz") as archive:
                names = archive.getnames()
                assert {"flows", "agentinfo", "route", "nftables", "bundleinfo"} <= {*names}
                texts = [archive.extractfile(member).read() for member in names]  # type: ignore[union-attr]
            assert not any(PASSWORD.encode() in text for text in texts)
            assert [*(world.folder / "tmp").rglob("*.tar.gz")] == []
        wanted = {"controller-state", "log", "controller-log"}
        await world.until(lambda: wanted <= {path.name for path in world.files()}, "all files are written")
        assert not [path for path in world.files() if PASSWORD.encode() in path.read_bytes()]


@pytest.mark.wide
async def test_a_missing_secret_is_named_and_awaited_and_two_go_one_after_the_other(world: World) -> None:
    world.api.drop(SECRET)
    async with world.running_controller(), sftp_server(world.folder / "files") as server:
        world.collect("first", server.url())
        world.collect("second", server.url("nowhere"), nodes={"nodeNames": [NODE, "gone"]})
        why = 'unable to get Secret with name file-server in Namespace ops: secrets "file-server" not found'
        expected = ("Started", "False", "SecretUnavailable", f"{why}; trying again")
        await world.until(lambda: expected in world.conditions("first"), "the missing Secret is named")
        assert any(event["reason"] == "SecretUnavailable" for event in world.events())
        world.api.put(SECRET, secret())
        await world.complete("first")
        assert world.conditions("first") == DONE
        begun = ("Started", "True", "", "")
        await world.until(lambda: begun in world.conditions("second"), "the second one has begun")
        world.api.drop(f"{COLLECTIONS}/second")
        world.collect("third", server.url())
        await world.complete("third")
        assert world.conditions("third") == DONE
        assert world.uploaded() == [f"{NODE}_first.tar.gz", f"{NODE}_third.tar.gz"]


async def test_a_node_without_an_agent_is_named_when_it_expires(world: World) -> None:
    world.api.put("/api/v1/nodes/away", {"metadata": {"name": "away", "labels": {"rack": "r1"}}})
    async with world.running_controller(), sftp_server(world.folder / "files") as server:
        both = {"nodeNames": [NODE], "nodeSelector": {"matchLabels": {"rack": "r1"}}}
        world.collect("some", server.url(), expirationMinutes=10, nodes=both)
        silent = ("Completed", "False", "Collecting", "no report yet of: away")
        await world.until(lambda: silent in world.conditions("some"), "the silent Node is named")
        world.make_older("some", 601)
        await world.complete("some")
        (failed,) = (one for one in world.conditions("some") if one[0] == "CollectionFailure")
        assert failed[1:3] == ("True", "InternalError")
        assert failed[3].startswith('Failed Agent count: 1, "no report before the collection expired')
        assert failed[3].endswith(":[away]")
        assert (world.status("some")["collectedNodes"], world.status("some")["desiredNodes"]) == (1, 2)
        assert world.uploaded() == [f"{NODE}_some.tar.gz"]
        world.collect("late", server.url(), age=61, expirationMinutes=1)
        await world.complete("late")
        assert [one[2] for one in world.conditions("late")] == ["Expired", "", "Expired", ""]


@pytest.mark.wide
async def test_a_controller_that_was_killed_goes_on(world: World) -> None:
    world.api.put("/api/v1/nodes/away", {"metadata": {"name": "away"}})
    async with sftp_server(world.folder / "files") as server:
        async with world.running_controller():
            world.collect("all", server.url(), nodes={})
            await world.until(lambda: world.status("all").get("collectedNodes") == 1, "one has reported")
            world.controller.kill()
            await world.controller.wait()
        before = (world.folder / "files/upload" / f"{NODE}_all.tar.gz").stat().st_mtime_ns
        world.api.put(
            f"{COLLECTIONS}/all",
            {
                **world.api.objects[f"{COLLECTIONS}/all"],
                "status": {"conditions": [{"type": "Started", "status": "True"}]},
            },
        )
        async with world.running_controller():
            await world.until(
                lambda: world.status("all").get("collectedNodes") == 1, "the report was repeated"
            )
            world.api.drop("/api/v1/nodes/away")
            await world.complete("all")
            assert world.conditions("all") == DONE
        assert (world.folder / "files/upload" / f"{NODE}_all.tar.gz").stat().st_mtime_ns == before


@pytest.mark.wide
async def test_what_the_server_refuses_is_in_the_status_and_in_an_event(world: World) -> None:
    """Five tries, five seconds apart, as upstream's."""
    async with world.running_controller(), sftp_server(world.folder / "files") as server:
        for name, wrong, words in (
            ("key", {"hostPublicKey": _base64(new_key().public_data)}, "another host key"),
            ("password", {}, f"the server refuses user '{USER}'"),
        ):
            world.api.put(SECRET, secret(password="wrong-password" if name == "password" else PASSWORD))
            world.collect(name, server.url(), server=wrong)
            await world.complete(name)
            message = f'Failed Agent count: 1, "failed to upload file after 5 attempts":[{NODE}]'
            assert world.conditions(name)[1:] == [
                ("BundleCollected", "False", "", ""),
                ("CollectionFailure", "True", "InternalError", message),
                ("Completed", "True", "", ""),
            ]
            await world.until(
                lambda words=words: any(words in event["message"] for event in world.events()),  # type: ignore[misc]
                "the Event has the server's words",
            )
        assert server.asked == [USER] * 5
        assert world.uploaded() == []
        assert not [path for path in world.files() if b"wrong-password" in path.read_bytes()]


def _before(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - seconds))


def _base64(key: bytes) -> str:
    return base64.b64encode(key).decode()
