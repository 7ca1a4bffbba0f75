"""Support bundles: what is collected, what is kept out, how long it lasts and how it fails."""

from __future__ import annotations

import asyncio
import hashlib
import io
import json
import os
import re
import tarfile
import time
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp
from aiohttp import web
from loopback import answering

from antrea.features.registry.api_resources import SUPPORT_BUNDLES
from antrea.outside.apiserver.attributes import attributes
from antrea.outside.apiserver.objects import Objects
from antrea.outside.apiserver.server import answer
from antrea.outside.apiserver.status import ApiError
from antrea.outside.support_bundle import server as support_bundle
from antrea.outside.support_bundle.plan import Command, Limits, Logs, Made, Order
from antrea.outside.support_bundle.program import make
from antrea.outside.support_bundle.server import SupportBundles

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    import pytest

GROUP = "/apis/system.antrea.io/v1beta1/supportbundles"


def files(data: bytes) -> dict[str, str]:
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:gz") as archive:
        return {entry.name: archive.extractfile(entry).read().decode() for entry in archive}  # type: ignore[union-attr]


def bundle(tmp_path: Path, **parts: Any) -> dict[str, str]:
    """What a bundle of these parts holds."""
    parts.setdefault("limits", Limits(free_bytes=0))
    target = tmp_path / "b.tar.gz"
    target.unlink(missing_ok=True)
    made = make(Order(str(target), **parts))
    data = target.read_bytes()
    assert made == Made(hashlib.sha256(data).hexdigest(), len(data))
    return files(data)


def test_a_bundle_holds_documents_command_output_and_logs(tmp_path: Path) -> None:
    logs = tmp_path / "log/openvswitch"
    logs.mkdir(parents=True)
    (tmp_path / "log/antrea-agent.n1.root.log.INFO.20261101-000000.1").write_text(
        "I1101 00:00:00.1 a.py:1] x\n"
    )
    (tmp_path / "log/antrea-agent.INFO").symlink_to("antrea-agent.n1.root.log.INFO.20261101-000000.1")
    (tmp_path / "log/other.log").write_text("not ours")
    (logs / "ovs-vswitchd.log").write_text("2026-11-01T00:00:00.000Z|00001|x\n")
    found = bundle(
        tmp_path,
        documents={"agentinfo": {"version": "v1", "nodeRef": {"name": "n1"}}, "stacks": "a\nb"},
        commands=(Command("route", ("echo", "default via 10.0.0.1")), Command("environment", ("sh", "-c", "echo $X"), {"X": "y"})),
        logs=(Logs("logs/agent", str(tmp_path / "log"), "antrea-agent"), Logs("logs/ovs", str(tmp_path / "log"), "ovs")),
    )  # fmt: skip
    assert found == {
        "agentinfo": "nodeRef:\n  name: n1\nversion: v1\n",
        "stacks": "a\nb\n",
        "route": "default via 10.0.0.1\n",
        "environment": "y\n",
        "logs/agent/antrea-agent.n1.root.log.INFO.20261101-000000.1": "I1101 00:00:00.1 a.py:1] x\n",
        "logs/ovs/ovs-vswitchd.log": "2026-11-01T00:00:00.000Z|00001|x\n",
        "bundleinfo": "everything was collected\n",
    }


def test_a_bundle_names_what_it_lacks(tmp_path: Path) -> None:
    found = bundle(
        tmp_path,
        commands=(
            Command("ipset", ("no-such-program-here", "save")),
            Command("broken", ("sh", "-c", "echo half; echo no password=hunter2 >&2; exit 3")),
            Command("large", ("seq", "1000000")),
        ),
        limits=Limits(free_bytes=0, piece_bytes=1000),
    )
    assert found.pop("bundleinfo").splitlines() == [
        "ipset: no-such-program-here is not installed",
        "broken: exit status 3. no password=<redacted>",
        "large: cut off at its limit of bytes",
    ]
    assert len(found.pop("large")) <= 1000
    assert found == {"broken": "half\n"}


def test_a_bundle_has_what_a_slow_command_said_in_time(tmp_path: Path) -> None:
    slow = Command("slow", ("sh", "-c", "echo first; exec sleep 60"))
    found = bundle(tmp_path, commands=(slow,), limits=Limits(free_bytes=0, command_seconds=2))
    assert found == {"slow": "first\n", "bundleinfo": "slow: cut off after 2 s.\n"}


