"""UDP connections through Services whose Endpoint is gone are forgotten, once flows stand, and no others."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from antrea.apis import core
from antrea.config.agent import AgentConfig
from antrea.config.agent_sections import AntreaProxy
from antrea.engine import Engine, Facts, Unit
from antrea.errors import Unavailable
from antrea.facts.member import AgentNode
from antrea.facts.node import LocalAddress, ThisNode
from antrea.facts.service import EndpointStates, Service, ServiceEndpoint, ServicePort
from antrea.features.proxy.agent import STALE_UDP
from antrea.features.proxy.agent_part.stale_connections import StaleConnections
from antrea.features.proxy.endpoint import endpoint_states
from antrea.features.proxy.service import service_ports, service_row
from antrea.host.udp_binding import UdpBinding
from antrea.outside.vswitch.conntrack import Tracked, tracked

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

NODE = ThisNode("n1", ("10.10.0.0/24", "fd00:10::/64"))
IP, IP6 = "10.96.0.10", "fd00:96::a"
NEAR = (("topology.kubernetes.io/zone", "near"),)
DNS = Service(
    "a", "dns", (IP, IP6), (("UDP", 53), ("TCP", 53)), port_names=("dns", "dns-tcp"), node_ports=(0, 0)
)
UNITS = (
    Unit(Service, service_ports, yields=(ServicePort,)),
    Unit(ServiceEndpoint, endpoint_states, yields=(EndpointStates,)),
    *STALE_UDP.units,
)


def endpoint(ip: str, name: str = "dns", protocol: str = "UDP", *, ready: bool = True) -> ServiceEndpoint:
    family = "6" if ":" in ip else "4"
    return ServiceEndpoint(f"a/dns-{family}", "a/dns", name, protocol, ip, 5353, "n1", ready, ready, False)


def line(server: str, *, to: str = IP, port: int = 53, protocol: str = "udp", source: int = 40000) -> str:
    """As `dpctl/dump-conntrack` prints a connection of a client; `server` answers."""
    client, back = ("fd00:10::b", 5353) if ":" in to else ("10.10.0.11", 5353)
    back = port if server == to else back
    return (
        f"{protocol},orig=(src={client},dst={to},sport={source},dport={port}),"
        f"reply=(src={server},dst={client},sport={back},dport={source}),zone=65520,mark=19"
    )


class Datapath:
    """Tracks these connections; is away for so many questions."""

    def __init__(self, *lines: str, away: int = 0) -> None:
        self.lines = list(lines)
        self.away = away
        self.asked = 0
        self.looked = asyncio.Event()

    async def connections(self, zone: int) -> list[Tracked]:
        self.asked += 1
        if self.asked <= self.away:
            raise Unavailable("control socket of ovs-vswitchd")
        wanted = ":" if zone == 65510 else "."
        return [one for text in self.lines if (one := tracked(zone, text)) and wanted in one.destination]

    async def forget(self, found: list[Tracked]) -> None:
        gone = {(one.destination, one.server, one.source_port, one.protocol) for one in found}
        self.lines = [
            text
            for text in self.lines
            if (one := tracked(0, text))
            and (one.destination, one.server, one.source_port, one.protocol) not in gone
        ]
        self.looked.set()


@contextlib.asynccontextmanager
async def agent(datapath: Datapath, *rows: object) -> AsyncIterator[Facts]:
    facts = Facts()
    sink = StaleConnections(datapath, pause=0)
    for row in (AgentConfig(), NODE, *rows):
        facts.put(row)  # type: ignore[arg-type]
    engine: Engine = Engine(facts, UNITS, {UdpBinding: sink})
    async with asyncio.TaskGroup() as tasks:
        work = [tasks.create_task(one) for one in (engine.run(), sink.run(engine))]
        yield facts
        for task in work:
            task.cancel()


async def becomes(datapath: Datapath, *wanted: str) -> None:
    """Wait until these connections stand, and no others, after a look at least."""
    async with asyncio.timeout(30):
        while True:
            await datapath.looked.wait()
            datapath.looked.clear()
            if datapath.lines == [*wanted]:
                return


async def test_a_connection_to_an_endpoint_that_is_gone_is_forgotten_and_no_other() -> None:
    gone, stays = line("10.10.0.12"), line("10.10.0.13", source=40001)
    others = [
        line("10.10.0.12", protocol="tcp"),
        line("10.10.0.12", port=54, source=40002),
        line("10.10.0.12", to="10.96.0.11", source=40003),
        line("fd00:10::c", to=IP6),
    ]
    datapath = Datapath(gone, stays, *others)
    one, two = endpoint("10.10.0.12"), endpoint("10.10.0.13")
    async with agent(datapath, DNS, one, two, endpoint("fd00:10::c")) as facts:
        await becomes(datapath, gone, stays, *others)
        facts.drop(ServiceEndpoint, one.key)
        await becomes(datapath, stays, *others)


async def test_a_connection_that_was_not_translated_is_forgotten_with_the_next_change() -> None:
    """It began before there was the Service, or its Endpoint, which is gone, answered the client directly."""
    early = line(IP, source=40004)
    datapath = Datapath(early, stays := line("10.10.0.13"))
    async with agent(datapath, DNS, endpoint("10.10.0.13")) as facts:
        await becomes(datapath, stays)
        datapath.lines.append(early)
        facts.put(endpoint("10.10.0.12"))
        await becomes(datapath, stays)


async def test_an_endpoint_that_is_no_longer_ready_is_gone_too() -> None:
    datapath = Datapath(gone := line("10.10.0.12"))
    one = endpoint("10.10.0.12")
    async with agent(datapath, DNS, one, endpoint("10.10.0.13")) as facts:
        await becomes(datapath, gone)
        facts.put(msgspec.structs.replace(one, ready=False, serving=False))
        await becomes(datapath)


@pytest.mark.parametrize("change", ["it ends", "its Node changes", "hints", "policy Local"])
async def test_what_only_decides_on_new_connections_ends_none(change: str) -> None:
    """As with kube-proxy, and as TCP has it: who ends serves its clients to the end."""
    datapath = Datapath(stays := line("10.10.0.12"))
    one, other = endpoint("10.10.0.12"), endpoint("10.10.0.13")
    cases: dict[str, dict[str, Any]] = {
        "it ends": {"ready": False, "serving": True, "terminating": True},
        "its Node changes": {"node": "n2"},
        "hints": {"zones": ("far",)},
        "policy Local": {"node": "n2"},
    }
    service = msgspec.structs.replace(DNS, internal_local=change == "policy Local")
    async with agent(datapath, DNS, AgentNode("n1", (), (), NEAR), one, other) as facts:
        await becomes(datapath, stays)
        facts.put(service)
        facts.put(msgspec.structs.replace(one, **cases[change]))
        facts.put(msgspec.structs.replace(other, zones=("near",)))
        datapath.lines.append(gone := line("10.10.0.14", source=40009))
        facts.put(endpoint("10.10.0.14"))
        await becomes(datapath, stays, gone)
        facts.drop(ServiceEndpoint, endpoint("10.10.0.14").key)
        await becomes(datapath, stays)


async def test_an_endpoint_with_another_port_is_another_endpoint() -> None:
    datapath = Datapath(before := line("10.10.0.12"))
    one = endpoint("10.10.0.12")
    async with agent(datapath, DNS, one) as facts:
        await becomes(datapath, before)
        facts.put(msgspec.structs.replace(one, port=5354))
        await becomes(datapath)


async def test_node_ports_and_external_addresses_are_looked_at_too() -> None:
    """Of the host by the virtual address, of Pods by the Node's."""
    external, own = "198.51.100.9", "192.0.2.1"
    service = msgspec.structs.replace(
        DNS, ips=(IP, IP6, external), external_ips=(external,), node_ports=(30053, 0)
    )
    ways = [("169.254.0.252", 30053), (own, 30053), (external, 53)]
    gone = [line("10.10.0.12", to=ip, port=port) for ip, port in ways]
    stays = [line("10.10.0.13", to=ip, port=port, source=40001) for ip, port in ways]
    others = [line("10.10.0.12", to="192.0.2.7", port=30053)]
    datapath = Datapath(*gone, *stays, *others)
    one, two = endpoint("10.10.0.12"), endpoint("10.10.0.13")
    proxy_all = AgentConfig(antrea_proxy=AntreaProxy(proxy_all=True))
    async with agent(datapath, service, proxy_all, LocalAddress(own, "eth0"), one, two) as facts:
        await becomes(datapath, *gone, *stays, *others)
        facts.drop(ServiceEndpoint, one.key)
        await becomes(datapath, *stays, *others)


