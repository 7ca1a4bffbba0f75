"""Packets of Pods through real userspace OVS, the kernel and nftables: whose address a host outside sees, in both families."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import subprocess
import sys
from typing import TYPE_CHECKING, NamedTuple

import pytest
from egress_node import EGRESS, FAR, GATEWAYS, NODES, OUTSIDE, SERVER, Node
from netdev_switch import until
from wide_pool import wide_pool

from antrea.apis.status import Status
from antrea.config.agent_sections import Egress as EgressSection
from antrea.facts.egress import Egress, EgressLimit, EgressOwner, EgressPod, ProbedAddress, UnusedAddress
from antrea.facts.node import LocalAddress
from antrea.facts.ovs import OvsPort
from antrea.features.external_ip_pool.agent_part.idle_detector import IdleFeed
from antrea.host.carrier import mark_mac, own_mac
from antrea.outside.netlink.conntrack import connected

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

    from conftest import Namespaces


@pytest.fixture
def node(netns: Namespaces) -> Iterator[Node]:
    with Node(netns).standing() as there, there.serving(there.outside, SERVER):
        yield there


PLAIN = {(pod, version): NODES[version] for pod in ("web", "plain") for version in (4, 6)}


async def test_a_pod_leaves_with_its_egress_ip_as_long_as_the_egress_stands_and_others_with_the_nodes(
    node: Node,
) -> None:
    async with node.agent():
        assert await node.seen() == PLAIN
        for version, ip in EGRESS.items():
            # what the Node sends by itself must not take it, as IPv6 would
            life = "/32 dev eth0" if version == 4 else "/128 dev eth0 nodad preferred_lft 0"
            node.netns.sh(f"ip addr add {ip}{life}")
            node.facts.put(Egress(f"e{version}", f"u{version}", ip))
            node.facts.put(EgressPod(f"e{version}", "shop/web"))
        await node.until(lambda: all(node.facts.get(LocalAddress, ip) for ip in EGRESS.values()))
        await node.engine.quiet()
        assert await node.seen() == PLAIN | {("web", version): ip for version, ip in EGRESS.items()}

        # a packet that is marked for an address which is not (any more) here does not leave with another
        for lost, version in (("egress-snat", 4), ("carried-mark", 6)):
            node.netns.sh(f"nft flush map inet antrea {lost}")
            with pytest.raises(AssertionError, match="TimeoutError"):
                await node.source("web", version, seconds=1)
        assert await node.source("plain", 4) == NODES[4]

        node.facts.drop(EgressPod, "e4 shop/web")
        node.facts.drop(Egress, "e6")
        await node.engine.quiet()
        assert await node.seen() == PLAIN


async def test_what_the_configuration_or_the_egress_excepts_leaves_with_the_nodes_address(node: Node) -> None:
    others = {
        "except": {4: "192.0.2.11", 6: "2001:db8:2::11"},
        "hole": {4: "192.0.2.12", 6: "2001:db8:2::12"},
        "elsewhere": {4: "192.0.2.130", 6: "2001:db8:2:0:8000::"},
    }
    for ips in others.values():
        node.netns.sh(
            f"ip addr add {ips[4]}/24 dev eth0; ip addr add {ips[6]}/64 dev eth0 nodad", node.outside
        )
    cidrs, holes = (
        ("192.0.2.0/25", "2001:db8:2::/65"),
        (f"{others['hole'][4]}/32", f"{others['hole'][6]}/128"),
    )
    clear = EgressSection(except_cidrs=("192.0.2.11/32", "2001:db8:2::11/128"))
    for ip, life in ((EGRESS[4], "/32 dev eth0"), (EGRESS[6], "/128 dev eth0 nodad preferred_lft 0")):
        node.netns.sh(f"ip addr add {ip}{life}")
    async with node.agent(egress=clear):
        for version, ip in EGRESS.items():
            node.facts.put(Egress(f"e{version}", f"u{version}", ip))
            node.facts.put(EgressPod(f"e{version}", "shop/web"))
        await node.until(lambda: all(node.facts.get(LocalAddress, ip) for ip in EGRESS.values()))
        await node.engine.quiet()

        async def seen() -> dict[str, list[str]]:
            ends = {"inside": OUTSIDE, **others}
            return {name: [await node.source("web", v, ips[v]) for v in (4, 6)] for name, ips in ends.items()}

        ours, nodes = [*EGRESS.values()], [*NODES.values()]
        assert await seen() == {"inside": ours, "except": nodes, "hole": ours, "elsewhere": ours}
        for version, ip in EGRESS.items():
            node.facts.put(Egress(f"e{version}", f"u{version}", ip, cidrs=cidrs, excepts=holes))
        await node.engine.quiet()
        assert await seen() == {"inside": ours, "except": nodes, "hole": nodes, "elsewhere": nodes}


async def test_an_address_that_the_host_refuses_is_told_of_with_its_words(node: Node) -> None:
    group = "ff05::77"
    async with node.agent():
        node.facts.put(Egress("e", "u", group, pool="p"))
        node.facts.put(EgressOwner("e", "n1"))
        node.facts.put(ProbedAddress("e", group))

        def told() -> list[str]:
            standing = node.engine.standing().values()
            said = (one for entry in standing if isinstance(entry, Status) for one in entry.conditions)
            return [one.message for one in said if (one.type, one.status) == ("IPAssigned", "False")]

        async with asyncio.timeout(60):
            while not told():
                await node.engine.moved()
        (why,) = told()
        assert f"Node n1 cannot take {group}: " in why
        assert "Cannot assign requested address" in why


async def test_addresses_are_known_when_they_come_and_forgotten_when_they_go(node: Node) -> None:
    async with node.agent():
        before = {row.ip for row in node.facts.all(LocalAddress)}
        assert before == {"10.10.0.1", "fd00:10::1", *NODES.values()}
        node.netns.sh(f"ip addr add {EGRESS[4]}/32 dev eth0; ip addr add {EGRESS[6]}/128 dev lo")
        await node.until(
            lambda: {row.ip for row in node.facts.all(LocalAddress)} == before | {*EGRESS.values()}
        )
        assert node.facts.get(LocalAddress, EGRESS[6]) == LocalAddress(EGRESS[6], "lo")
        node.netns.sh(f"ip addr del {EGRESS[6]}/128 dev lo; ip link del eth0")
        left = {"10.10.0.1", "fd00:10::1"}
        await node.until(lambda: {row.ip for row in node.facts.all(LocalAddress)} == left)


async def test_a_node_that_is_to_hold_an_address_of_a_pool_answers_for_it_and_gives_it_back(
    node: Node,
) -> None:
    stale = "; ".join(
        f"ip neigh add {ip} lladdr 02:00:00:00:00:99 dev eth0 nud stale" for ip in EGRESS.values()
    )
    node.netns.sh(stale, node.outside)
    async with node.agent():
        for version, ip in EGRESS.items():
            node.facts.put(Egress(f"e{version}", f"u{version}", ip, pool="p"))
            node.facts.put(EgressPod(f"e{version}", "shop/web"))
            node.facts.put(EgressOwner(f"e{version}", "n1"))
        await node.until(lambda: all(node.facts.get(LocalAddress, ip) for ip in EGRESS.values()))
        await node.engine.quiet()
        assert sorted(node.assigned) == sorted(EGRESS.values())

        def told() -> bool:
            shown = json.loads(node.netns.sh("ip -j neigh show dev eth0", node.outside))
            found = {row["dst"]: row.get("lladdr") for row in shown}
            return all(found.get(ip) == node.mac for ip in EGRESS.values())

        # the host outside believed that another machine has them
        await asyncio.to_thread(until, told, "announcement of both addresses")
        # and one that has heard nothing gets an answer
        node.netns.sh("ip neigh flush all nud all; ip -6 neigh flush all nud all", node.outside)
        assert await node.seen() == PLAIN | {("web", version): ip for version, ip in EGRESS.items()}

        for version in EGRESS:
            node.facts.put(EgressOwner(f"e{version}", "n2"))
        await node.until(lambda: not any(node.facts.get(LocalAddress, ip) for ip in EGRESS.values()))
        for version in EGRESS:
            node.facts.drop(Egress, f"e{version}")
        await node.engine.quiet()
        assert await node.seen() == PLAIN
        assert "antrea-egress0" not in node.switch.ports("br-int")


LISTENER = """
import socket, sys
link = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
link.bind(("eth0", 0))
link.settimeout(30)
print("listening", flush=True)
while True:
    frame = link.recv(2000)
    if frame[12:14] == b"\\x08\\x00" and frame[23] == 1 and frame[34] == 8:
        print(frame[6:12].hex(":"), flush=True)
        break
