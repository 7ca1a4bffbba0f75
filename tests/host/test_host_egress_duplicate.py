"""An Egress IP that another host of the network has: it is not taken, who has it is told, and it is taken when that has gone.

And a VLAN whose router does not answer.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from contextlib import asynccontextmanager
from ipaddress import ip_address
from typing import TYPE_CHECKING

import pytest
from egress_node import EGRESS, NODES, OUTSIDE, SERVER, Node
from netdev_switch import until
from wide_pool import wide_pool

from antrea.apis.status import Status
from antrea.facts.egress import Egress, EgressGateway, EgressOwner, EgressPod, ProbedAddress
from antrea.facts.node import LocalAddress
from antrea.features.egress.agent_part import gateway_prober
from antrea.features.egress.agent_part.gateway_prober import GatewayFeed
from antrea.features.external_ip_pool.agent_part import duplicate_prober
from antrea.outside.neighbour import probe as address_probe
from antrea.outside.neighbour.announcement import unsolicited_na
from antrea.outside.netlink.netns import NetnsWorker

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from conftest import Namespaces

VERSIONS = pytest.mark.parametrize("version", [4, 6])


@pytest.fixture
def node(netns: Namespaces, monkeypatch: pytest.MonkeyPatch) -> Iterator[Node]:
    for pause in ("SURE_SECONDS", "AGAIN_SECONDS", "LATER_SECONDS"):
        monkeypatch.setattr(duplicate_prober, pause, 0.2)
    with Node(netns).standing() as there, there.serving(there.outside, SERVER):
        yield there


@pytest.fixture
def slow_answers(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """Until this is undone, an answer may come as late as a busy machine gives it."""
    with monkeypatch.context() as patch:
        patch.setattr(address_probe, "GAP_SECONDS", 10.0)
        yield patch


def has(node: Node, space: str, ip: str, what: str = "add") -> None:
    """A host has the address."""
    node.netns.sh(f"ip addr {what} {ip} dev eth0 {'nodad' if ':' in ip and what == 'add' else ''}", space)


def told(node: Node) -> dict[str, tuple[str, str]]:
    """Status and message of the conditions that the Node's status of the Egress wants."""
    (found,) = (one for one in node.engine.standing().values() if isinstance(one, Status))
    return {one.type: (one.status, one.message) for one in found.conditions}


@VERSIONS
async def test_an_address_that_another_host_has_is_taken_when_that_has_it_no_longer(
    node: Node, version: int, slow_answers: pytest.MonkeyPatch
) -> None:
    ip = EGRESS[version]
    has(node, node.outside, ip)
    mac = node.mac_of("eth0", node.outside)
    async with node.agent():
        node.facts.put(Egress("e", "u", ip, pool="p"))
        node.facts.put(EgressPod("e", "shop/web"))
        node.facts.put(EgressOwner("e", "n1"))
        await node.until(lambda: node.facts.get(ProbedAddress, "e"))
        await node.engine.quiet()
        assert node.facts.get(ProbedAddress, "e") == ProbedAddress("e", ip, mac)
        assert node.facts.get(LocalAddress, ip) is None
        said = f"another host of the network has {ip}: MAC address {mac} answers for it"
        assert told(node) == {
            "IPAssigned": ("False", f"Failed to assign the IP to EgressNode: {said}"),
            "AddressConflict": ("True", said),
        }
        assert (node.conflict, node.assigned) == ([said], [])
        # nobody was disturbed
        assert mac in node.netns.sh(f"ping -c 1 -W 5 {ip} >/dev/null && ip neigh show {ip}")

        slow_answers.undo()
        has(node, node.outside, ip, "del")
        await node.until(lambda: node.facts.get(LocalAddress, ip))
        node.facts.put(Egress("e", "u", ip, pool="p", node="n1", held=ip, conflicts="told"))
        await node.engine.quiet()
        assert await node.source("web", version) == ip
        assert told(node) == {
            "IPAssigned": ("True", "EgressIP is successfully assigned to EgressNode"),
            "AddressConflict": ("", ""),
        }
        # and asked for anew when it comes back, whatever was found before
        node.facts.put(EgressOwner("e", "n2"))
        await node.until(lambda: node.facts.get(ProbedAddress, "e") is None)


