"""The switch holds DNS answers to a Pod until the addresses in them are in the flows of rules on names."""

from __future__ import annotations

import asyncio
import contextlib
import re
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any

import dns.message
import dns.rrset
import msgspec
import pytest
from counted_traffic import receive
from policy_oracle import LOCAL, ports
from policy_switch import CONFIG, GATEWAY, NODE, PIPELINE

from antrea.apis import controlplane as cp
from antrea.apis.annotation import AUDIT, ENFORCEMENT
from antrea.engine import Engine, Facts
from antrea.engine.pace import Pace
from antrea.errors import Unavailable
from antrea.features.framework.agent_feature import RealizedPipeline
from antrea.features.network_policy.agent.feature import FEATURE as POLICY
from antrea.features.network_policy.agent.fqdn import FqdnAddress
from antrea.features.network_policy.agent.received import SentPolicy
from antrea.features.network_policy.agent_part import fqdn
from antrea.features.network_policy.agent_part.fqdn import FqdnController, packet_in_handler, untrusted
from antrea.features.network_policy.agent_part.metrics import name_metrics
from antrea.features.network_policy.agent_part.name_scope import pod_scope
from antrea.features.pod_connectivity.agent import FEATURE as POD_CONNECTIVITY
from antrea.openflow.fields import PacketIn
from antrea.openflow.flow import Flow
from antrea.openflow.group import Group
from antrea.openflow.meter import POD_DNS_METERS, Meter
from antrea.outside.vswitch.flow_sink import FlowSink
from antrea.outside.vswitch.meter_sink import MeterSink
from antrea.outside.vswitch.ofctl import Ofctl
from antrea.outside.vswitch.packet_channel import Packets
from antrea.outside.vswitch.revalidation import Revalidation
from tests.unit.features.policy_world import ANY, applied, interface, native, port, rule

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from pathlib import Path

    from ovs_bridge import OvsBridge

    from antrea.config.agent import AgentConfig
    from antrea.engine import Sink

POD = LOCAL[0]
RESOLVER = ("198.51.100.53", "2001:db8:53::53")
"""Trusted, by the agent's configuration: it asks none itself."""
STRANGER = ("198.51.100.66", "2001:db8:53::66")
"""A server that nobody trusts."""
OTHER = LOCAL[1]
"""A second Pod that the rules are for."""
ALLOWED = ("203.0.113.7", "2001:db8::7")
FRESH, CLOSED = ("203.0.113.20", "2001:db8::20"), ("203.0.113.21", "2001:db8::21")
"""Addresses to which no other test connects."""
NEARBY = ("203.0.113.99", "2001:db8::99")
NAMES = cp.NetworkPolicyPeer(fqdns=("*.example.com",))
RULES = (
    rule("Out", NAMES, action="Allow", priority=0),
    rule("Out", ANY, port(53, protocol="UDP"), action="Allow", priority=1),
    rule("Out", ANY, action="Drop", priority=2),
)


ENFORCED = native("p", "all", *RULES)
AUDITED = SentPolicy(
    msgspec.structs.replace(
        ENFORCED.policy,
        metadata=msgspec.structs.replace(ENFORCED.policy.metadata, annotations={ENFORCEMENT: AUDIT}),
    )
)


def checksum(data: bytes) -> int:
    total = sum(int.from_bytes(data[at : at + 2].ljust(2, b"\0")) for at in range(0, len(data), 2))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def answer(name: str, address: str, *, to: str, source: str, dport: int) -> str:
    """A frame of a resolver behind the gateway, as hexadecimal digits."""
    kind = "AAAA" if ":" in address else "A"
    said = dns.message.make_response(dns.message.make_query(name, kind))
    said.answer.append(dns.rrset.from_text(name, 60, "IN", kind, address))
    data = said.to_wire()
    src, dst = ip_address(source).packed, ip_address(to).packed
    length = 8 + len(data)
    udp = (53).to_bytes(2) + dport.to_bytes(2) + length.to_bytes(2)
    udp += (
        checksum(src + dst + (17).to_bytes(4) + length.to_bytes(4) + udp + b"\0\0" + data).to_bytes(2) + data
    )
    if ":" in to:
        ip, ethertype = b"\x60\0\0\0" + length.to_bytes(2) + b"\x11\x40" + src + dst, b"\x86\xdd"
    else:
        head = b"\x45\0" + (20 + length).to_bytes(2) + b"\0\0\0\0\x40\x11"
        ip, ethertype = head + checksum(head + b"\0\0" + src + dst).to_bytes(2) + src + dst, b"\x08\0"
    number = next(one.number for one in LOCAL if to in one.ips)
    macs = bytes.fromhex((f"0a:00:00:00:00:{number:02x}" + GATEWAY.mac).replace(":", ""))
    return (macs + ethertype + ip + udp).hex()


