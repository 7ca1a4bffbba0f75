"""Connections of an Egress whose entries are copied go on at the next gateway, which has an entry of each before it has the address."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import copying_gateway
import pytest
from copying_gateway import INSIDE
from datagram_client import DATAGRAM_CLIENT, DATAGRAM_SERVER
from held_connection import CLIENT, SERVER, clients, results

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from conftest import Namespaces

IP = {4: "192.0.2.50", 6: "fd02::50"}
OUTSIDE = {4: "192.0.2.100", 6: "fd02::100"}
GATEWAYS = ("n1", "n2", "n3")
OF_EACH = 20
PORT = 10351
KEY = os.urandom(32).hex()


class Network:
    """Pods, three gateways and a host outside: the gateways translate with ports by chance, as two Pods with one port need it."""

    def __init__(self, netns: Namespaces) -> None:
        self.netns = netns
        self.switches = {side: netns.make() for side in ("inn", "out")}
        for name in self.switches.values():
            netns.sh("ip link add name br0 type bridge; ip link set br0 up", name)
        self.pods = [self._host("inn", 2 + n) for n in range(2)]
        for pod in self.pods:
            netns.sh(f"ip route add default via {INSIDE[4]}; ip -6 route add default via {INSIDE[6]}", pod)
            # both use the same ports, which differ for others
            netns.sh("sysctl -qw net.ipv4.ip_local_port_range='40000 40199'", pod)
        self.outside = self._host("out", 100)
        self.gateways = {name: self._gateway(n) for n, name in enumerate(GATEWAYS, 11)}

    def _host(self, side: str, number: int) -> str:
        name = self.netns.make()
        self.plug(name, side, number)
        return name

    def plug(self, name: str, side: str, number: int) -> None:
        sh, far = self.netns.sh, f"{side}{number}"
        sh(f"ip link add {side} type veth peer name {far} netns {self.switches[side]}", name)
        sh(f"ip link set {far} master br0 up", self.switches[side])
        v4, v6 = ("10.1.0", "fd01") if side == "inn" else ("192.0.2", "fd02")
        sh(f"ip link set {side} up; ip addr add {v4}.{number}/24 dev {side}", name)
        sh(f"ip addr add {v6}::{number}/64 dev {side} nodad; ethtool -K {side} tx off", name)

    def _gateway(self, number: int) -> str:
        name = self._host("inn", number)
        self.plug(name, "out", number)
        sh = self.netns.sh
        sh("sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1", name)
        sh("sysctl -qw net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.default.rp_filter=0", name)
        rules = [f"oifname out ip saddr 10.1.0.0/24 snat to {IP[4]} fully-random"]
        rules.append(f"oifname out ip6 saddr fd01::/64 snat to {IP[6]} fully-random")
        text = "\n".join(f"  {rule}" for rule in rules)
        chain = f"chain post {{ type nat hook postrouting priority srcnat;\n{text}\n }}"
        # as the product does: what a gateway does not know is not reset
        silent = "chain pre { type filter hook input priority 0; tcp dport 10351 accept; tcp sport 10351 accept; ct state { invalid, new } meta l4proto tcp drop; }"
        sh(f"nft -f - <<'N'\ntable inet t {{\n {chain}\n {silent}\n}}\nN", name)
        return name

    def cut(self, gateway: str) -> None:
        self.netns.sh("ip link set inn down; ip link set out down", self.gateways[gateway])


@pytest.fixture
def network(netns: Namespaces) -> Iterator[Network]:
    there = Network(netns)
    with netns.serving(there.outside, SERVER), netns.serving(there.outside, DATAGRAM_SERVER):
        yield there


class Gateway:
    """The program of a gateway, and what it says last."""

    def __init__(self, run: asyncio.subprocess.Process) -> None:
        self.run, self.said = run, {"held": False, "source": "", "whole": [], "full": [], "counts": {}}

        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        assert self.run.stdout
        async for line in self.run.stdout:
            if line.startswith(b"{"):
                self.said = json.loads(line)

    async def end(self) -> None:
        if self.run.returncode is None:
            self.run.kill()
        await self.run.wait()
        await self._reading


@contextlib.asynccontextmanager
async def gateways(network: Network, version: int) -> AsyncIterator[dict[str, Gateway]]:
    program = str(copying_gateway.__file__)
    async with contextlib.AsyncExitStack() as stack:
        found = {}
        for name, space in network.gateways.items():
            words = [sys.executable, program, name, str(PORT), KEY, IP[version]]
            run = await asyncio.create_subprocess_exec(
                *("ip", "netns", "exec", space, *words),
                stdout=-1,
                env={**os.environ, "PYTHONPATH": str(Path.cwd())},
            )
            found[name] = Gateway(run)
            stack.push_async_callback(found[name].end)
        await until(lambda: found["n1"].said["held"])
        yield found


async def until(condition: Any, seconds: float = 30) -> None:
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 (other programs tell nobody)
            await asyncio.sleep(0.02)


def entries(network: Network, gateway: str, version: int) -> int:
    command = f"conntrack -L -f ipv{version} --reply-dst {IP[version]} 2>/dev/null | grep -c ASSURED || true"
    return int(network.netns.sh(command, network.gateways[gateway]))


@pytest.mark.parametrize("version", [4, 6])
async def test_tcp_goes_on_at_the_next_gateway(network: Network, version: int) -> None:
    async with (
        gateways(network, version) as there,
        clients(network.pods, CLIENT, OUTSIDE[version], str(OF_EACH)) as runs,
    ):
        await until(lambda: there["n1"].said["whole"] == ["n2", "n3"])
        await until(lambda: [entries(network, name, version) for name in ("n2", "n3")] == [6 * OF_EACH] * 2)
        there["n1"].run.kill()
        network.cut("n1")
        await until(lambda: there["n2"].said["held"] or there["n3"].said["held"])
        await asyncio.sleep(2)  # they send and receive meanwhile
        found = [row for run in runs for row in await results(run)]
    lost = [row for row in found if not row[1]]
    print(
        f"{len(found) - len(lost)} of {len(found)} continue, longest pause {max(row[2] for row in found):.2f} s"
    )
    assert lost == []
    assert {row[3][0] for row in found} == {IP[version]}


@pytest.mark.parametrize("version", [4, 6])
async def test_udp_goes_on_in_both_directions(network: Network, version: int) -> None:
    async with (
        gateways(network, version) as there,
        clients(network.pods, DATAGRAM_CLIENT, OUTSIDE[version], "10") as runs,
    ):
        await until(lambda: [entries(network, name, version) for name in ("n2", "n3")] == [20] * 2)
        there["n1"].run.kill()
        network.cut("n1")
        await until(lambda: there["n2"].said["held"] or there["n3"].said["held"])
        await asyncio.sleep(2)
        for run in runs:
            for kind, alive, pause, seen in await results(run):
                assert alive, (kind, pause)
                assert seen == 1, kind