@VERSIONS
async def test_an_address_that_a_node_had_is_taken_at_once_and_its_other_host_is_told_of(
    node: Node, version: int, slow_answers: pytest.MonkeyPatch
) -> None:
    ip, later, sleep = EGRESS[version], asyncio.Event(), asyncio.sleep

    async def until_later(seconds: float) -> None:
        await (later.wait() if seconds == duplicate_prober.LATER_SECONDS else sleep(seconds))

    slow_answers.setattr(duplicate_prober, "LATER_SECONDS", 600.0)
    slow_answers.setattr(asyncio, "sleep", until_later)
    has(node, node.outside, ip)
    async with node.agent():
        node.facts.put(Egress("e", "u", ip, pool="p", node="n2", held=ip))
        node.facts.put(EgressOwner("e", "n1"))
        await node.until(lambda: node.facts.get(LocalAddress, ip))
        assert node.facts.get(ProbedAddress, "e") is None
        later.set()
        await node.until(lambda: node.facts.get(ProbedAddress, "e"))
        await node.engine.quiet()
        assert node.facts.get(LocalAddress, ip)
        assert [told(node)[one][0] for one in ("IPAssigned", "AddressConflict")] == ["True", "True"]


async def test_an_address_of_a_vlan_is_asked_for_there(node: Node, slow_answers: pytest.MonkeyPatch) -> None:
    node.plug_vlan(181)
    ip = "172.16.181.40"
    has(node, node.router, f"{ip}/24")
    node.facts.put(wide_pool("p", (), "172.16.181.1", 24, 181))
    async with node.agent():
        node.facts.put(Egress("e", "u", ip, pool="p"))
        node.facts.put(EgressOwner("e", "n1"))
        await node.until(lambda: node.facts.get(ProbedAddress, "e"))
        assert node.facts.get(ProbedAddress, "e") == ProbedAddress("e", ip, node.mac_of("eth0", node.router))
        slow_answers.undo()
        has(node, node.router, f"{ip}/24", "del")
        await node.until(lambda: node.facts.get(LocalAddress, ip))


@VERSIONS
async def test_an_address_without_a_pool_that_another_host_has_is_used_and_told_of_until_that_gives_it_up(
    node: Node, version: int, slow_answers: pytest.MonkeyPatch
) -> None:
    ip = EGRESS[version]
    for space in (None, node.outside):
        node.netns.sh(f"ip addr add {ip} dev eth0 {'nodad preferred_lft 0' if version == 6 else ''}", space)
    async with node.agent():
        node.facts.put(Egress("e", "u", ip))
        node.facts.put(EgressPod("e", "shop/web"))
        await node.until(lambda: node.facts.get(ProbedAddress, "e"))
        await node.engine.quiet()
        said = f"another host of the network has {ip}: MAC address {node.mac_of('eth0', node.outside)} answers for it"
        assert told(node) == {"AddressConflict": ("True", said)}
        assert node.conflict == [said]

        slow_answers.undo()
        has(node, node.outside, ip, "del")
        node.facts.put(Egress("e", "u", ip, node="n2", held=ip, conflicts="told"))
        await node.until(lambda: node.facts.get(ProbedAddress, "e") == ProbedAddress("e", ip))
        await node.engine.quiet()
        assert told(node) == {"AddressConflict": ("", "")}
        assert await node.source("web", version) == ip
        # nobody is asked for an address that its user took away
        node.netns.sh(f"ip addr del {ip} dev eth0")
        await node.until(lambda: node.facts.get(ProbedAddress, "e") is None)


async def test_an_address_of_ipv6_that_the_kernel_does_not_use_as_another_host_has_it_is_not_here(
    node: Node,
) -> None:
    ip = EGRESS[6]
    has(node, node.outside, ip)
    async with node.agent():
        node.netns.sh(f"ip addr add {ip}/128 dev eth0 preferred_lft 0")
        failed = "ip -6 addr show dev eth0 dadfailed"
        await asyncio.to_thread(until, lambda: ip in node.netns.sh(failed), "the kernel's answer")
        await node.until(lambda: node.facts.get(LocalAddress, ip) is None)


