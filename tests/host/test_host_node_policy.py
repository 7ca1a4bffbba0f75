"""Policies on a Node meet real packets: the Node is a network namespace, and so is whoever it talks to."""

from __future__ import annotations

import asyncio
import re
import sys
from functools import partial
from typing import TYPE_CHECKING

import msgspec
import pytest
from netdev_switch import until
from node_host import (
    ANSWERED,
    BRIEF,
    DROPPED,
    EVERYBODY,
    FAMILIES,
    FRIEND,
    HOME,
    NODE,
    PATIENT,
    PORT,
    REFUSED,
    STRANGER,
    Host,
    peer,
    policy,
    rule,
    tcp,
)

from antrea.apis import controlplane as cp
from antrea.apis.annotation import AUDIT
from antrea.config.agent import AgentConfig
from antrea.facts.api_server import ApiServerEndpoint
from antrea.facts.member import AgentNode
from antrea.facts.service import Service
from antrea.features.grouping.member import packed
from antrea.features.network_policy.agent.received import SentAddressMember, SentPolicy
from antrea.features.node_policy.audit import line
from antrea.features.node_policy.chain import LOG_BYTES, LOG_GROUP
from antrea.openflow.packet import IPV4, IPV6, packet
from antrea.outside.nftables.packet_log import PacketLog
from antrea.outside.nftables.table_reader import NftCounters
from antrea.outside.nftables.watch import NftWatch

if TYPE_CHECKING:
    from conftest import Namespaces


@pytest.fixture
def host(netns: Namespaces) -> Host:
    return Host(netns)


@FAMILIES
async def test_allowed_networks_come_in_and_others_get_no_answer(host: Host, family: str) -> None:
    allow = rule("In", peer("192.0.2.10/32", "2001:db8:2::10/128"), "Allow", services=tcp())
    drop = rule("In", peer(*EVERYBODY), "Drop", services=tcp(), priority=1)
    with host.serving(host.netns.home):
        async with host.enforced(policy("p", allow, drop)) as engine:
            assert await host.into(FRIEND[family], family) == ANSWERED
            assert await host.into(STRANGER[family], family, seconds=BRIEF) == DROPPED
            assert await host.into(STRANGER[family], family, "SOCK_DGRAM") == ANSWERED
            counters = {one.flow: one for one in await NftCounters().read()}
            assert counters["np-p-0"].packets == 1
            assert counters["np-p-1"].packets == host.counted("np-p-1") >= 1
            assert counters["np-p-1"].bytes >= 60
            host.facts.drop(SentPolicy, "p")
            await engine.quiet()
            assert await host.into(STRANGER[family], family) == ANSWERED
        rest = host.netns.sh("nft list table inet antrea")
        assert "np-" not in rest
        assert "node-ingress-250" not in rest


@FAMILIES
async def test_what_the_node_sends_to_a_group_is_dropped_until_its_members_leave(
    host: Host, family: str
) -> None:
    member = cp.GroupMember(
        node=cp.NodeReference(name="n2"), ips=(packed(STRANGER["ip"]), packed(STRANGER["ip6"]))
    )
    row = SentAddressMember("others", member)
    drop = rule("Out", peer(groups=("others",)), "Drop", services=tcp())
    with host.serving(host.beside):
        async with host.enforced(policy("p", drop), row) as engine:
            assert await host.out(STRANGER[family], family, seconds=BRIEF) == DROPPED
            assert await host.out(FRIEND[family], family) == ANSWERED
            host.facts.drop(SentAddressMember, row.key)
            await engine.quiet()
            assert await host.out(STRANGER[family], family) == ANSWERED


@FAMILIES
@pytest.mark.parametrize("direction", ["In", "Out"])
async def test_a_rejected_client_is_refused_at_once(host: Host, family: str, direction: str) -> None:
    reject = rule(direction, peer(*EVERYBODY), "Reject")
    with host.serving(host.netns.home if direction == "In" else host.beside):
        async with host.enforced(policy("p", reject)):
            ask = host.into if direction == "In" else host.out
            assert await ask(FRIEND[family], family) == REFUSED
            prohibited = "EACCES" if family == "ip6" else "EHOSTUNREACH"
            # the kernel refuses the call itself where the Node is the client
            wanted = prohibited if direction == "In" else "EPERM"
            assert await ask(FRIEND[family], family, "SOCK_DGRAM") == wanted


@FAMILIES
async def test_tiers_decide_and_what_is_passed_is_for_the_baseline(host: Host, family: str) -> None:
    everybody = peer(*EVERYBODY)
    allow = policy("late", rule("In", everybody, "Allow"), tier=250)
    passed = policy("early", rule("In", everybody, "Pass"), tier=50)
    base = policy("base", rule("In", everybody, "Drop"), tier=253)
    with host.serving(host.netns.home):
        async with host.enforced(allow, base) as engine:
            assert await host.into(FRIEND[family], family) == ANSWERED
            host.put(passed)
            await engine.quiet()
            assert await host.into(FRIEND[family], family, seconds=BRIEF) == DROPPED
            host.facts.drop(SentPolicy, "base")
            await engine.quiet()
            assert await host.into(FRIEND[family], family) == ANSWERED