def test_a_bundle_keeps_the_newest_logs_that_fit(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.mkdir()
    for age, name in enumerate(("new", "middle", "old")):
        (log / f"a.{name}").write_text("".join(f"{name} {number:03}\n" for number in range(100)))
        os.utime(log / f"a.{name}", (time.time() - age * 100,) * 2)
    size = (log / "a.new").stat().st_size
    found = bundle(
        tmp_path, logs=(Logs("logs", str(log), "a"),), limits=Limits(free_bytes=0, log_bytes=size + 55)
    )
    assert found["bundleinfo"].startswith("logs/a.middle: the last 55 of ")
    assert len(found["logs/a.new"].splitlines()) == 100
    assert found["logs/a.middle"].splitlines() == [f"middle {number:03}" for number in range(96, 100)]
    assert "logs/a.old" not in found


def test_a_bundle_since_a_moment_leaves_out_older_lines(tmp_path: Path) -> None:
    now = time.time()
    old, new = (time.strftime("%m%d %H:%M:%S", time.localtime(at)) for at in (now - 900, now))
    universal = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now))
    (tmp_path / "a.klog").write_text(f"head\nI{old}.1 old\n  of it\nE{new}.1 new\n  of it\n")
    (tmp_path / "a.ovs").write_text(f"2020-01-01T00:00:00.000Z|1|old\n{universal}.000Z|2|new\n")
    (tmp_path / "a.stale").write_text("x\n")
    os.utime(tmp_path / "a.stale", (now - 900,) * 2)
    found = bundle(tmp_path, since=now - 300, logs=(Logs("logs", str(tmp_path), "a."),))
    assert found == {
        "logs/a.klog": f"E{new}.1 new\n  of it\n",
        "logs/a.ovs": f"{universal}.000Z|2|new\n",
        "bundleinfo": "everything was collected\n",
    }


def test_a_full_disk_leaves_no_file_and_says_so(tmp_path: Path) -> None:
    target = tmp_path / "b.tar.gz"
    made = make(Order(str(target), documents={"a": "b"}, limits=Limits(free_bytes=1 << 60)))
    assert re.fullmatch(rf"No space left on device: \d+ MiB are free in {tmp_path}", made.why)
    assert list(tmp_path.iterdir()) == []
    assert "No such file" in make(Order(str(tmp_path / "none/b.tar.gz"))).why


async def until(condition: Callable[[], bool]) -> None:
    """Wait for a condition, which has to come true in 60 s."""
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 (of the file system and of processes)
            await asyncio.sleep(0.02)