@VERSIONS
async def test_nobody_but_another_host_on_the_link_answers(node: Node, version: int) -> None:
    assert await address_probe.who_has("eth0", OUTSIDE[version]) == node.mac_of("eth0", node.outside)
    assert await address_probe.who_has("eth0", NODES[version]) == ""
    assert await address_probe.who_has("eth0", EGRESS[version]) == ""
    with pytest.raises(OSError, match="No such device"):
        await address_probe.who_has("eth7", EGRESS[version])
    node.netns.sh("ip link set eth0 down")
    with pytest.raises(OSError, match="Network is down"):
        await address_probe.who_has("eth0", EGRESS[version])


def stand_in(node: Node) -> None:
    """The host outside becomes a router with proxy ARP as Linux has it, with a route for everybody else."""
    node.netns.sh(
        "ip link add else0 type veth peer name else1; ip link set else0 up; ip link set else1 up",
        node.outside,
    )
    for family, default in (("ipv4", "default"), ("ipv6", "::/0")):
        for card in ("all", "eth0"):
            node.netns.sh(f"echo 1 > /proc/sys/net/{family}/conf/{card}/forwarding", node.outside)
        node.netns.sh(f"ip route add {default} dev else0", node.outside)
        node.netns.sh(f"echo 0 > /proc/sys/net/{family}/neigh/eth0/proxy_delay", node.outside)
    for what in ("ipv4/conf/eth0/proxy_arp", "ipv4/conf/eth0/proxy_arp_pvlan", "ipv6/conf/eth0/proxy_ndp"):
        node.netns.sh(f"echo 1 > /proc/sys/net/{what}", node.outside)


async def test_a_linux_router_that_answers_for_others_is_silent_when_nobody_asks(node: Node) -> None:
    """To a question without a sender it answers for itself alone, as that is one of duplicate address detection."""
    stand_in(node)
    router, elsewhere = node.mac_of("eth0", node.outside), "203.0.113.5"
    node.netns.sh(f"ip route add {elsewhere} dev eth0")
    for ip in (EGRESS[4], elsewhere):
        node.netns.run(f"ping -c 1 -W 1 {ip}")
        assert f"lladdr {router}" in node.netns.sh(f"ip neigh show {ip}")
        assert await address_probe.who_has("eth0", ip) == ""
    assert await address_probe.who_has("eth0", OUTSIDE[4]) == router


async def test_a_linux_router_answers_for_an_address_of_ipv6_that_it_was_told_of(
    node: Node, slow_answers: pytest.MonkeyPatch
) -> None:
    stand_in(node)
    node.netns.sh(f"ip neigh add proxy {EGRESS[6]} dev eth0", node.outside)
    assert await address_probe.who_has("eth0", EGRESS[6]) == node.mac_of("eth0", node.outside)
    slow_answers.undo()
    assert await address_probe.who_has("eth0", "2001:db8:2::51") == ""


@asynccontextmanager
async def answering(node: Node, *, to_all: bool) -> AsyncIterator[str]:
    """The host outside answers every question for an address but the Node's, or only for the Egress IPs; yields its MAC."""
    worker, mac = NetnsWorker(), node.mac_of("eth0", node.outside)

    def card() -> socket.socket:
        link = socket.socket(socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_NONBLOCK, socket.htons(3))
        link.bind(("eth0", 0))
        return link

    async def answer(link: socket.socket) -> None:
        own = bytes.fromhex(mac.replace(":", ""))
        while True:
            frame = await asyncio.get_running_loop().sock_recv(link, 2000)
            if frame[12:14] == b"\x08\x06" and frame[20:22] == b"\0\1":
                ip = ip_address(frame[38:42])
                head = frame[6:12] + own + struct.pack("!HHHBBH", 0x0806, 1, 0x0800, 6, 4, 2)
                reply = head + own + ip.packed + frame[22:32]
            elif frame[12:14] == b"\x86\xdd" and frame[20] == 58 and frame[54] == 135:
                ip = ip_address(frame[62:78])
                reply = unsolicited_na(own, ip.packed)
            else:
                continue
            if str(ip) in EGRESS.values() or (to_all and str(ip) not in NODES.values()):
                link.send(reply)

    link = await worker.run(node.netns.path(node.outside), card)
    answers = asyncio.create_task(answer(link))
    try:
        yield mac
    finally:
        answers.cancel()
        await asyncio.wait([answers])
        link.close()
        worker.close()


