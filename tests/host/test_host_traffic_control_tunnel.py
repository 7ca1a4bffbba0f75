"""TrafficControl by tunnels: another machine on the cable gets packets of Pods in them, and sends redirected ones back."""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import sys
import time
from functools import partial
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from agent_process import NODE, agent_process
from test_host_traffic_control import (
    ADDRESSES,
    BOTH_WAYS,
    CONFIG,
    CONTROLS,
    api,
    connect,
    control,
    echo,
    marked,
    ping,
    ports,
    reaches,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from agent_process import AgentProcess
    from conftest import Namespaces
    from pods_api import PodsApi

NODES, REMOTES = ("192.0.2.1", "2001:db8:2::1"), ("192.0.2.7", "2001:db8:2::7")
UDP, GRE = 17, 47
TRANSPARENT, ERSPAN_II, ERSPAN_III = 0x6558, 0x88BE, 0x22EB
"""Ether types in GRE: of frames, and of the two versions of ERSPAN."""
WATCH = """
import socket
wire = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
wire.bind(("far0", 0))
print("listening", flush=True)
while True:
    print(wire.recv(4096).hex(), flush=True)
"""
SEND_BACK = """
import socket
own = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
own.bind(("::", {port}))
print("listening", flush=True)
while True:
    data, (ip, *_) = own.recvfrom(4096)
    own.sendto(data, (ip, {port}))
"""


class Tunnel(NamedTuple):
    """What a TrafficControl asks for, and the protocol and number in what is on the cable."""

    kind: str
    options: dict[str, int]
    what: tuple[int, int]
    """Number of the protocol, and UDP port or ether type in GRE."""
    number: int


TUNNELS = (
    Tunnel("geneve", {"vni": 77}, (UDP, 6081), 77),
    Tunnel("vxlan", {"vni": 78, "destinationPort": 8472}, (UDP, 8472), 78),
    Tunnel("gre", {"key": 79}, (GRE, TRANSPARENT), 79),
    Tunnel("erspan", {"version": 1, "sessionID": 80, "index": 3}, (GRE, ERSPAN_II), 80),
    Tunnel("erspan", {"version": 2, "sessionID": 81, "dir": 1, "hardwareID": 4}, (GRE, ERSPAN_III), 81),
)


class Wrapped(NamedTuple):
    """A frame in a tunnel."""

    ends: tuple[bytes, bytes]
    what: tuple[int, int]
    number: int
    frame: bytes


def wrapped(frame: bytes) -> Wrapped | None:
    """What is on the cable, if it is a tunnel's. Source: RFC 7348, RFC 8926, RFC 2890, draft-foschiano-erspan-03"""
    six = int.from_bytes(frame[12:14]) == 0x86DD
    if not six and frame[12:14] != b"\x08\x00":
        return None
    protocol, body = (frame[20], frame[54:]) if six else (frame[23], frame[34:])
    ends = (frame[22:38], frame[38:54]) if six else (frame[26:30], frame[30:34])
    if six and protocol == 60:  # destination options: the limit of tunnels in tunnels, RFC 2473
        protocol, body = body[0], body[8 * (body[1] + 1) :]
    if protocol == UDP:
        head = 8 + 4 * (body[8] & 0x3F) if body[2:4] == b"\x17\xc1" else 8
        return Wrapped(ends, (UDP, int.from_bytes(body[2:4])), int.from_bytes(body[12:15]), body[8 + head :])
    if protocol != GRE:
        return None
    flags, kind = body[0], int.from_bytes(body[2:4])
    at = 4 + sum(4 for bit in (0x80, 0x20, 0x10) if flags & bit)
    if kind == TRANSPARENT:
        key = 4 + (4 if flags & 0x80 else 0)
        return Wrapped(ends, (GRE, kind), int.from_bytes(body[key : key + 4]), body[at:])
    session = int.from_bytes(body[at + 2 : at + 4]) & 0x3FF
    return Wrapped(ends, (GRE, kind), session, body[at + (12 if kind == ERSPAN_III else 8) :])


@contextlib.contextmanager
def wire(netns: Namespaces, far: str) -> Iterator[subprocess.Popen[bytes]]:
    """What comes by the cable, a line of hexadecimal digits a frame."""
    words = ["ip", "netns", "exec", far, sys.executable, "-c", WATCH]
    with subprocess.Popen(words, stdout=subprocess.PIPE, bufsize=0) as found:
        try:
            assert found.stdout is not None
            assert found.stdout.readline() == b"listening\n"
            yield found
        finally:
            found.kill()


def seen(
    found: subprocess.Popen[bytes], tunnel: Tunnel, seconds: float = 20
) -> set[tuple[bytes, bytes, Any]]:
    """Ends of the tunnel with those of echo packets in it, until all directions in both families are there."""
    told: set[tuple[bytes, bytes, Any]] = set()
    deadline = time.monotonic() + seconds
    assert found.stdout is not None
    while len(told) < len(BOTH_WAYS) and time.monotonic() < deadline:
        if select.select([found.stdout], [], [], 0.2)[0]:
            one = wrapped(bytes.fromhex(found.stdout.readline().decode()))
            if one is not None and (one.what, one.number) == (tunnel.what, tunnel.number):
                told |= {(*one.ends, pair) for pair in echo(one.frame)}
    return told


def node_api() -> PodsApi:
    """That of the Pods, of a Node with an address in each family."""
    server = api()
    node = server.objects[f"/api/v1/nodes/{NODE}"]
    ips = [{"type": "InternalIP", "address": ip} for ip in NODES]
    server.put(f"/api/v1/nodes/{NODE}", {**node, "status": {"addresses": ips}})
    return server


@contextlib.asynccontextmanager
async def node(netns: Namespaces, folder: Path) -> Any:
    """The agent, the Pods' namespaces and that of the other machine, once packets get through."""
    far = netns.make()
    addresses = "; ".join(
        f"ip addr add {ip} dev far0 nodad" for ip in (f"{REMOTES[0]}/24", f"{REMOTES[1]}/64")
    )
    cable = (
        f"ip addr add {NODES[1]}/64 dev eth0 nodad; ip link set far0 netns {far}; "
        f"ip netns exec {far} sh -c 'ip link set far0 up; ethtool -K far0 tx off; {addresses}'"
    )
    async with agent_process(netns, folder, dict(os.environ), CONFIG, node_api(), cable) as agent:
        await agent.until(lambda agent: agent.ready(), "the agent is ready")
        pods = connect(netns, agent)
        for address in ADDRESSES["a"]:
            await agent.until(partial(reaches, netns, pods["b"], address), "packets get through")
        yield agent, pods, far


async def gone(agent: AgentProcess, name: str) -> None:
    """Without the TrafficControl, and its port."""
    agent.api.drop(f"{CONTROLS}/{name}")
    await agent.until(lambda agent: not marked(agent), "no flow is left")
    kinds = tuple(tunnel.kind for tunnel in TUNNELS)
    await agent.until(
        lambda agent: not [one for one in ports(agent) if one.startswith(kinds)], "nor the port"
    )


@pytest.mark.parametrize("six", [False, True], ids=["IPv4", "IPv6"])
async def test_another_machine_gets_copies_by_each_kind_of_tunnel(
    netns: Namespaces, tmp_path: Path, six: bool
) -> None:
    """Copies of both families by tunnels of this one, from the first packet on."""
    async with node(netns, tmp_path) as (agent, pods, far):
        ends = tuple(ip_address(pair[six]).packed for pair in (NODES, REMOTES))
        for number, tunnel in enumerate(TUNNELS):
            target = {tunnel.kind: {"remoteIP": REMOTES[six], **tunnel.options}}
            control(agent.api, f"t{number}", action="Mirror", targetPort=target)
            await agent.until(lambda agent: len(marked(agent)) == 2, f"the flows to {tunnel.kind}")
            if number == 0:
                agent.switch.appctl("tnl/neigh/flush")
                await agent.until(
                    lambda agent: REMOTES[six] in agent.switch.appctl("tnl/neigh/show"),
                    "the MAC address of the remote end is known before any packet",
                    10,
                )
            with wire(netns, far) as found:
                for address in ADDRESSES["a"]:
                    assert ping(netns, agent, pods["b"], address)
                assert seen(found, tunnel) == {(*ends, pair) for pair in BOTH_WAYS}, tunnel
            await gone(agent, f"t{number}")


@pytest.mark.parametrize("six", [False, True], ids=["IPv4", "IPv6"])
async def test_redirected_packets_come_back_by_a_tunnel_or_not_at_all(
    netns: Namespaces, tmp_path: Path, six: bool
) -> None:
    """The other machine sends them back by the tunnel; while it does not, none gets through."""
    async with node(netns, tmp_path) as (agent, pods, far):
        for kind, port in (("geneve", 6081), ("vxlan", 4789)):
            tunnel = {kind: {"remoteIP": REMOTES[six], "vni": 9}}
            control(agent.api, kind, action="Redirect", targetPort=tunnel, returnPort=tunnel)
            await agent.until(lambda agent: len(marked(agent)) == 2, "packets are redirected")
            for address in ADDRESSES["a"]:
                assert not ping(netns, agent, pods["b"], address)
            with netns.serving(far, SEND_BACK.format(port=port)):
                for address in ADDRESSES["a"]:
                    await agent.until(partial(reaches, netns, pods["b"], address), "packets come back")
            for address in ADDRESSES["a"]:
                assert not ping(netns, agent, pods["b"], address)
            await gone(agent, kind)
