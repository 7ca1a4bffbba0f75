"""The agent's part of SupportBundleCollections: real bundles and a real file server; no switch and no controller."""

from __future__ import annotations

import asyncio
import os
import tarfile
import tempfile
from typing import TYPE_CHECKING, Any, Self

import pytest
from agent_context import agent_context
from sftp_server import PASSWORD, USER, sftp_server

from antrea.apis import controlplane as cp
from antrea.engine import Facts
from antrea.errors import Unavailable
from antrea.features.support_bundle_collection.agent_part import CollectionPart
from antrea.features.support_bundle_collection.task import (
    BundleReport,
    BundleResult,
    BundleTask,
    BundleUpload,
)
from antrea.outside.controlplane.bundle_report_sink import BundleReportSink
from antrea.outside.support_bundle.plan import Limits, Order

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from sftp_server import SftpServer

    from antrea.apis.core import ObjectReference

SAID = f"the operator typed {PASSWORD} into a log"


class Node:
    """A part, what it noted, and the server that it sends to."""

    def __init__(self, server: SftpServer) -> None:
        self.server, self.facts, self.events = server, Facts(), list[str]()
        self.made, self.limits, self.hold = 0, Limits(), asyncio.Event()
        self.hold.set()
        self.part = CollectionPart(agent_context(self.facts, kube=self, bundle=self._contents))
        self.folder = self.part._folder

    async def _contents(self) -> Order:
        self.made += 1
        await self.hold.wait()
        return Order(target=os.devnull, documents={"said": SAID}, limits=self.limits)

    async def create_event(self, about: ObjectReference, reason: str, message: str, **_: Any) -> None:
        self.events.append(f"{about.kind} {about.name}: {reason}: {message}")

    def entry(self, name: str, uid: str = "", url: str = "", **fields: Any) -> BundleUpload:
        pair = cp.BasicAuthentication(username=USER, password=PASSWORD)
        given = cp.BundleServerAuthConfiguration(basic_authentication=pair)
        return BundleUpload(
            BundleTask(
                name,
                uid or f"uid-{name}",
                fields.get("since", ""),
                url or self.server.url(),
                b"",
                given,
                fields.get("any_host_key", True),
            )
        )

    async def result(self, name: str) -> str:
        with self.facts.watch(BundleResult) as changed:
            async with asyncio.timeout(60):
                while (found := self.facts.get(BundleResult, name)) is None:
                    changed.clear()
                    await changed.wait()
        return found.error

    def names(self) -> list[str]:
        """Of the files at the server."""
        return sorted(path.name for path in (self.server.folder / "upload").iterdir())


async def until(true: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not true():  # noqa: ASYNC110 (what is waited for has no event)
            await asyncio.sleep(0.01)


@pytest.fixture
async def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Node]:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    async with sftp_server(tmp_path / "server") as server:
        one = Node(server)
        try:
            yield one
        finally:
            await one.part.close()
            assert [*one.folder.glob("*")] == []


async def test_the_bundle_is_at_the_server_without_the_password_and_gone_here(node: Node) -> None:
    await node.part.apply([node.entry("c", since="2h")], ())
    assert await node.result("c") == ""
    assert node.names() == ["n1_c.tar.gz"]
    with tarfile.open(node.server.folder / "upload/n1_c.tar.gz") as archive:
        file = archive.extractfile("said")
        assert file is not None
        assert file.read() == b"the operator typed <redacted> into a log\n"
    assert [*node.folder.glob("*")] == []


async def test_two_at_once_are_made_one_after_the_other(node: Node) -> None:
    node.hold.clear()
    await node.part.apply([node.entry("a"), node.entry("b")], ())
    await until(lambda: node.made)
    for _ in range(10):
        await asyncio.sleep(0)
    assert node.made == 1
    node.hold.set()
    assert [await node.result("a"), await node.result("b")] == ["", ""]
    assert node.names() == ["n1_a.tar.gz", "n1_b.tar.gz"]