@pytest.mark.parametrize(
    "change", ["gone", "another address", "another port", "headless", "the last Endpoint"]
)
async def test_without_a_service_no_connection_to_its_address_is_translated(change: str) -> None:
    """In either family; a Service that has another address, type or port is another Service there."""
    both = [line("10.10.0.12"), line("fd00:10::c", to=IP6)]
    datapath = Datapath(*both)
    rows = (endpoint("10.10.0.12"), endpoint("fd00:10::c"))
    async with agent(datapath, DNS, *rows) as facts:
        await becomes(datapath, *both)
        if change == "the last Endpoint":
            for row in rows:
                facts.drop(ServiceEndpoint, row.key)
        elif change == "another address":
            facts.put(msgspec.structs.replace(DNS, ips=("10.96.0.99", "fd00:96::99")))
        elif change == "another port":
            facts.put(msgspec.structs.replace(DNS, ports=(("UDP", 54), ("TCP", 54))))
        else:
            spec = core.ServiceSpec(cluster_ips=("None",))
            assert service_row(core.Service(spec=spec)) is None
            facts.drop(Service, DNS.key)
        await becomes(datapath)


async def test_what_changed_while_no_agent_ran_is_forgotten_at_its_start() -> None:
    datapath = Datapath(line("10.10.0.12"), stays := line("10.10.0.13", source=40001), away=2)
    async with agent(datapath, DNS, endpoint("10.10.0.13")):
        await becomes(datapath, stays)
    assert datapath.asked == 3


def test_endpoints_of_tcp_and_of_services_of_others_bind_nothing() -> None:
    facts = Facts()
    left = msgspec.structs.replace(DNS, name="left", proxy_name="mesh")
    tcp = endpoint("10.10.0.12", "dns-tcp", "TCP")
    foreign = msgspec.structs.replace(endpoint("10.10.0.13"), service="a/left", slice="a/left")
    for row in (AgentConfig(), NODE, DNS, left, tcp, foreign):
        facts.put(row)
    engine = Engine(facts, UNITS)
    engine.plan()
    assert not engine.errors.standing
    assert list(engine.standing().values()) == []
