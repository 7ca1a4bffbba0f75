"""What judgement of requests costs, in figures: `python -m benchmarks.l7_policy` prints them (docs/benchmarks.md)."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest
from figure import Against, show
from l7_container import EngineContainer
from l7_node import GATES, PUBLIC, WEB, L7Node, NoPorts, control_of, files, node, stated
from policy_node import CONFIG

from antrea.apis import controlplane as cp
from antrea.engine import Facts
from antrea.features.l7_network_policy.agent_part.engine import L7EngineControl
from antrea.features.network_policy.agent.received import SentAppliedMember, SentPolicy
from antrea.features.network_policy.l7.rules import signatures
from antrea.features.network_policy.l7.tenant import LoadedTenant, Tenant
from antrea.host.ovs_port import Port

if TYPE_CHECKING:
    from antrea.features.l7_network_policy.agent_part.files import EngineFiles

__all__ = ["files", "node"]
pytestmark = [pytest.mark.wide, pytest.mark.timeout(900), pytest.mark.usefixtures("suricata_root")]
ROUNDS, REQUESTS, OCTETS, TENANTS = 5, 3000, 30_000_000, 50
SERVER = f"""
import asyncio
BIG = b"HTTP/1.1 200 OK\\r\\nContent-Length: {OCTETS}\\r\\n\\r\\n" + b"x" * {OCTETS}
class Serve(asyncio.Protocol):
    def connection_made(self, transport):
        self.transport = transport
    def data_received(self, data):
        for head in data.split(b"\\r\\n\\r\\n")[:-1]:
            self.transport.write(BIG if b"/big" in head else b"HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\n\\r\\nok")
async def main():
    server = await asyncio.get_running_loop().create_server(Serve, None, 80)
    print("listening", flush=True)
    await server.serve_forever()
asyncio.run(main())
"""
ASK = """
import json, socket, sys, time
to, count, octets = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
with socket.create_connection((to, 80), timeout=30) as peer:
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    times = []
    for _ in range(count):
        begin = time.perf_counter()
        peer.sendall(b"GET /public/x HTTP/1.1\\r\\nHost: a\\r\\n\\r\\n")
        got = b""
        while not got.endswith(b"ok"):
            got += peer.recv(4096)
        times.append(time.perf_counter() - begin)
    begin, left = time.perf_counter(), octets
    peer.sendall(b"GET /public/big HTTP/1.1\\r\\nHost: a\\r\\n\\r\\n")
    while left > 0:
        left -= len(peer.recv(1 << 20))
    took = time.perf_counter() - begin
times.sort()
print(json.dumps([count / sum(times), times[int(count * 0.99)] * 1000, octets * 8 / took / 1e6]))
"""
"""Prints requests a second on one connection, their p99 in ms, and Mbit/s of one response."""
LOOP = """
import socket, sys, time
to, until = sys.argv[1], time.monotonic() + float(sys.argv[2])
asked = lost = 0
while time.monotonic() < until:
    asked += 1
    try:
        with socket.create_connection((to, 80), timeout=5) as peer:
            peer.sendall(b"GET /public/x HTTP/1.1\\r\\nHost: a\\r\\n\\r\\n")
            if b"200 OK" not in peer.recv(4096):
                lost += 1
                print("closed", time.monotonic() - until, file=sys.stderr)
    except OSError as no:
        lost += 1
        print(no, time.monotonic() - until, file=sys.stderr)
