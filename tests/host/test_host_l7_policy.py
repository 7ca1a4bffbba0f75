"""L7NetworkPolicy on a Node: rules with application protocols, the agent's flows and effects, the real engine, real requests."""

from __future__ import annotations

import asyncio
import functools
import sys
import time
from typing import TYPE_CHECKING

import pytest
from l7_container import EngineContainer
from l7_node import (
    BOTH,
    PUBLIC,
    PUBLIC_GET,
    SECRET,
    SECRET_GET,
    WEB,
    L7Node,
    files,
    node,
    running,
    stated,
    why,
    why_all,
)
from netdev_switch import until
from policy_node import NODE, NODES

from antrea.apis import controlplane as cp
from antrea.facts.member import AgentNode
from antrea.facts.service import Service, ServiceEndpoint
from antrea.features.l7_network_policy.agent_part import engine as engine_control
from antrea.features.network_policy.agent.received import SentPolicy
from antrea.features.network_policy.agent.rule import L7, PolicyRule
from antrea.features.network_policy.l7.tenant import LoadedTenant

if TYPE_CHECKING:
    from pathlib import Path

    from antrea.features.l7_network_policy.agent_part.files import EngineFiles

__all__ = ["files", "node"]

pytestmark = [pytest.mark.timeout(600), pytest.mark.usefixtures("suricata_root")]
"""The root is made first, which takes minutes on a fresh machine."""
GATEWAYS = ("10.10.0.1", "fd00:10::1")
SERVICE = ("10.96.0.1", "fd00:96::1")
SERVICE_ROWS = (
    AgentNode("n1", NODES, NODES, pod_cidrs=NODE.pod_cidrs),
    Service("shop", "web", SERVICE, (("TCP", 80),), port_names=("http",), node_ports=(0,)),
    *(ServiceEndpoint(f"shop/web-{version}", "shop/web", "http", "TCP", ip, 80, "n1", True, True, False)
      for version, ip in zip((4, 6), WEB, strict=True)),
)  # fmt: skip
NO_REQUEST = {
    "DNS over TCP": [[(b"\x00\x1d" + b"\xab" * 29).hex()]],
    "TLS": [[(b"\x16\x03\x01\x00\x05" + b"\x01" * 5).hex()]],
}


@pytest.mark.parametrize("direction", ["In", pytest.param("Out", marks=pytest.mark.wide)])
async def test_requests_are_judged_and_nothing_passes_without_an_engine(
    node: L7Node, files: EngineFiles, tmp_path: Path, direction: str
) -> None:
    async with running(node, files, tmp_path):
        node.facts.put(stated(direction, PUBLIC))
        await node.until(lambda: node.facts.by(PolicyRule, "l7", L7))
        for family in (0, 1):
            await asyncio.to_thread(node.becomes, (0, "silent"), family, PUBLIC_GET)
        assert "not running" in why(node)
        with EngineContainer(files.wanted.parent) as container:
            await node.until(lambda: node.facts.all(LoadedTenant))
            for family in (0, 1):
                await asyncio.to_thread(node.becomes, (1, "open"), family, PUBLIC_GET)
                assert await asyncio.to_thread(node.asked, family, SECRET_GET) == (0, "reset")
                assert await asyncio.to_thread(node.asked, family, BOTH) == (1, "reset")
            assert why(node) == ""
            node.facts.put(stated(direction, SECRET))
            await asyncio.to_thread(node.becomes, (1, "open"), 0, SECRET_GET)
            assert await asyncio.to_thread(node.asked, 0, PUBLIC_GET) == (0, "reset")
            await asyncio.to_thread(container.crash)
            await asyncio.to_thread(node.becomes, (1, "open"), 0, SECRET_GET)
            node.facts.drop(SentPolicy, f"p-{direction}")
            for exchanges in (PUBLIC_GET, SECRET_GET):
                await asyncio.to_thread(node.becomes, (1, "open"), 0, exchanges)