@FAMILIES
async def test_of_policies_that_contradict_each_other_tier_priority_and_age_decide(
    host: Host, family: str
) -> None:
    everybody = peer(*EVERYBODY)
    allow = rule("In", everybody, "Allow", services=tcp())
    deny = policy("denies", rule("In", everybody, "Drop", services=tcp()))
    with host.serving(host.netns.home):
        async with host.enforced(of_year(2021, deny)) as engine:
            for name, tier, priority, year, found in (
                ("of an earlier tier", 200, 9.0, 2022, ANSWERED),
                ("of an earlier priority", 250, 4.5, 2022, ANSWERED),
                ("older", 250, 5.0, 2020, ANSWERED),
                ("younger", 250, 5.0, 2022, DROPPED),
                ("of a later priority", 250, 6.0, 2020, DROPPED),
                ("of a later tier", 253, 1.0, 2020, DROPPED),
            ):
                host.put(of_year(year, policy("other", allow, tier=tier, priority=priority)))
                await engine.quiet()
                seconds = PATIENT if found == ANSWERED else BRIEF
                assert await host.into(FRIEND[family], family, seconds=seconds) == found, name


def of_year(year: int, found: SentPolicy) -> SentPolicy:
    meta = msgspec.structs.replace(found.policy.metadata, creation_timestamp=f"{year}-01-01T00:00:00Z")
    return SentPolicy(msgspec.structs.replace(found.policy, metadata=meta))


@FAMILIES
async def test_a_drop_of_everything_keeps_connections_that_stand_and_the_node_to_itself(
    host: Host, family: str
) -> None:
    drop = policy("p", rule("In", peer(*EVERYBODY), "Drop"), rule("Out", peer(*EVERYBODY), "Drop"))
    with host.serving(host.netns.home):
        async with host.enforced() as engine:
            kind = "AF_INET6" if family == "ip6" else "AF_INET"
            code = (
                f"import socket, sys; s = socket.socket(socket.{kind}, socket.SOCK_DGRAM); s.settimeout(30);"
                f" s.connect(('{HOME[family]}', {PORT}))\n"
                "while True:\n s.send(b'x'); print(s.recv(9).decode(), flush=True); sys.stdin.readline()"
            )
            words = ["ip", "netns", "exec", host.beside, sys.executable, "-c", code]
            client = await asyncio.create_subprocess_exec(
                *words, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
            )
            assert client.stdin is not None
            assert client.stdout is not None
            assert await client.stdout.readline() == b"x\n"
            host.put(drop)
            await engine.quiet()
            client.stdin.write(b"\n")
            assert await client.stdout.readline() == b"x\n"
            assert await host.into(FRIEND[family], family, seconds=BRIEF) == DROPPED
            assert await host.sees(host.netns.home, HOME[family], HOME[family]) == ANSWERED
            client.kill()
            await client.wait()


@FAMILIES
async def test_pings_and_ports_are_told_apart(host: Host, family: str) -> None:
    echo = cp.Service(protocol="ICMP", icmp_type=128 if family == "ip6" else 8, icmp_code=0)
    drop = rule("In", peer(*EVERYBODY), "Drop", services=(echo,))
    with host.serving(host.netns.home):
        async with host.enforced(policy("p", drop)):
            ping = await asyncio.to_thread(
                host.netns.run, f"ping -c 1 -W 1 -I {FRIEND[family]} {HOME[family]}", host.beside
            )
            assert ping.returncode == 1
            assert host.counted("np-p-0") == 1
            assert await host.into(FRIEND[family], family) == ANSWERED


@FAMILIES
@pytest.mark.parametrize("direction", ["In", "Out"])
async def test_a_drop_of_everything_keeps_gossip_of_other_nodes(
    host: Host, family: str, direction: str
) -> None:
    drop = rule(direction, peer(*EVERYBODY), "Drop")
    host.put(AgentConfig(cluster_port=PORT))
    friend = AgentNode("n2", (FRIEND["ip"], FRIEND["ip6"]), (FRIEND["ip"], FRIEND["ip6"]))
    with host.serving(host.netns.home if direction == "In" else host.beside):
        async with host.enforced(policy("p", drop), friend):
            ask = host.into if direction == "In" else host.out
            assert await ask(FRIEND[family], family) == ANSWERED
            if direction == "In":  # a host with several addresses may answer datagrams from another one
                assert await ask(FRIEND[family], family, "SOCK_DGRAM") == ANSWERED
            assert await ask(STRANGER[family], family, seconds=BRIEF) == DROPPED