async def test_one_that_is_deleted_ends_and_the_next_one_begins(node: Node) -> None:
    node.hold.clear()
    await node.part.apply([node.entry("a"), node.entry("b")], ())
    await until(lambda: node.made)
    await node.part.apply((), [node.entry("a")])
    node.hold.set()
    assert await node.result("b") == ""
    assert node.names() == ["n1_b.tar.gz"]
    assert node.facts.get(BundleResult, "a") is None


async def test_what_was_sent_is_not_sent_again_when_the_controller_publishes_it_again(node: Node) -> None:
    await node.part.apply([node.entry("c")], ())
    assert await node.result("c") == ""
    await node.part.apply([node.entry("c")], ())
    await node.part.apply((), [node.entry("c")])
    assert node.facts.get(BundleResult, "c") is None
    await node.part.apply([node.entry("c")], ())
    assert await node.result("c") == ""
    assert node.made == 1
    await node.part.apply([node.entry("c", uid="another")], ())
    await until(lambda: node.made == 2)
    assert await node.result("c") == ""


async def test_an_agent_that_was_killed_leaves_no_file(node: Node) -> None:
    node.folder.mkdir(parents=True)
    for name in ("c", "old"):
        (node.folder / f"{name}.tar.gz").write_bytes(b"half of a bundle")
    await node.part.resync([node.entry("c")])
    assert await node.result("c") == ""
    assert [*node.folder.glob("*")] == []
    with tarfile.open(node.server.folder / "upload/n1_c.tar.gz") as archive:
        assert "said" in archive.getnames()


@pytest.mark.parametrize(
    ("fields", "limits", "words"),
    [
        ({"since": "yesterday"}, Limits(), "spec.sinceTime: 'yesterday' is not a duration"),
        ({"any_host_key": False}, Limits(), "fileServer.hostPublicKey: it is empty, so any server"),
        ({"url": "ftp://192.0.2.1/x"}, Limits(), "fileServer.url: not sftp protocol"),
        ({}, Limits(free_bytes=1 << 60), "failed to generate support bundle: No space left on device"),
    ],
)
async def test_what_cannot_be_done_is_reported_in_words(
    node: Node, fields: dict[str, Any], limits: Limits, words: str
) -> None:
    node.limits = limits
    await node.part.apply([node.entry("c", **fields)], ())
    assert (await node.result("c")).startswith(words)
    assert node.names() == []
    assert node.server.asked == []
    if "url" in fields:
        await until(lambda: node.events)
        (event,) = node.events
        assert event.startswith(
            "SupportBundleCollection c: BundleUploadFailed: ftp://192.0.2.1/x: fileServer.url"
        )


class Controller:
    """Takes what is posted, or refuses it."""

    def __init__(self) -> None:
        self.posted: list[tuple[str, dict[str, Any]]] = []

    async def create(self, path: str, body: dict[str, Any]) -> None:
        self.posted.append((path, body))


class Connection:
    controller: Any = None

    def connect(self) -> Self:
        self.controller = Controller()
        return self


async def test_a_report_is_what_upstreams_controller_takes() -> None:
    connection = Connection().connect()
    sink = BundleReportSink(connection)
    await sink.apply([BundleReport("c", "u", "n1", ""), BundleReport("d", "v", "n1", "disk")], ())
    (path, body), (_, failed) = connection.controller.posted
    assert path == "/apis/controlplane.antrea.io/v1beta2/supportbundlecollections/c/status"
    assert body["kind"] == "SupportBundleCollectionStatus"
    assert body["nodes"] == [{"nodeName": "n1", "nodeType": "Node", "completed": True, "error": ""}]
    assert failed["nodes"] == [{"nodeName": "n1", "nodeType": "Node", "completed": False, "error": "disk"}]
    await sink.resync([BundleReport("c", "u", "n1", "")])
    assert len(connection.controller.posted) == 3
    connection.controller = None
    await sink.resync([BundleReport("c", "u", "n1", "")])
    with pytest.raises(Unavailable):
        await sink.apply([BundleReport("c", "u", "n1", "")], ())