@VERSIONS
async def test_a_router_that_answers_for_all_addresses_of_the_network_has_none_of_them(
    node: Node, version: int, slow_answers: pytest.MonkeyPatch
) -> None:
    ip = EGRESS[version]
    async with node.agent():
        node.facts.put(EgressOwner("e", "n1"))
        async with answering(node, to_all=False) as mac:
            node.facts.put(Egress("e", "u", ip, pool="p"))
            await node.until(lambda: node.facts.get(ProbedAddress, "e"))
            assert node.facts.get(ProbedAddress, "e") == ProbedAddress("e", ip, mac)
        slow_answers.setattr(address_probe, "STRANGERS_SECONDS", 20.0)
        async with answering(node, to_all=True):
            await node.until(lambda: node.facts.get(ProbedAddress, "e") == ProbedAddress("e", ip))
            await node.until(lambda: node.facts.get(LocalAddress, ip))


async def test_another_card_of_the_node_on_the_same_link_is_no_other_host(netns: Namespaces) -> None:
    """Linux answers for its addresses of IPv4 by every card."""
    switch = netns.make()
    netns.sh("ip link add br0 type bridge && ip link set br0 up", switch)
    for number in (1, 2):
        netns.sh(f"ip link add card{number} type veth peer name port{number} netns {switch}")
        netns.sh(f"ip link set port{number} master br0 up", switch)
        netns.sh(f"ip link set card{number} up && ip addr add 192.0.2.{number}/24 dev card{number}")
    netns.sh("ip addr add 192.0.2.9/24 dev br0", switch)
    netns.sh(
        "ip addr add 192.0.2.50/32 dev lo && ping -c 1 -W 10 -I card1 192.0.2.9 && ping -c 1 -W 10 -I card2 192.0.2.9"
    )
    assert await address_probe.who_has("card1", "192.0.2.9") != ""
    assert await address_probe.who_has("card1", "192.0.2.50") == ""


async def test_a_switch_port_that_does_not_carry_the_vlan_is_told_of_until_it_does(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gateway_prober, "LOOK_SECONDS", 0.1)
    node.plug_vlan(181)
    ip, row = "172.16.181.40", EgressGateway("antrea-ext.181", "172.16.181.1", answers=True)
    node.facts.put(wide_pool("p", (), row.ip, 24, 181))
    async with node.agent():
        feed = asyncio.create_task(GatewayFeed().run(node.facts))
        node.facts.put(Egress("e", "u", ip, pool="p"))
        node.facts.put(EgressOwner("e", "n1"))
        await node.until(lambda: node.facts.get(EgressGateway, row.key) == row)
        await node.engine.quiet()
        assert "GatewayAnswers" not in told(node)
        node.switch.vsctl("set", "port", "sw1", "trunks=182")
        await node.until(
            lambda: node.facts.get(EgressGateway, row.key) == EgressGateway(row.dev, row.ip, answers=False)
        )
        await node.engine.quiet()
        assert told(node)["GatewayAnswers"] == (
            "False",
            (
                "gateway 172.16.181.1 does not answer Node n1 on antrea-ext.181:"
                " the switch port of the Node has to carry VLAN 181, tagged"
            ),
        )
        node.facts.put(Egress("e", "u", ip, pool="p", node="n1", held=ip, unanswered=True))
        node.switch.vsctl("clear", "port", "sw1", "trunks")
        await node.until(lambda: node.facts.get(EgressGateway, row.key) == row)
        await node.engine.quiet()
        assert told(node)["GatewayAnswers"] == ("", "")
        node.facts.drop(Egress, "e")
        await node.until(lambda: node.facts.get(EgressGateway, row.key) is None)
        feed.cancel()