"""


def frame_source(node: Node, sender: str | None) -> str:
    """The source MAC address with which a ping from this namespace reaches Pod `web`."""
    words = ["ip", "netns", "exec", node.pods["web"], sys.executable, "-c", LISTENER]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as listener:
        try:
            assert listener.stdout is not None
            assert listener.stdout.readline() == "listening\n"
            node.netns.sh("ping -c 1 -W 20 10.10.0.7", sender)
            return listener.stdout.readline().strip()
        finally:
            listener.kill()


async def test_ovs_knows_what_a_process_of_the_node_sends_from_what_passes_it(node: Node) -> None:
    node.netns.sh(f"ip route add 10.10.0.0/24 via {NODES[4]}", node.outside)
    async with node.agent():
        mine = await asyncio.to_thread(frame_source, node, None)
        others = await asyncio.to_thread(frame_source, node, node.outside)
        assert (mine, others) == (mark_mac(0x80000000), node.facts.all(OvsPort)[0].mac)
        (probes,) = [
            line
            for line in node.switch.ofctl("dump-flows", "br-int").splitlines()
            if f"dl_src={mark_mac(0x80000000)}" in line and ",ip," in line
        ]
        assert "n_packets=0" not in probes


VLAN_IPS = {4: "172.16.181.40", 6: "fd00:181::40"}


@pytest.mark.parametrize(
    "unique",
    [pytest.param(True, id="own MAC"), pytest.param(False, id="the card's MAC", marks=pytest.mark.wide)],
)
async def test_an_address_of_a_vlan_leaves_tagged_by_its_gateway_and_its_device_goes_with_it(
    node: Node, *, unique: bool
) -> None:
    node.plug_vlan(181)
    with node.serving(node.router, SERVER):
        async with node.agent(egress=EgressSection(unique_mac_for_sub_interfaces=unique)):
            for version, prefix in ((4, 24), (6, 64)):
                pool = f"p{version}"
                node.facts.put(wide_pool(pool, (), GATEWAYS[version], prefix, 181))
                node.facts.put(Egress(f"e{version}", f"u{version}", VLAN_IPS[version], pool=pool))
                node.facts.put(EgressPod(f"e{version}", "shop/web"))
                node.facts.put(EgressOwner(f"e{version}", "n1"))
            await node.until(lambda: all(node.facts.get(LocalAddress, ip) for ip in VLAN_IPS.values()))
            await node.engine.quiet()
            assert "antrea-ext.181" in node.switch.ports("br-phy")
            mac = own_mac("n1", "antrea-ext.181") if unique else node.mac_of("br-phy")
            assert node.mac_of("antrea-ext.181") == mac
            assert {v: await node.source("web", v, FAR[v]) for v in (4, 6)} == VLAN_IPS
            shown = json.loads(node.netns.sh("ip -j neigh show dev eth0", node.router))
            heard = {row["dst"]: row.get("lladdr") for row in shown}
            assert {ip: heard.get(ip) for ip in VLAN_IPS.values()} == dict.fromkeys(VLAN_IPS.values(), mac)
            assert await node.source("plain", 4) == NODES[4]

            for version in (4, 6):
                node.facts.drop(EgressOwner, f"e{version}")
            await node.until(lambda: not any(node.facts.get(LocalAddress, ip) for ip in VLAN_IPS.values()))
            await node.engine.quiet()
            assert "antrea-ext.181" not in node.switch.ports("br-phy")
            rules = node.netns.sh("ip rule; ip -6 rule")
            assert "lookup 10" not in rules


COUNTER = """
import select, socket
datagrams = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
datagrams.setsockopt(socket.SOL_SOCKET, 33, 1 << 24)  # SO_RCVBUFFORCE
datagrams.bind(("::", 8098))
door = socket.create_server(("::", 8098), family=socket.AF_INET6, dualstack_ipv6=True)
print("listening", flush=True)
bits, clients = {}, []
while True:
    ready = select.select([datagrams, door, *clients], [], [])[0]
    if datagrams in ready:
        text, (who, *_) = datagrams.recvfrom(2000)
        is_mapped = who.startswith("::ffff:")
        who = who.removeprefix("::ffff:")
        bits[who] = bits.get(who, 0) + 8 * (len(text) + (42 if is_mapped else 62))
    elif door in ready:
        clients.append(door.accept()[0])
    else:
        client = ready[0]
        if client.recv(1):
            who = client.getpeername()[0].removeprefix("::ffff:")
            client.sendall(f"{who} {bits.pop(who, 0)}\\n".encode())
        else:
            clients.remove(client)
            client.close()
