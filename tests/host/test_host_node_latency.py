"""Round trips between Nodes with real packets, in both families: measured, reported, told of, and withdrawn."""

from __future__ import annotations

import asyncio
import json
import secrets
from typing import TYPE_CHECKING, Any

import pytest
from certificate_world import ApiServer
from loopback import client_of

from antrea.engine import Facts
from antrea.features.node_latency.agent_part.prober import PATH, LatencyProber
from antrea.features.node_latency.monitor import LatencyMonitor
from antrea.features.node_latency.target import LatencyTarget
from antrea.outside.icmp.echo import EchoReply, EchoSocket

if TYPE_CHECKING:
    from collections.abc import Callable

    from conftest import Namespaces

    from antrea.outside.kube.client import Kube

HERE, THERE, NOBODY = ("10.9.0.1", "fd09::1"), ("10.9.0.2", "fd09::2"), "10.9.0.3"


def connect(netns: Namespaces) -> None:
    """A cable to another Node."""
    peer = netns.make()
    netns.sh(f"ip link add eth0 type veth peer name eth0 netns {peer}; ip link set eth0 up")
    netns.sh("ip link set eth0 up", peer)
    for ips, space in ((HERE, None), (THERE, peer)):
        netns.sh(f"ip addr add {ips[0]}/24 dev eth0; ip addr add {ips[1]}/64 dev eth0 nodad", space)


class Node:
    """With a prober; `said` has its Events."""

    def __init__(self, kube: Kube) -> None:
        self.facts, self.said = Facts(), list[str]()
        identifier = secrets.randbelow(1 << 16)

        def socket(ipv6: bool, received: Callable[[EchoReply], None]) -> EchoSocket:
            return EchoSocket(identifier, received, ipv6=ipv6)

        self.prober = LatencyProber(
            self.facts, "n1", sockets=socket, controller=lambda: kube,
            record=lambda reason, _, __: self.said.append(reason),
        )  # fmt: skip
        for ip, node in ((THERE[0], "n2"), (THERE[1], "n2"), (NOBODY, "n3")):
            self.facts.put(LatencyTarget(ip, node))


async def until(true: Callable[[], object], seconds: float = 60) -> None:
    async with asyncio.timeout(seconds):
        while not true():  # noqa: ASYNC110 (a condition of another program)
            await asyncio.sleep(0.02)


def reported(server: ApiServer) -> dict[str, Any]:
    """Round trips by address."""
    peers = server.objects[f"{PATH}/n1"]["peerNodeLatencyStats"]
    return {one["targetIP"]: one for peer in peers for one in peer["targetIPLatencyStats"]}


async def test_round_trips_are_measured_in_both_families_and_reported_until_nobody_asks(
    netns: Namespaces,
) -> None:
    connect(netns)
    server = ApiServer({})
    async with client_of(server.serve) as kube:
        node = Node(kube)
        node.facts.put(LatencyMonitor(0.1, threshold=1e-9))
        node.facts.synced(LatencyMonitor)
        work = asyncio.create_task(node.prober.run())
        await until(lambda: f"{PATH}/n1" in server.objects)
        found = reported(server)
        assert set(found) == {*THERE, NOBODY}
        for ip in THERE:
            assert 0 < found[ip]["lastMeasuredRTTNanoseconds"] < 10**10
            assert found[ip]["lastRecvTime"] >= found[ip]["lastSendTime"][:16]
        assert not found[NOBODY].get("lastMeasuredRTTNanoseconds")
        assert not found[NOBODY].get("lastRecvTime")
        whole = server.objects[f"{PATH}/n1"]
        assert (whole["kind"], whole["apiVersion"]) == ("NodeLatencyStats", "stats.antrea.io/v1alpha1")
        # each address is slower than a nanosecond, or silent
        await until(lambda: node.said == ["NodeLatencyHigh"] * 3)
        node.facts.put(LatencyMonitor(0.1, threshold=10.0))
        await until(lambda: node.said[3:] == ["NodeLatencyNormal"] * 2)
        metrics = node.prober.metrics()
        assert 'unanswered_count{ip_family="v4"} 0\n' not in metrics
        assert 'count{ip_family="v6"} 0\n' in metrics
        node.facts.drop(LatencyMonitor, "self")
        await until(lambda: f"{PATH}/n1" not in server.objects)
        assert node.prober.stats.peer_node_latency_stats[0].target_ip_latency_stats == ()
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work
        assert json.dumps(server.writes).count("nodelatencystats") == 2


async def test_replies_to_other_programs_are_not_taken(netns: Namespaces) -> None:
    connect(netns)
    mine, theirs = list[EchoReply](), list[EchoReply]()
    for ipv6, ip in ((False, THERE[0]), (True, THERE[1])):
        one, other = EchoSocket(7, mine.append, ipv6=ipv6), EchoSocket(8, theirs.append, ipv6=ipv6)
        sent = one.send(ip, 65535, b"odd")
        other.send(ip, 1, b"")
        await until(lambda: mine and theirs)
        assert [(reply.ip, reply.sequence, reply.data) for reply in mine] == [(ip, 65535, b"odd")]
        assert [(reply.ip, reply.sequence, reply.data) for reply in theirs] == [(ip, 1, b"")]
        assert mine[0].at > sent
        one.close()
        other.close()
        mine.clear()
        theirs.clear()