def runs(pid: str) -> bool:
    """Whether the process is there and no zombie that its parent has not asked for."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


class World:
    """The resource as a server has it, without the server."""

    def __init__(self, folder: Path, order: Callable[[], Order]) -> None:
        async def contents() -> Order:
            return order()

        (folder / "token").write_text("loopback-token-of-this-pod")
        self.folder = folder
        self.bundles = SupportBundles("agent", contents, token_file=folder / "token", folder=folder)
        self.objects = Objects((SUPPORT_BUNDLES,), self.bundles, self.bundles.streams)
        self.url = ""

    async def serve(self, request: web.Request) -> web.StreamResponse:
        try:
            return await self.objects.answer(
                request, attributes(request.method, request.rel_url.raw_path, request.query)
            )
        except ApiError as error:
            return answer(error.status)

    async def call(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        async with (
            aiohttp.ClientSession() as session,
            session.request(method, self.url + path, json=body) as given,
        ):
            data = await given.read()
            return given.status, data if given.content_type == "application/tar+gz" else json.loads(data)

    async def create(self, name: str = "agent", **more: str) -> tuple[int, Any]:
        kind = {"apiVersion": "system.antrea.io/v1beta1", "kind": "SupportBundle"}
        return await self.call("POST", GROUP, {**kind, "metadata": {"name": name}, **more})

    async def ended(self) -> tuple[int, Any]:
        """The status once it is no longer Collecting."""
        deadline = time.monotonic() + 60
        while (found := await self.call("GET", f"{GROUP}/agent"))[1].get("status") == "Collecting":
            assert time.monotonic() < deadline
            await asyncio.sleep(0.02)
        return found

    def left(self) -> list[str]:
        return sorted(path.name for path in self.folder.iterdir() if path.name.startswith("bundle_"))


@asynccontextmanager
async def world(folder: Path, order: Callable[[], Order]) -> AsyncIterator[World]:
    made = World(folder, order)
    async with answering(made.serve) as made.url:
        try:
            yield made
        finally:
            await made.bundles.close()
    assert made.left() == []


def order(**parts: Any) -> Order:
    return Order("", **{"limits": Limits(free_bytes=0), **parts})


async def test_a_support_bundle_is_collected_shown_downloaded_and_deleted(tmp_path: Path) -> None:
    async with world(tmp_path, lambda: order(documents={"a": "b"})) as here:
        assert (await here.call("GET", f"{GROUP}/agent"))[1]["status"] == "None"
        assert (await here.call("GET", f"{GROUP}/agent/download"))[0] == 404
        status, found = await here.create(since="1h")
        assert (status, found["metadata"], found["status"], found["since"]) == (
            201,
            {"name": "agent"},
            "Collecting",
            "1h",
        )
        status, found = await here.ended()
        assert (status, found["status"], found["since"]) == (200, "Collected", "1h")
        created, deleted = (found["metadata"][key] for key in ("creationTimestamp", "deletionTimestamp"))
        form = "%Y-%m-%dT%H:%M:%SZ"
        assert time.mktime(time.strptime(deleted, form)) - time.mktime(time.strptime(created, form)) == 3600
        status, data = await here.call("GET", f"{GROUP}/agent/download")
        assert (status, hashlib.sha256(data).hexdigest(), len(data)) == (200, found["sum"], found["size"])
        assert files(data)["a"] == "b\n"
        (name,) = here.left()
        assert re.fullmatch(r"bundle_\w+\.tar\.gz", name)
        assert (tmp_path / name).stat().st_mode & 0o777 == 0o600
        assert (await here.call("DELETE", f"{GROUP}/agent"))[1]["status"] == "Success"
        assert here.left() == []
        assert (await here.call("GET", f"{GROUP}/agent"))[1]["status"] == "None"


async def test_a_support_bundle_has_one_name_and_a_duration(tmp_path: Path) -> None:
    async with world(tmp_path, order) as here:
        status, found = await here.create("other")
        assert (status, found["message"]) == (
            403,
            'supportbundles.system.antrea.io "other" is forbidden: only resource name "agent" is allowed',
        )
        for method, path in (("GET", "other"), ("DELETE", "other"), ("GET", "other/download")):
            status, found = await here.call(method, f"{GROUP}/{path}")
            assert (status, found["message"]) == (404, 'supportBundle.system.antrea.io "other" not found')
        status, found = await here.create(since="soon")
        assert (status, found["message"]) == (400, "since: 'soon' is not a duration such as 5s or 1m30s")


async def test_a_new_collection_ends_the_one_that_runs(tmp_path: Path) -> None:
    slow = order(commands=(Command("slow", ("sh", "-c", f"echo $$ > {tmp_path}/pid; exec sleep 60")),))
    orders = iter((slow, order(documents={"a": "second"})))
    async with world(tmp_path, lambda: next(orders)) as here:
        await here.create()
        await until(lambda: (tmp_path / "pid").exists() and bool((tmp_path / "pid").read_text().strip()))
        await here.create()
        assert (await here.ended())[1]["status"] == "Collected"
        assert files((await here.call("GET", f"{GROUP}/agent/download"))[1])["a"] == "second\n"
        assert len(here.left()) == 1
        await until(lambda: not runs((tmp_path / "pid").read_text().strip()))


async def test_a_failed_collection_says_why_until_the_next_one(tmp_path: Path) -> None:
    orders = iter((order(limits=Limits(free_bytes=1 << 60)), order()))
    async with world(tmp_path, lambda: next(orders)) as here:
        await here.create()
        status, found = await here.ended()
        assert status == 500
        assert found["message"].startswith(
            "the support bundle could not be collected: No space left on device"
        )
        await here.create()
        assert (await here.ended())[1]["status"] == "Collected"


async def test_what_a_killed_process_left_goes_with_the_next_collection(tmp_path: Path) -> None:
    (tmp_path / "bundle_left.tar.gz").write_text("x")
    async with world(tmp_path, order) as here:
        await here.create()
        await here.ended()
        assert len(here.left()) == 1
        assert "bundle_left.tar.gz" not in here.left()


async def test_a_support_bundle_expires(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hour, real = asyncio.Event(), asyncio.sleep

    async def sleep(seconds: float) -> None:
        await (hour.wait() if seconds == support_bundle.EXPIRE_SECONDS else real(seconds))

    monkeypatch.setattr(asyncio, "sleep", sleep)
    async with world(tmp_path, order) as here:
        await here.create()
        assert (await here.ended())[1]["status"] == "Collected"
        hour.set()
        await until(lambda: not here.left())
        assert (await here.call("GET", f"{GROUP}/agent"))[1]["status"] == "None"


async def test_secrets_of_the_program_and_its_environment_are_not_in_a_bundle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTREA_IPSEC_PSK", "planted-in-environment")
    text = 'I1 x] "a" b="planted-in-environment" c="loopback-token-of-this-pod" password="planted-by-name"\n'
    (tmp_path / "antrea-agent.log").write_text(text)
    parts = order(
        documents={"config": {"password": "planted-by-name"}, "x": text},
        commands=(Command("env", ("env",)), Command("cat", ("cat", str(tmp_path / "token")))),
        logs=(Logs("logs", str(tmp_path), "antrea-agent"),),
    )
    async with world(tmp_path, lambda: parts) as here:
        await here.create()
        await here.ended()
        found = files((await here.call("GET", f"{GROUP}/agent/download"))[1])
    assert found.keys() == {"config", "x", "env", "cat", "logs/antrea-agent.log", "bundleinfo"}
    for planted in ("planted", "loopback-token"):
        assert [name for name, content in found.items() if planted in content] == []
    assert found["x"] == 'I1 x] "a" b="<redacted>" c="<redacted>" password="<redacted>"\n'