@pytest.mark.parametrize("direction", ["In", pytest.param("Out", marks=pytest.mark.wide)])
async def test_what_is_no_request_to_a_service_is_reset(
    node: L7Node, files: EngineFiles, tmp_path: Path, direction: str
) -> None:
    for row in SERVICE_ROWS:
        node.facts.put(row)
    gateway = node.mac_of("antrea-gw0")
    for address in GATEWAYS:
        node.netns.sh(f"ip neigh replace {address} lladdr {gateway} dev eth0", node.pods["near"])
    async with running(node, files, tmp_path):
        with EngineContainer(files.wanted.parent):
            node.facts.put(stated(direction, PUBLIC))
            await node.until(lambda: node.facts.all(LoadedTenant))
            for family in (0, 1):
                await asyncio.to_thread(node.becomes, (1, "open"), family, PUBLIC_GET)
                asked = functools.partial(node.asked, family, to=SERVICE)
                assert await asyncio.to_thread(asked, PUBLIC_GET) == (1, "open")
                assert await asyncio.to_thread(asked, BOTH) == (1, "reset")
                for exchanges in NO_REQUEST.values():
                    assert await asyncio.to_thread(asked, exchanges) == (0, "reset")
                slowly = [[one.encode().hex() for one in "GET /public/x HTTP/1.1\r\nHost: a\r\n\r\n"]]
                assert await asyncio.to_thread(asked, slowly) == (1, "open")


MEGABYTE = 1_000_000
BODY = f"GET /public/x HTTP/1.1\r\nHost: a\r\nContent-Length: {MEGABYTE}\r\n\r\n" + "b" * MEGABYTE
HEADS = (
    f"GET /public/{'p' * MEGABYTE} HTTP/1.1\r\nHost: a\r\n\r\n",
    f"GET /public/x HTTP/1.1\r\nHost: a\r\nX: {'h' * MEGABYTE}\r\n\r\n",
)


@pytest.mark.wide
async def test_requests_of_a_megabyte_and_an_engine_that_hangs(
    node: L7Node, files: EngineFiles, tmp_path: Path
) -> None:
    """What is allowed passes however long its body is, a head that is longer than the engine takes does not."""
    async with running(node, files, tmp_path):
        with EngineContainer(files.wanted.parent) as container:
            node.facts.put(stated("In", PUBLIC))
            await node.until(lambda: node.facts.all(LoadedTenant))
            await asyncio.to_thread(node.becomes, (1, "open"), 0, PUBLIC_GET)
            for family in (0, 1):
                assert await asyncio.to_thread(node.asked, family, [[BODY.encode().hex()]]) == (1, "open")
                for head in HEADS:
                    count, _ = await asyncio.to_thread(node.asked, family, [[head.encode().hex()]], 2)
                    assert count == 0
                assert await asyncio.to_thread(node.asked, family, PUBLIC_GET) == (1, "open")
            with container.stopped():
                assert await asyncio.to_thread(node.asked, 0, PUBLIC_GET, 2) == (0, "silent")
                await node.until(lambda: "does not answer" in why(node))
                assert await asyncio.to_thread(node.asked, 1, PUBLIC_GET, 2) == (0, "silent")
            await node.until(lambda: why(node) == "")
            await asyncio.to_thread(node.becomes, (1, "open"), 0, PUBLIC_GET)


KEEPING = """
import socket, sys, time
with socket.create_connection((sys.argv[1], 80), timeout=20) as peer:
    try:
        while True:
            peer.sendall(b"GET /public/x HTTP/1.1\\r\\nHost: a\\r\\n\\r\\n")
            print("answered" if b"200 OK" in peer.recv(4096) else "closed", flush=True)
            time.sleep(0.1)
    except ConnectionError:
        print("reset", flush=True)
"""