print(asked, lost)
"""


def measured(node: L7Node) -> list[float]:
    words = [
        "ip",
        "netns",
        "exec",
        node.pods["near"],
        sys.executable,
        "-c",
        ASK,
        WEB[0],
        str(REQUESTS),
        str(OCTETS),
    ]
    node.switch.revalidate()
    found: list[float] = json.loads(
        subprocess.run(words, capture_output=True, text=True, check=True, timeout=300).stdout
    )
    return found


async def test_requests_through_the_engine_and_without_it(node: L7Node, files: EngineFiles) -> None:
    for pod in ("near", "web"):
        node.facts.put(
            SentAppliedMember(pod, cp.GroupMember(pod=cp.PodReference(name=pod, namespace="shop")))
        )
    control = control_of(node, files)
    both: dict[str, list[list[float]]] = {"direct": [], "inspected": []}
    async with node.agent(CONFIG, *GATES, sinks={Tenant: control, Port: NoPorts()}):
        task = asyncio.create_task(control.run(node.facts))
        with node.serving(node.pods["web"], SERVER), EngineContainer(files.wanted.parent):
            for _ in range(ROUNDS):
                both["direct"].append(await asyncio.to_thread(measured, node))
                node.facts.put(stated("In", PUBLIC))
                await node.until(lambda: node.facts.all(LoadedTenant))
                await asyncio.to_thread(
                    node.becomes, (1, "open"), 0, [[b"GET /public/x HTTP/1.1\r\nHost: a\r\n\r\n".hex()]]
                )
                both["inspected"].append(await asyncio.to_thread(measured, node))
                node.facts.drop(SentPolicy, "p-In")
                await node.until(lambda: not node.facts.all(LoadedTenant))
            for number, (name, unit) in enumerate(
                (("requests", "1/s"), ("request_p99", "ms"), ("response", "Mbit/s"))
            ):
                direct = tuple(one[number] for one in both["direct"])
                show(
                    f"l7_{name}",
                    unit,
                    [one[number] for one in both["inspected"]],
                    against=Against("direct", direct),
                )
            node.facts.put(stated("In", PUBLIC))
            await node.until(lambda: node.facts.all(LoadedTenant))
            await asyncio.to_thread(
                node.becomes, (1, "open"), 0, [[b"GET /public/x HTTP/1.1\r\nHost: a\r\n\r\n".hex()]]
            )
            words = ["ip", "netns", "exec", node.pods["near"], sys.executable, "-c", LOOP, WEB[0], "22"]
            loop = await asyncio.create_subprocess_exec(*words, stdout=asyncio.subprocess.PIPE)
            for number in range(8):
                await asyncio.sleep(1)  # the changes are spread over the loop
                more = cp.L7Protocol(http=cp.HTTPProtocol(method="GET", path=f"/version/{number}"))
                node.facts.put(stated("In", (*PUBLIC, more)))
            asked, lost = map(int, (await loop.communicate())[0].split())
            show(f"l7_lost_of_{asked}_while_the_rule_changes_8_times", "requests", [lost], target=0)
            assert lost == 0, asked
        task.cancel()


async def test_fifty_rules_after_a_start_of_the_engine_and_of_the_agent(
    node: L7Node, files: EngineFiles
) -> None:
    wanted = [
        Tenant(rule=f"r{vlan}", version=f"r{vlan} v", vlan=vlan, signatures=signatures(PUBLIC, logs=False))
        for vlan in range(1, TENANTS + 1)
    ]
    assert node.facts

    async def enforced() -> float:
        facts = Facts()

        async def forget(_: int) -> None:
            """There are no connections."""

        async def never(_: int) -> bool:
            return False

        control = L7EngineControl(facts, files, forget, never)
        begin = time.perf_counter()
        task = asyncio.create_task(control.run(facts))
        await control.resync(wanted)
        async with asyncio.timeout(60):
            while True:
                for _ in facts.drain():
                    pass
                if len(facts.all(LoadedTenant)) == TENANTS:
                    break
                await asyncio.sleep(0.01)
        task.cancel()
        return time.perf_counter() - begin

    with EngineContainer(files.wanted.parent):
        show(f"l7_{TENANTS}_rules_with_the_engine_s_start", "s", [await enforced()], target=3)
        show(
            f"l7_{TENANTS}_rules_after_a_start_of_the_agent",
            "s",
            [await enforced() for _ in range(ROUNDS)],
            target=3,
        )