async def until(true: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not await asyncio.to_thread(true):  # noqa: ASYNC110 (the counters of another process)
            await asyncio.sleep(0.02)


def delivered(ovs: OvsBridge, pod: Any = POD) -> int:
    """Packets that left by the Pod's port."""
    found = re.search(r"tx pkts=(\d+)", ovs.ofctl("dump-ports", str(pod.number)))
    assert found
    return int(found.group(1))


@contextlib.asynccontextmanager
async def node(
    ovs: OvsBridge, keep: Path, policy: SentPolicy = ENFORCED, config: AgentConfig = CONFIG
) -> AsyncIterator[tuple[Engine, FqdnController, Packets]]:
    facts = Facts()
    for pool, low, high in POLICY.ranks:
        facts.ids.between(pool, low, high)
    pods = (interface(one.name, one.number, *one.ips) for one in (POD, OTHER))
    rows = (*pods, *applied("all", POD.told, OTHER.told), policy)
    for row in (config, NODE, GATEWAY, RealizedPipeline(PIPELINE), *rows):
        facts.put(row)
    socket = ovs.process.directory / "br-int.mgmt"
    flows, meters = FlowSink(Ofctl(socket), PIPELINE, 1), MeterSink(Ofctl(socket))
    sinks: dict[type, Sink] = {Flow: flows, Group: flows, Meter: meters}
    engine = Engine(facts, (*POD_CONNECTIVITY.units, *POLICY.units), sinks, pace=Pace(first=0.02))
    packets = Packets(socket, 100)

    async def settled(row: FqdnAddress) -> None:
        await engine.settled(FqdnAddress, row.key)

    cached = Revalidation(socket, patience=60)
    config = msgspec.structs.replace(config, fqdn_trusted_dns_servers=RESOLVER)
    names = FqdnController(facts, pod_scope(facts, config, keep), settled, revalidation=cached)
    handle = packet_in_handler(names, lambda found: packets.resume(found))  # noqa: PLW0108 (a test replaces it)
    packets.deliver(PacketIn.DNS, handle)
    running = [asyncio.create_task(one.run()) for one in (engine, packets, names, cached)]
    try:
        async with asyncio.timeout(60):
            await packets.connected.wait()
            await engine.quiet()
        yield engine, names, packets
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


def ask(ovs: OvsBridge, version: int, sport: int, server: tuple[str, str] = RESOLVER, pod: Any = POD) -> None:
    """A Pod asks a resolver, so that the connection of the answer is known."""
    name = next(name for name, number in ports().items() if number == pod.number)
    receive(
        ovs, name, (f"0a:00:00:00:00:{pod.number:02x}", GATEWAY.mac), (pod.ips[version], server[version]), src=sport, dst=53
    )  # fmt: skip


def send(
    ovs: OvsBridge, version: int, name: str, address: str, sport: int, server: tuple[str, str] = RESOLVER
) -> None:
    gateway = next(name for name, number in ports().items() if number == GATEWAY.ofport)
    frame = answer(name, address, to=POD.ips[version], source=server[version], dport=sport)
    ovs.appctl("netdev-dummy/receive", gateway, frame)


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer is held for as long as a test needs: here it takes programs, and maybe a busy machine, to look at the switch."""
    monkeypatch.setattr(fqdn, "HELD_SECONDS", 60.0)


@pytest.fixture
def bridge(ovs: OvsBridge) -> OvsBridge:
    ovs.clear()
    there = ovs.vsctl("list-ports", "br-int").split()
    ovs.add_ports({name: number for name, number in ports().items() if name not in there})
    return ovs


@pytest.mark.parametrize("version", [0, 1], ids=["IPv4", "IPv6"])
async def test_an_answer_reaches_the_pod_once_its_address_is_in_the_switch(
    bridge: OvsBridge, version: int, tmp_path: Path
) -> None:
    kind = ("nw_dst", "ipv6_dst")[version]
    async with node(bridge, tmp_path / "names") as (_, names, packets):
        before, when = delivered(bridge), []
        resume = packets.resume

        def resumed(found: Any) -> None:
            when.append(f"{kind}={ALLOWED[version]}" in "\n".join(bridge.dump()))
            resume(found)

        packets.resume = resumed  # type: ignore[method-assign,assignment]
        await asyncio.to_thread(ask, bridge, version, 4000)
        await asyncio.to_thread(send, bridge, version, "api.example.com.", ALLOWED[version], 4000)
        await until(lambda: delivered(bridge) == before + 1)
        assert when == [True]
        assert [row.fqdn_name for row in names.answers()] == ["api.example.com"]
        # an answer on a name that no rule matches passes, and is not kept
        await asyncio.to_thread(send, bridge, version, "other.test.", ALLOWED[version], 4000)
        await until(lambda: delivered(bridge) == before + 2)
        assert len(names.cache) == 1


async def test_an_answer_whose_addresses_do_not_get_into_the_switch_is_dropped(
    bridge: OvsBridge, tmp_path: Path
) -> None:
    async with node(bridge, tmp_path / "names") as (_, names, _):

        async def never(row: FqdnAddress) -> None:
            raise Unavailable(row.key)

        before, names._settled = delivered(bridge), never
        await asyncio.to_thread(ask, bridge, 0, 4001)
        await asyncio.to_thread(send, bridge, 0, "api.example.com.", ALLOWED[0], 4001)
        await until(lambda: names.dropped["not realized"])
        # what is held comes in order: the next one passes alone
        await asyncio.to_thread(send, bridge, 0, "other.test.", ALLOWED[0], 4001)
        await until(lambda: delivered(bridge) == before + 1)
        assert 'antrea_agent_fqdn_answer_dropped_count{reason="not realized"} 1' in name_metrics([names])


@pytest.mark.parametrize("version", [0, 1], ids=["IPv4", "IPv6"])
async def test_what_the_pod_has_not_asked_for_gives_no_address(
    bridge: OvsBridge, version: int, tmp_path: Path
) -> None:
    """It goes on to the Pod as any packet that nothing forbids, and the agent does not get it."""
    async with node(bridge, tmp_path / "names") as (_, names, _):
        before = delivered(bridge)
        await asyncio.to_thread(send, bridge, version, "forged.example.com.", NEARBY[version], 4020)
        await until(lambda: delivered(bridge) == before + 1)
        await asyncio.to_thread(ask, bridge, version, 4021)
        await asyncio.to_thread(send, bridge, version, "api.example.com.", ALLOWED[version], 4021)
        await until(lambda: delivered(bridge) == before + 2)
        assert [row.fqdn_name for row in names.answers()] == ["api.example.com"]


def forwarded(ovs: OvsBridge) -> int:
    """Packets that left by the gateway."""
    found = re.search(r"tx pkts=(\d+)", ovs.ofctl("dump-ports", str(GATEWAY.ofport)))
    assert found
    return int(found.group(1))


def connect(ovs: OvsBridge, version: int, address: str, pod: Any = POD) -> None:
    """A Pod sends a packet to an address."""
    name = next(name for name, number in ports().items() if number == pod.number)
    macs = (f"0a:00:00:00:00:{pod.number:02x}", GATEWAY.mac)
    receive(ovs, name, macs, (pod.ips[version], address), src=5000, dst=80)


@contextlib.contextmanager
def no_passes(ovs: OvsBridge) -> Iterator[None]:
    """The switch does not look through its cache."""
    ovs.appctl("revalidator/pause")
    try:
        yield
    finally:
        ovs.appctl("revalidator/resume")


@pytest.mark.parametrize("version", [0, 1], ids=["IPv4", "IPv6"])
async def test_an_answer_is_held_while_the_switch_has_cached_a_refusal_nearby(
    bridge: OvsBridge, version: int, tmp_path: Path
) -> None:
    """What a packet to one address has met is cached for the whole network, also after the flows have changed."""
    kind = ("nw_dst", "ipv6_dst")[version]
    async with node(bridge, tmp_path / "names"):
        await asyncio.to_thread(connect, bridge, version, NEARBY[version])
        before, left = delivered(bridge), forwarded(bridge)
        with no_passes(bridge):
            await asyncio.to_thread(ask, bridge, version, 4003)
            asked = forwarded(bridge)
            assert asked == left + 1
            await asyncio.to_thread(send, bridge, version, "api.example.com.", ALLOWED[version], 4003)
            await until(lambda: f"{kind}={ALLOWED[version]}" in "\n".join(bridge.dump()))
            await asyncio.to_thread(connect, bridge, version, ALLOWED[version])
            assert forwarded(bridge) == asked
            assert delivered(bridge) == before
        await until(lambda: delivered(bridge) == before + 1)
        await asyncio.to_thread(connect, bridge, version, ALLOWED[version])
        assert forwarded(bridge) == asked + 1


async def test_an_answer_goes_on_if_the_switch_does_not_tell_of_its_cache(
    bridge: OvsBridge, tmp_path: Path
) -> None:
    async with node(bridge, tmp_path / "names") as (_, names, _):
        names._revalidation = Revalidation(bridge.process.directory / "br-int.mgmt", patience=0.05)
        before = delivered(bridge)
        for times in (1, 2):
            await asyncio.to_thread(ask, bridge, 0, 4004)
            await asyncio.to_thread(send, bridge, 0, "api.example.com.", ALLOWED[0], 4004)
            await until(lambda times=times: delivered(bridge) == before + times)  # type: ignore[misc]
        assert not names.dropped
        assert not names._met


async def test_names_outlive_the_agent(bridge: OvsBridge, tmp_path: Path) -> None:
    keep = tmp_path / "names"
    async with node(bridge, keep) as _:
        await asyncio.to_thread(ask, bridge, 0, 4002)
        await asyncio.to_thread(send, bridge, 0, "api.example.com.", ALLOWED[0], 4002)
        await until(keep.exists)
        await until(lambda: b"203.0.113.7" in keep.read_bytes())
    async with node(bridge, keep) as (engine, *_):
        assert f"nw_dst={ALLOWED[0]}" in "\n".join(bridge.dump())
        assert engine.facts.all(FqdnAddress) == [FqdnAddress("*.example.com", ALLOWED[0])]


@pytest.mark.parametrize("version", [0, 1], ids=["IPv4", "IPv6"])
async def test_an_answer_that_audited_rules_alone_wait_for_is_not_held_and_is_noted(
    bridge: OvsBridge, version: int, tmp_path: Path
) -> None:
    """It reaches the Pod also if its addresses do not get into the switch, or while no agent runs."""
    kind = ("nw_dst", "ipv6_dst")[version]
    async with node(bridge, tmp_path / "names", AUDITED) as (_, names, _):

        async def never(row: FqdnAddress) -> None:
            raise Unavailable(row.key)

        before, names._settled = delivered(bridge), never
        await asyncio.to_thread(ask, bridge, version, 4010)
        await asyncio.to_thread(send, bridge, version, "api.example.com.", ALLOWED[version], 4010)
        assert delivered(bridge) == before + 1
        await until(lambda: f"{kind}={ALLOWED[version]}" in "\n".join(bridge.dump()))
        assert not names.dropped
    await asyncio.to_thread(send, bridge, version, "www.example.com.", ALLOWED[version], 4010)
    assert delivered(bridge) == before + 2


DENIED = native("p", "all", rule("Out", NAMES, action="Drop", priority=0))


@pytest.mark.parametrize("version", [0, 1], ids=["IPv4", "IPv6"])
async def test_an_answer_of_a_server_that_is_not_trusted_opens_no_address(
    bridge: OvsBridge, version: int, tmp_path: Path
) -> None:
    """It reaches the Pod, the agent says so, and the same answer of one that is opens the address for all Pods."""
    async with node(bridge, tmp_path / "names") as (engine, names, _):
        before = delivered(bridge)
        await asyncio.to_thread(ask, bridge, version, 4030, STRANGER)
        await asyncio.to_thread(send, bridge, version, "api.example.com.", FRESH[version], 4030, STRANGER)
        await until(lambda: delivered(bridge) == before + 1)
        assert names.answers() == []
        assert engine.facts.all(FqdnAddress) == []
        left = forwarded(bridge)
        for pod in (POD, OTHER):
            await asyncio.to_thread(connect, bridge, version, FRESH[version], pod)
        assert forwarded(bridge) == left
        assert f"{STRANGER[version]} by a/{POD.name}" in untrusted([names])
        assert "antrea_agent_fqdn_answer_ignored_count 1" in name_metrics([names])
        await asyncio.to_thread(ask, bridge, version, 4031)
        await asyncio.to_thread(send, bridge, version, "api.example.com.", FRESH[version], 4031)
        await until(lambda: delivered(bridge) == before + 2)
        left = forwarded(bridge)
        for pod in (POD, OTHER):
            await asyncio.to_thread(connect, bridge, version, FRESH[version], pod)
        assert forwarded(bridge) == left + 2


@pytest.mark.parametrize("version", [0, 1], ids=["IPv4", "IPv6"])
async def test_an_answer_of_a_server_that_is_not_trusted_closes_an_address_to_the_pod_that_asked_alone(
    bridge: OvsBridge, version: int, tmp_path: Path
) -> None:
    async with node(bridge, tmp_path / "names", DENIED) as (_, names, _):
        before = delivered(bridge)
        await asyncio.to_thread(ask, bridge, version, 4040, STRANGER)
        await asyncio.to_thread(send, bridge, version, "api.example.com.", CLOSED[version], 4040, STRANGER)
        await until(lambda: delivered(bridge) == before + 1)
        assert [(row.fqdn_name, row.server) for row in names.own_answers(f"a/{POD.name}")] == [
            ("api.example.com", STRANGER[version])
        ]
        left = forwarded(bridge)
        await asyncio.to_thread(connect, bridge, version, CLOSED[version])
        assert forwarded(bridge) == left
        await asyncio.to_thread(connect, bridge, version, CLOSED[version], OTHER)
        assert forwarded(bridge) == left + 1
        await asyncio.to_thread(connect, bridge, version, FRESH[version])
        assert forwarded(bridge) == left + 2


FEW = msgspec.structs.replace(CONFIG, packet_in_rate=10)
"""The agent takes 10 answers a second and 20 at once, of one Pod 1 and 2."""
FLOOD = 90
"""As many as a port of this datapath takes at once, less some."""


@pytest.mark.parametrize("policy", [ENFORCED, AUDITED], ids=["held", "copied"])
@pytest.mark.parametrize("version", [0, 1], ids=["IPv4", "IPv6"])
async def test_answers_to_one_pod_do_not_keep_those_to_another_from_the_agent(
    bridge: OvsBridge, version: int, policy: SentPolicy, tmp_path: Path
) -> None:
    async with node(bridge, tmp_path / "names", policy, FEW) as (_, names, _):
        gateway = next(name for name, number in ports().items() if number == GATEWAY.ofport)
        flooded = answer(
            "other.test.", NEARBY[version], to=POD.ips[version], source=STRANGER[version], dport=4050
        )
        wanted = answer(
            "api.example.com.", FRESH[version], to=OTHER.ips[version], source=RESOLVER[version], dport=4051
        )
        await asyncio.to_thread(ask, bridge, version, 4050, STRANGER)
        await asyncio.to_thread(ask, bridge, version, 4051, RESOLVER, OTHER)
        before, flood = delivered(bridge, OTHER), delivered(bridge)
        # in one command, so that the meters do not fill again meanwhile
        await asyncio.to_thread(bridge.appctl, "netdev-dummy/receive", gateway, *[flooded] * FLOOD, wanted)
        await until(lambda: delivered(bridge, OTHER) == before + 1)
        await until(names.answers)
        assert [row.fqdn_name for row in names.answers()] == ["api.example.com"]
        # audited rules lose no answer
        assert (delivered(bridge) == flood + FLOOD) == (policy is AUDITED)
        (limited,) = re.findall(
            rf"meter:{POD_DNS_METERS + POD.number} .*\n.*0: packet_count:(\d+)", bridge.ofctl("meter-stats")
        )
        assert int(limited) >= FLOOD - 10