@FAMILIES
async def test_a_drop_of_everything_keeps_api_servers_and_annotated_ssh(host: Host, family: str) -> None:
    host.put(AgentConfig(api_port=PORT), ApiServerEndpoint(FRIEND[family], PORT))
    drop = policy("p", rule("In", peer(*EVERYBODY), "Drop"), rule("Out", peer(*EVERYBODY), "Drop"))
    with host.serving(host.netns.home), host.serving(host.beside):
        async with host.enforced(drop) as engine:
            # the Node asks the server, and the server asks the agent
            assert await host.out(FRIEND[family], family) == ANSWERED
            assert await host.into(FRIEND[family], family) == ANSWERED
            assert await host.into(STRANGER[family], family, seconds=BRIEF) == DROPPED
            assert await host.out(STRANGER[family], family, seconds=BRIEF) == DROPPED
            host.put(AgentNode("n1", NODE.node_ips, NODE.node_ips, ssh_ports=(PORT,)))
            await engine.quiet()
            assert await host.into(STRANGER[family], family) == ANSWERED
            assert await host.out(STRANGER[family], family, seconds=BRIEF) == DROPPED


def reached(turns: list[None], number: int) -> bool:
    return len(turns) == number


@pytest.mark.parametrize(
    "command",
    [
        "nft flush ruleset",
        "nft flush chain inet antrea node-ingress-250-5",
        "nft delete element inet antrea np-p-0-net4 { 192.0.2.20 }",
        "nft insert rule inet antrea node-ingress accept",
    ],
)
async def test_what_others_change_is_put_back(host: Host, command: str) -> None:
    drop = rule("In", peer("192.0.2.20/32", "198.51.100.0/24"), "Drop", services=tcp())
    async with host.enforced(policy("p", drop)) as engine:
        wanted = host.netns.sh("nft -s list table inet antrea")
        assert "192.0.2.20" in wanted
        turns: list[None] = []

        def again() -> None:
            turns.append(None)
            engine.resync(host.sink)

        watch = NftWatch(again)
        work = asyncio.create_task(watch.run())
        await watch.listening.wait()
        for number in (1, 2):
            host.netns.sh(command)
            await asyncio.to_thread(until, partial(reached, turns, number), "a resync")
            await asyncio.to_thread(
                until, lambda: host.netns.run("nft -s list table inet antrea").stdout == wanted, "them"
            )
            # our own change is news, too, and comes before that of the next round
            host.put(policy("q", drop))
            await engine.quiet()
            host.facts.drop(SentPolicy, "q")
            await engine.quiet()
        assert len(turns) == 2
        work.cancel()


@FAMILIES
async def test_what_rules_log_comes_with_labels_of_any_length(host: Host, family: str) -> None:
    logs = {"name": "no-entry", "services": tcp(), "log_label": "a-label-of-more-than-twelve-letters"}
    drop = rule("In", peer(*EVERYBODY), "Drop", enable_logging=True, **logs)
    lines: list[str] = []

    def handle(prefix: str, octets: bytes) -> None:
        frame = bytes(12) + (IPV6 if family == "ip6" else IPV4).to_bytes(2) + octets
        found = line(host.facts, prefix, packet(frame))
        assert found is not None
        lines.append(found.text)

    log = PacketLog(LOG_GROUP, LOG_BYTES, handle)
    work = asyncio.create_task(log.run())
    await log.listening.wait()
    with host.serving(host.netns.home):
        async with host.enforced(policy("p", drop)):
            assert await host.into(FRIEND[family], family, seconds=BRIEF) == DROPPED
            await asyncio.to_thread(until, lambda: lines, "line of the log")
    work.cancel()
    ends = f"{FRIEND[family]} [0-9]+ {HOME[family]} {PORT} TCP (60|80)"
    assert re.fullmatch(
        "NodePolicyIngressRule AntreaClusterNetworkPolicy:p no-entry Ingress Drop <nil> n1 "
        f"{ends} a-label-of-more-than-twelve-letters",
        lines[0],
    )