"""
SENDER = """
import socket, sys, time
there = (sys.argv[1], 8098)
control = socket.create_connection(there)
answers = control.makefile()
v6 = ":" in there[0]
datagrams = socket.socket(socket.AF_INET6 if v6 else socket.AF_INET, socket.SOCK_DGRAM)
text = bytes(938 if v6 else 958)
for line in sys.stdin:
    sent, began = 0, time.monotonic()
    while time.monotonic() < began + float(line):
        for _ in range(3):
            datagrams.sendto(text, there)
        sent += 3 * 8000
        time.sleep(0.001)
    within = time.monotonic() - began
    control.sendall(b"?")
    print(sent, within, answers.readline().strip(), flush=True)
"""


class Flood(NamedTuple):
    """Frames of 1000 bytes that a Pod sent to the host outside: bits that left it, in how many seconds, and that came."""

    sent: int
    seconds: float
    source: str
    came: int

    @property
    def free(self) -> bool:
        """Whether nearly all of it came."""
        return self.came > 0.9 * self.sent

    def fits(self, limit: EgressLimit) -> bool:
        """Whether much more was sent than came, which is what the limit lets through."""
        most = 1000 * (limit.burst + limit.rate * self.seconds)
        return self.sent > 1.5 * most and 0.6 * most < self.came < 1.25 * most


@contextlib.asynccontextmanager
async def sender(
    node: Node, pod: str, version: int = 4
) -> AsyncIterator[Callable[[Callable[[Flood], bool]], Awaitable[Flood]]]:
    """Floods for a second when it is asked, until that is right; one TCP connection stays the whole time.

    Twenty seconds at most: on a busy machine both ends may lie still for a part of one.
    """
    words = ("ip", "netns", "exec", node.pods[pod], sys.executable, "-c", SENDER, OUTSIDE[version])
    run = await asyncio.create_subprocess_exec(*words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert run.stdin is not None
    assert run.stdout is not None
    stdin, stdout = run.stdin, run.stdout

    async def flood(right: Callable[[Flood], bool]) -> Flood:
        for _ in range(20):
            stdin.write(b"1\n")
            sent, seconds, source, came = (await stdout.readline()).split()
            found = Flood(int(sent), float(seconds), source.decode(), int(came))
            if right(found):
                break
        return found

    try:
        yield flood
    finally:
        run.kill()
        await run.communicate()


def meters(node: Node) -> list[str]:
    """Their rates."""
    said = node.switch.ofctl("dump-meters", "br-int").splitlines()
    return [line.split()[1] for line in said if line.strip().startswith("type=")]


async def test_a_pod_sends_with_its_egress_ip_what_the_bandwidth_lets_through_and_others_what_they_like(
    node: Node,
) -> None:
    def limit(rate: int) -> EgressLimit | None:
        found = EgressLimit(rate, 50) if rate else None
        node.facts.put(Egress("limited", "u1", EGRESS[4], limit=found))
        return found

    free = "192.0.2.51"
    for ip in (EGRESS[4], free):
        node.netns.sh(f"ip addr add {ip}/32 dev eth0")
    for name, pod in (("limited", "web"), ("free", "plain")):
        node.facts.put(EgressPod(name, f"shop/{pod}"))
    node.facts.put(Egress("free", "u2", free))
    slow, fast = limit(200), EgressLimit(800, 50)
    assert slow
    with node.serving(node.outside, COUNTER):
        async with (
            node.agent("EgressTrafficShaping"),
            sender(node, "web") as web,
            sender(node, "plain") as plain,
        ):
            first = await web(lambda flood: flood.fits(slow))
            assert (first.source, first.fits(slow)) == (EGRESS[4], True), first
            other = await plain(lambda flood: flood.free)
            assert (other.source, other.free) == (free, True), other

            limit(fast.rate)
            await node.engine.quiet()
            second = await web(lambda flood: flood.fits(fast))
            assert second.fits(fast), second

            limit(0)
            await node.engine.quiet()
            third = await web(lambda flood: flood.free)
            assert third.free, third
            assert "rate=800" not in meters(node)
            limit(slow.rate)
            await node.engine.quiet()
        # no agent runs, and another one takes over
        async with sender(node, "web") as web:
            left = await web(lambda flood: flood.fits(slow))
            assert left.fits(slow), left
            async with node.agent("EgressTrafficShaping"):
                again = await web(lambda flood: flood.fits(slow))
                assert again.fits(slow), again
                assert "rate=200" in meters(node)


async def test_a_bandwidth_limits_ipv6_as_well(node: Node) -> None:
    slow = EgressLimit(200, 50)
    node.netns.sh(f"ip addr add {EGRESS[6]}/128 dev eth0 nodad preferred_lft 0")
    node.facts.put(Egress("limited", "u1", EGRESS[6], limit=slow))
    node.facts.put(EgressPod("limited", "shop/web"))
    with node.serving(node.outside, COUNTER):
        async with (
            node.agent("EgressTrafficShaping"),
            sender(node, "web", 6) as web,
            sender(node, "plain", 6) as plain,
        ):
            first = await web(lambda flood: flood.fits(slow))
            assert (first.source, first.fits(slow)) == (EGRESS[6], True), first
            other = await plain(lambda flood: flood.free)
            assert (other.source, other.free) == (NODES[6], True), other


async def test_an_address_that_waits_is_idle_when_its_last_connection_has_ended_and_not_before(
    node: Node,
) -> None:
    ip = EGRESS[4]
    node.facts.put(EgressPod("e", "shop/web"))
    node.facts.put(Egress("e", "u", ip, pool="p"))
    node.facts.put(EgressOwner("e", "n1", home="n2"))
    with node.serving(node.outside, COUNTER):
        async with node.agent():
            await node.until(lambda: node.facts.get(LocalAddress, ip))
            await node.engine.quiet()
            async with sender(node, "web") as web:
                feed = asyncio.create_task(IdleFeed("n1", idle_seconds=1).run(node.facts))
                for _ in range(3):  # seconds
                    assert (await web(bool)).source == ip
                    assert node.facts.get(UnusedAddress, ip) is None
                assert connected({*EGRESS.values(), NODES[4]}) == {ip}
                assert connected({ip}) == {ip}
                assert connected({NODES[4]}) == set()
                with socket.create_connection((OUTSIDE[6], 8098), source_address=(NODES[6], 0)):
                    assert connected({ip, NODES[6], EGRESS[6]}) == {ip, NODES[6]}
                    assert connected({NODES[6]}) == {NODES[6]}
                    assert connected({EGRESS[6]}) == set()
            await node.until(lambda: node.facts.get(UnusedAddress, ip))
            async with sender(node, "web"):
                await node.until(lambda: node.facts.get(UnusedAddress, ip) is None)
            await node.until(lambda: node.facts.get(UnusedAddress, ip))
            node.facts.put(EgressOwner("e", "n1"))
            await node.until(lambda: node.facts.get(UnusedAddress, ip) is None)
            feed.cancel()
