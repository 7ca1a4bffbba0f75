"""The CNI server as far as it goes without a switch: who is answered what, and who may serve."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import socket
import stat
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from antrea.agent.cni import server as cni_server
from antrea.agent.cni.context import CniContext
from antrea.agent.cni.pod_port import OvsPodPorts
from antrea.agent.cni.server import CniServer, probe
from antrea.errors import Invalid, Unavailable
from antrea.facts.node import ThisNode
from antrea.outside.http.liveness_probe import LivenessProbe
from antrea.outside.netlink.netns import NetnsWorker
from antrea.outside.ovsdb.client import WATCHED, Ovsdb

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from antrea.facts.ovs import PodInterface

NODE = ThisNode(name="node-1", pod_cidrs=("10.244.1.0/30",))
CONFIG = {"cniVersion": "1.1.0", "name": "antrea", "type": "antrea", "ipam": {"type": "host-local"}}


async def settle(pod: PodInterface) -> None:
    raise Unavailable(f"engine for {pod.name}")


async def covered(pod: str, uid: str) -> None:
    """Nobody gets so far."""
    raise Unavailable(f"word on {pod} {uid}")


class Bench:
    """A server of a Node whose OVSDB is away."""

    def __init__(self, directory: Path, worker: NetnsWorker) -> None:
        self.node: ThisNode | None = NODE
        self.bug: Exception | None = None
        self.missing = ""
        self.ready = asyncio.Event()
        self.path = directory / "run" / "cni.sock"
        self.ipam = directory / "ipam"
        context = CniContext(
            OvsPodPorts(Ovsdb(directory / "no.sock", WATCHED), "br-int"),
            worker,
            node=self._known,
            settle=settle,
            covered=covered,
            ipam_directory=self.ipam,
        )
        self.server = CniServer(
            context, self.ready, self.path, waits_for=lambda: self.missing, ready_seconds=0.01
        )

    def _known(self) -> ThisNode | None:
        if self.bug:
            raise self.bug
        return self.node

    async def ask(
        self, command: str, config: dict[str, Any] | None = None, **changes: Any
    ) -> tuple[int, str]:
        """(code, msg) of the answer; (-1, what is printed) for success"""
        request = {
            "api": 1,
            "command": command,
            "containerId": "c1",
            "netns": "/var/run/netns/gone",
            "ifName": "eth0",
            "args": "K8S_POD_NAMESPACE=default;K8S_POD_NAME=web" if command == "ADD" else "",
            "config": json.dumps(CONFIG | (config or {})),
        }
        octets = await self.server.answer(json.dumps(request | changes).encode() + b"\n")
        assert octets.endswith(b"\n")
        if octets[:1] == b"0":
            return -1, octets[1:-1].decode()
        error = msgspec.json.decode(octets[1:])
        assert error["cniVersion"] == "1.1.0"
        return error["code"], error["msg"]


@pytest.fixture
def bench() -> Iterator[Bench]:
    worker = NetnsWorker()
    with tempfile.TemporaryDirectory(prefix="cni-") as directory:
        yield Bench(Path(directory), worker)
    worker.close()


async def test_add_waits_for_the_network_and_then_for_a_pod_cidr(bench: Bench) -> None:
    assert await bench.ask("ADD") == (11, "The network of this Node is not ready after 0.01 s")
    bench.ready.set()
    assert await bench.ask("ADD") == (3, "Network namespace /var/run/netns/gone does not exist")
    bench.node = None
    no_cidr = (11, "This Node has no podCIDR yet, so its Pods cannot get addresses")
    assert await bench.ask("ADD") == no_cidr
    bench.node = msgspec.structs.replace(NODE, pod_cidrs=())
    assert await bench.ask("ADD") == no_cidr
    bench.node = msgspec.structs.replace(NODE, pod_cidrs=("10.244.1.0/32",))
    code, msg = await bench.ask("ADD", netns="/proc/self/ns/net")
    assert (code, "too small" in msg) == (101, True)


async def test_add_says_what_the_network_waits_for_when_it_gives_up(bench: Bench) -> None:
    bench.missing = "podCIDR of Node node-1"
    assert await bench.ask("ADD") == (
        11,
        "The network of this Node is not ready after 0.01 s: it waits for podCIDR of Node node-1",
    )


async def test_status_is_ready_or_says_what_is_missing(bench: Bench) -> None:
    not_ready = (50, "The network of this Node is not ready")
    assert await bench.ask("STATUS") == not_ready
    bench.ready.set()
    assert await bench.ask("STATUS") == (
        51,
        f"Not available now: no connection to OVSDB at {bench.path.parent.parent / 'no.sock'}",
    )
    bench.node = None
    assert await bench.ask("STATUS") == not_ready


async def test_del_of_the_unknown_succeeds_and_gives_back_its_address(bench: Bench) -> None:
    bench.ipam.mkdir()
    (bench.ipam / "10.244.1.2").write_text("c1\r\neth0")
    assert await bench.ask("DEL", netns="") == (-1, "")
    assert await bench.ask("DEL", netns="") == (-1, "")
    assert not (bench.ipam / "10.244.1.2").exists()


async def test_check_of_the_unknown_and_without_a_result(bench: Bench) -> None:
    assert await bench.ask("CHECK") == (7, "CHECK needs prevResult, the result of ADD")
    result = {"interfaces": [{"name": "eth0", "sandbox": "/var/run/netns/a"}]}
    assert await bench.ask("CHECK", {"prevResult": result}) == (
        7,
        "prevResult does not match network configuration",
    )
    assert await bench.ask("CHECK", {"prevResult": result}, netns="/var/run/netns/a") == (
        3,
        "Container c1 has no interface eth0 on this Node",
    )


async def test_gc_gives_back_the_addresses_of_all_others(bench: Bench) -> None:
    bench.ipam.mkdir()
    for number in (1, 2):
        (bench.ipam / f"10.244.1.{number}").write_text(f"c{number}\r\neth0")
    assert await bench.ask("GC") == (7, "GC needs cni.dev/valid-attachments")
    valid = {"cni.dev/valid-attachments": [{"containerID": "c1", "ifname": "eth0"}]}
    assert await bench.ask("GC", valid) == (-1, "")
    assert {path.name for path in bench.ipam.iterdir()} == {"10.244.1.1", "lock"}


async def test_reconcile_touches_nothing_without_a_complete_list(bench: Bench) -> None:
    bench.ipam.mkdir()
    (bench.ipam / "10.244.1.2").write_text("c1\r\neth0")
    await bench.server.reconcile(None)
    assert (bench.ipam / "10.244.1.2").exists()
    await bench.server.reconcile(())
    assert not (bench.ipam / "10.244.1.2").exists()


async def test_a_bug_is_an_answer_too(bench: Bench) -> None:
    bench.bug = KeyError("web")
    assert await bench.ask("DEL") == (0, "Unexpected error in antrea-agent: KeyError('web')")


async def until(true: Callable[[], bool]) -> None:
    """Let the loop go on until a condition holds."""
    async with asyncio.timeout(30):
        while not true():  # noqa: ASYNC110 (there is no event)
            await asyncio.sleep(0.001)


@contextlib.asynccontextmanager
async def serving(bench: Bench) -> AsyncIterator[None]:
    task = asyncio.create_task(bench.server.run())
    await until(bench.path.is_socket)
    yield
    task.cancel()
    await asyncio.wait([task])
    assert not bench.path.exists()


async def test_a_request_over_the_socket_is_answered_once_and_the_socket_is_roots_alone(bench: Bench) -> None:
    async with serving(bench):
        assert stat.S_IMODE(bench.path.stat().st_mode) == 0o600
        reader, writer = await asyncio.open_unix_connection(bench.path)
        writer.write(b'{"api":1,\n')
        assert json.loads((await reader.read())[1:])["code"] == 6
        writer.close()


async def test_a_request_that_is_too_long_or_does_not_end_is_dropped(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cni_server, "REQUEST_LIMIT", 100)
    monkeypatch.setattr(cni_server, "REQUEST_SECONDS", 0.01)
    async with serving(bench):
        for octets in (b"x" * 1000, b"{", b""):
            reader, writer = await asyncio.open_unix_connection(bench.path)
            writer.write(octets)
            with contextlib.suppress(ConnectionResetError):
                assert await reader.read() == b""
            writer.close()


async def test_two_agents_cannot_serve_one_socket_and_a_stale_one_is_replaced(bench: Bench) -> None:
    async with serving(bench):
        with pytest.raises(Unavailable, match="another antrea-agent of this Node serves it"):
            await bench.server.run()
        assert bench.path.exists()
    bench.path.touch()
    async with serving(bench):
        assert bench.path.is_socket()


async def test_a_socket_path_that_cannot_be_is_the_users_mistake(bench: Bench) -> None:
    bench.server._path = Path("/proc/cni.sock")
    with pytest.raises(Invalid, match=r"cniSocket: cannot listen on /proc/cni.sock"):
        await bench.server.run()


async def test_a_server_that_hears_no_plugin_says_so(bench: Bench) -> None:
    answered: list[str] = []

    async def ask() -> None:
        await probe(bench.path, 0.1 if answered else 30.0)
        answered.append(bench.server.trouble)

    bench.server._liveness = LivenessProbe("it", ask, period=0.01)
    async with serving(bench):
        await until(lambda: answered != [])
        asyncio.get_running_loop().remove_reader(door_of(bench.path))
        await until(lambda: bench.server.trouble != "")
        assert answered[0] == ""
        assert bench.server.trouble == f"{bench.path} has not answered for 0.1 s"


def door_of(path: Path) -> int:
    """The descriptor on which the server of this process listens."""
    for number in [int(entry.name) for entry in Path("/proc/self/fd").iterdir()]:
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(number)) as found:
            if found.getsockname() == str(path) and found.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                return number
    raise LookupError(path)


async def test_a_call_that_nobody_ends_is_trouble(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(bench):
        reader, writer = await asyncio.open_unix_connection(bench.path)
        await until(lambda: bool(bench.server._serving))
        assert bench.server.trouble == ""
        monkeypatch.setattr(cni_server, "CALL_SECONDS", 0.0)
        assert re.fullmatch(r"1 CNI calls are not answered, the oldest for \d+ s", bench.server.trouble)
        writer.close()
        assert await reader.read() == b""