@FAMILIES
async def test_an_audited_policy_drops_nothing_and_tells_what_it_would_drop(host: Host, family: str) -> None:
    """In both directions; what an enforced policy allows before it, or drops, is not told."""
    friend = {"ip": "192.0.2.10/32", "ip6": "2001:db8:2::10/128"}[family]
    allow = policy("allow", rule("In", peer(friend), "Allow"), tier=50)
    everybody = peer(*EVERYBODY)
    would = (rule("In", everybody, "Drop", services=tcp()), rule("Out", everybody, "Reject", services=tcp()))
    told: list[str] = []

    def handle(prefix: str, octets: bytes) -> None:
        frame = bytes(12) + (IPV6 if family == "ip6" else IPV4).to_bytes(2) + octets
        found = line(host.facts, prefix, packet(frame))
        assert found is not None
        told.append(found.text)

    log = PacketLog(LOG_GROUP, LOG_BYTES, handle)
    work = asyncio.create_task(log.run())
    await log.listening.wait()
    with host.serving(host.netns.home), host.serving(host.beside):
        async with host.enforced(allow, policy("p", *would, enforcement=AUDIT)) as engine:
            assert await host.into(FRIEND[family], family) == ANSWERED
            assert host.counted("np-p-0") == 0
            assert await host.into(STRANGER[family], family) == ANSWERED
            assert host.counted("np-p-0") == 1
            assert await host.out(STRANGER[family], family) == ANSWERED
            assert host.counted("np-p-1") == 1
            await asyncio.to_thread(until, lambda: len(told) == 2, "lines of the log")
            host.put(policy("drop", rule("In", everybody, "Drop"), tier=100))
            await engine.quiet()
            assert await host.into(STRANGER[family], family, seconds=BRIEF) == DROPPED
            assert host.counted("np-p-0") == 1
            host.put(policy("p", *would))
            host.facts.drop(SentPolicy, "drop")
            await engine.quiet()
            assert await host.into(STRANGER[family], family, seconds=BRIEF) == DROPPED
        assert "audit" not in host.netns.sh("nft list table inet antrea")
    work.cancel()
    assert [" ".join(text.split()[1:5]) for text in told] == [
        "AntreaClusterNetworkPolicy:p <nil> Ingress AuditDrop",
        "AntreaClusterNetworkPolicy:p <nil> Egress AuditReject",
    ]


KUBE_PROXY = """
table inet kube-proxy {
  chain output {
    type nat hook output priority -100; policy accept;
    ip daddr 10.96.0.10 tcp dport 80 dnat ip to 192.0.2.20:%(port)d
    ip6 daddr fd00:96::10 tcp dport 80 dnat ip6 to [2001:db8:2::20]:%(port)d
  }
}
"""
SHOP_IPS = {"ip": "10.96.0.10", "ip6": "fd00:96::10"}


@FAMILIES
@pytest.mark.parametrize("translated", [True, False])
async def test_a_service_is_refused_by_its_own_address_and_its_endpoint_is_not(
    host: Host, family: str, *, translated: bool
) -> None:
    """Whether the Node translates the packet, as kube-proxy does, or another machine, or AntreaProxy, will."""
    services = (cp.ServiceReference(namespace="a", name="shop"),)
    drop = rule("Out", cp.NetworkPolicyPeer(to_services=services), "Drop")
    shop = Service("a", "shop", tuple(SHOP_IPS.values()), (("TCP", 80),))
    target = STRANGER[family]
    if translated:
        host.netns.sh(f"nft -f - <<EOF\n{KUBE_PROXY % {'port': PORT}}\nEOF")
        host.netns.sh("ip route add 10.96.0.0/24 dev eth0; ip route add fd00:96::/64 dev eth0")
    else:
        host.netns.sh(
            f"ip addr add {SHOP_IPS[family]} dev lo {'nodad' if family == 'ip6' else ''}", host.beside
        )
        host.netns.sh(f"ip route add {SHOP_IPS[family]} via {FRIEND[family]}")
    with host.serving(host.beside):
        number = 80 if translated else PORT
        async with host.enforced(
            policy("p", drop), msgspec.structs.replace(shop, ports=(("TCP", number),))
        ) as engine:
            ask = partial(host.out, SHOP_IPS[family], family, port=number)
            assert await ask(seconds=BRIEF) == DROPPED
            assert host.counted("np-p-0") >= 1
            assert await host.out(target, family) == ANSWERED
            host.put(msgspec.structs.replace(shop, ports=(("TCP", 7),)))
            await engine.quiet()
            assert await ask() == ANSWERED


@FAMILIES
async def test_a_port_by_name_is_the_number_that_the_receiver_gives_it(host: Host, family: str) -> None:
    def pod(number: int, who: dict[str, str]) -> SentAddressMember:
        ports = (cp.NamedPort(name="web", port=number, protocol="TCP"),)
        ips = (packed(who["ip"]), packed(who["ip6"]))
        one = cp.GroupMember(pod=cp.PodReference(namespace="a", name=str(number)), ips=ips, ports=ports)
        return SentAddressMember("web", one)

    named = (cp.Service(protocol="TCP", port="web"),)
    drop = rule("Out", peer(groups=("web",)), "Reject", services=named)
    with host.serving(host.beside):
        async with host.enforced(policy("p", drop), pod(PORT, STRANGER), pod(PORT + 1, FRIEND)):
            assert await host.out(STRANGER[family], family) == REFUSED
            assert await host.out(FRIEND[family], family) == ANSWERED