@pytest.mark.wide
async def test_a_connection_of_before_a_change_is_judged_by_the_change_a_little_later(
    node: L7Node, files: EngineFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """New ones are at once."""
    monkeypatch.setattr(engine_control, "OVERLAP", overlap := 4.0)
    async with running(node, files, tmp_path):
        with EngineContainer(files.wanted.parent):
            node.facts.put(stated("In", PUBLIC))
            await node.until(lambda: node.facts.all(LoadedTenant))
            await asyncio.to_thread(node.becomes, (1, "open"), 0, PUBLIC_GET)
            words = ["ip", "netns", "exec", node.pods["near"], sys.executable, "-c", KEEPING, WEB[0]]
            kept = await asyncio.create_subprocess_exec(*words, stdout=asyncio.subprocess.PIPE)
            assert kept.stdout is not None
            assert await kept.stdout.readline() == b"answered\n"
            changed = time.monotonic()
            node.facts.put(stated("In", SECRET))
            await asyncio.to_thread(node.becomes, (0, "reset"), 0, PUBLIC_GET)
            async with asyncio.timeout(60):
                *found, last = (await kept.stdout.read()).splitlines()
            assert time.monotonic() - changed >= overlap
            assert ({*found}, last) == ({b"answered"}, b"reset")
            await kept.wait()
            await node.until(lambda: len(node.facts.all(LoadedTenant)) == 1)
            assert await asyncio.to_thread(node.asked, 0, SECRET_GET) == (1, "open")


ALL = (cp.L7Protocol(http=cp.HTTPProtocol(method="GET", path="/*")),)


async def test_a_connection_that_two_rules_allow_is_judged_by_both(
    node: L7Node, files: EngineFiles, tmp_path: Path
) -> None:
    async with running(node, files, tmp_path):
        with EngineContainer(files.wanted.parent):
            node.facts.put(stated("In", PUBLIC))
            node.facts.put(stated("Out", ALL))
            await node.until(lambda: len(node.facts.all(LoadedTenant)) == len(("In", "Out")))
            for narrow, wide in (("In", "Out"), ("Out", "In")):
                node.facts.put(stated(narrow, PUBLIC))
                node.facts.put(stated(wide, ALL))
                await asyncio.to_thread(node.becomes, (0, "reset"), 0, SECRET_GET)
                await node.until(lambda: why_all(node) == {""})
                for family in (0, 1):
                    assert await asyncio.to_thread(node.asked, family, PUBLIC_GET) == (1, "open")
                    assert await asyncio.to_thread(node.asked, family, BOTH) == (1, "reset")
            node.facts.put(stated("In", SECRET))
            await asyncio.to_thread(node.becomes, (0, "reset"), 0, PUBLIC_GET)
            assert await asyncio.to_thread(node.asked, 0, SECRET_GET) == (0, "reset")
            node.facts.drop(SentPolicy, "p-In")
            await asyncio.to_thread(node.becomes, (1, "open"), 0, PUBLIC_GET)
            assert await asyncio.to_thread(node.asked, 0, SECRET_GET) == (0, "reset")


LATE_SERVER = """
import asyncio, pathlib
async def serve(reader, writer):
    answer = b"HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\n\\r\\nok"
    while head := await reader.readuntil(b"\\r\\n\\r\\n"):
        if b"/public/late" in head:
            pathlib.Path("FOLDER/asked").touch()
            while not pathlib.Path("FOLDER/answer").exists():
                await asyncio.sleep(0.02)
        writer.write(answer)
async def main():
    server = await asyncio.start_server(serve, None, 8080)
    print("listening", flush=True)
    await server.serve_forever()
asyncio.run(main())
"""
"""Answers one request only when it is told to."""
LATE_CLIENT = """
import socket, sys
with socket.create_connection((sys.argv[1], 8080), timeout=30) as peer:
    for path in ("x", "late", "../secret"):
        try:
            peer.sendall(f"GET /public/{path} HTTP/1.1\\r\\nHost: a\\r\\n\\r\\n".encode().replace(b"/public/..", b""))
            print("answered" if b"200 OK" in peer.recv(4096) else "closed", flush=True)
        except OSError as no:
            print(type(no).__name__, flush=True)
            break
"""


@pytest.mark.parametrize(
    ("family", "follows"),
    [
        (0, False),
        pytest.param(1, False, marks=pytest.mark.wide),
        pytest.param(0, True, marks=pytest.mark.wide),
        (1, True),
    ],
)
async def test_a_connection_of_a_rule_that_is_gone_is_judged_by_another_though_its_server_sends_next(
    node: L7Node, files: EngineFiles, tmp_path: Path, family: int, follows: bool
) -> None:
    """It does not pass for one that the server began; `follows`: nor does the VLAN of its rule go to a rule that comes then."""
    async with running(node, files, tmp_path):
        server = LATE_SERVER.replace("FOLDER", str(tmp_path))
        with EngineContainer(files.wanted.parent), node.serving(node.pods["web"], server):
            node.facts.put(stated("In", PUBLIC))
            await node.until(lambda: node.facts.all(LoadedTenant))
            await asyncio.to_thread(node.becomes, (1, "open"), 0, PUBLIC_GET)
            words = ["ip", "netns", "exec", node.pods["near"], sys.executable, "-c", LATE_CLIENT, WEB[family]]
            client = await asyncio.create_subprocess_exec(*words, stdout=asyncio.subprocess.PIPE)
            assert client.stdout is not None
            assert await client.stdout.readline() == b"answered\n"
            await asyncio.to_thread(until, (tmp_path / "asked").exists, "second request at the server")
            (old,) = {row.vlan for row in node.facts.all(LoadedTenant)}
            node.facts.put(stated("In", PUBLIC, name="other"))
            node.facts.drop(SentPolicy, "p-In")
            await node.until(lambda: old not in {row.vlan for row in node.facts.all(LoadedTenant)})
            if follows:
                node.facts.put(stated("In", PUBLIC, name="third"))
                await node.until(lambda: len(node.facts.all(LoadedTenant)) == len(("other", "third")))
                assert old not in {row.vlan for row in node.facts.all(LoadedTenant)}
            (tmp_path / "answer").touch()
            said = (await asyncio.wait_for(client.stdout.read(), 60)).split()
            await client.wait()
            assert b"answered" not in said[1:], said
            assert said[-1] != b"answered", said
            await asyncio.to_thread(node.becomes, (0, "reset"), family, SECRET_GET)
            await asyncio.to_thread(node.becomes, (1, "open"), family, PUBLIC_GET)


LEFT_CLIENT = """
import socket, sys
with socket.create_connection((sys.argv[1], 80), timeout=20) as peer:
    for path in ("public/x", "secret"):
        try:
            peer.sendall(f"GET /{path} HTTP/1.1\\r\\nHost: a\\r\\n\\r\\n".encode())
            print("answered" if b"200 OK" in peer.recv(4096) else "closed", flush=True)
        except OSError as no:
            print(type(no).__name__, flush=True)
            break
        sys.stdin.readline()
"""
"""Sends its second request when it is told to."""


async def test_an_engine_that_ends_as_a_rule_goes_lets_no_request_of_its_connections_pass(
    node: L7Node, files: EngineFiles, tmp_path: Path
) -> None:
    """Beside another rule, whose tenant the next engine starts with; in both families."""
    pipe = asyncio.subprocess.PIPE
    async with running(node, files, tmp_path):
        with EngineContainer(files.wanted.parent) as container:
            node.facts.put(stated("In", PUBLIC))
            await node.until(lambda: node.facts.all(LoadedTenant))
            clients = []
            for family in (0, 1):
                await asyncio.to_thread(node.becomes, (1, "open"), family, PUBLIC_GET)
                words = [
                    "ip",
                    "netns",
                    "exec",
                    node.pods["near"],
                    sys.executable,
                    "-c",
                    LEFT_CLIENT,
                    WEB[family],
                ]
                client = await asyncio.create_subprocess_exec(*words, stdin=pipe, stdout=pipe)
                assert client.stdout is not None
                assert await client.stdout.readline() == b"answered\n"
                clients.append(client)
            (old,) = {row.vlan for row in node.facts.all(LoadedTenant)}
            node.facts.put(stated("In", PUBLIC, name="other"))
            await node.until(lambda: len(node.facts.all(LoadedTenant)) == 2)
            before = container.crash_only()
            node.facts.drop(SentPolicy, "p-In")
            await node.until(lambda: container.engine() not in (0, before))
            await node.until(lambda: old not in {row.vlan for row in node.facts.all(LoadedTenant)} != set())
            for client in clients:
                said, _ = await asyncio.wait_for(client.communicate(b"\n\n"), 60)
                assert b"answered" not in said, said
            for family in (0, 1):
                await asyncio.to_thread(node.becomes, (1, "open"), family, PUBLIC_GET)
