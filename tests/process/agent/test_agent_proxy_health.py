"""Health checks of Services over HTTP: kube-proxy's words and codes, ports that come and go, strangers that stay."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

import aiohttp
import pytest
from free_port import free_port

from antrea.config.agent import AgentConfig
from antrea.config.agent_sections import AntreaProxy
from antrea.engine import Engine, Facts
from antrea.facts.member import AgentNode
from antrea.facts.node import ThisNode
from antrea.facts.service import HealthCheck, ServiceEndpoint, ServicePort
from antrea.features.proxy.agent_part.health import LATE_SECONDS, RETRY_SECONDS, HealthServers, ProxyHealth
from antrea.outside.http.probe_server import LIMITS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

NODE = ThisNode("n1", ("10.10.0.0/24", "fd00:10::/64"), ("192.0.2.1",), ("192.0.2.1",))
ROW = AgentNode("n1", ("192.0.2.1",), ())
WEB = ServicePort("a/web", "http", "TCP", 80, ("10.96.0.10",))
ENDPOINT = ServiceEndpoint("a/web-1", "a/web", "http", "TCP", "10.10.0.7", 8080, "n1", True, True, False)


class Got(NamedTuple):
    status: int
    body: str
    headers: dict[str, str]


class World:
    """Servers over rows that the test writes; `now` is the time."""

    def __init__(self) -> None:
        self.facts = Facts()
        for row in (NODE, ROW, WEB, ENDPOINT):
            self.facts.put(row)
        self.now, self.port = 1000.0, free_port()
        address = f"127.0.0.1:{self.port}"
        config = AgentConfig(
            antrea_proxy=AntreaProxy(proxy_all=True, service_health_check_server_bind_address=address)
        )
        self.health = ProxyHealth(self.facts, "n1", lambda: self.now)
        self.said: list[tuple[str, str]] = []
        self.servers = HealthServers(self.facts, config, self.health, self._note)

    def _note(self, message: str, check: HealthCheck | None) -> None:
        self.said.append((message, check.key if check else ""))

    async def get(self, port: int, path: str = "/") -> Got:
        """Of the server that is about to listen there."""
        async with asyncio.timeout(30), aiohttp.ClientSession() as session:
            while True:
                with contextlib.suppress(aiohttp.ClientConnectionError):
                    async with session.get(f"http://127.0.0.1:{port}{path}") as found:
                        return Got(found.status, await found.text(), dict(found.headers))
                await asyncio.sleep(0.01)


@pytest.fixture
async def world() -> AsyncIterator[World]:
    found = World()
    running = asyncio.create_task(found.servers.run())
    yield found
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_a_load_balancer_learns_how_many_endpoints_are_here(world: World) -> None:
    world.facts.put(HealthCheck("a", "web", port := free_port()))
    found = await world.get(port, "/any")
    assert (found.status, found.body) == (
        200,
        '{\n\t"service": {\n\t\t"namespace": "a",\n\t\t"name": "web"\n\t},\n\t"localEndpoints": 1,\n\t"serviceProxyHealthy": true\n}',
    )
    assert found.headers["Content-Type"] == "application/json"
    assert found.headers["X-Content-Type-Options"] == "nosniff"
    assert found.headers["X-Load-Balancing-Endpoint-Weight"] == "1"
    world.facts.drop(ServiceEndpoint, ENDPOINT.key)
    found = await world.get(port)
    assert (found.status, json.loads(found.body)["localEndpoints"]) == (503, 0)


async def test_ports_follow_the_services_that_ask_for_them(world: World) -> None:
    world.facts.put(HealthCheck("a", "web", port := free_port()))
    assert (await world.get(port)).status == 200
    world.facts.put(HealthCheck("a", "web", other := free_port()))
    assert (await world.get(other)).status == 200
    world.facts.drop(HealthCheck, "a/web")
    async with asyncio.timeout(30):
        for gone in (port, other):
            while await listens(gone):  # noqa: ASYNC110 (the server ends in a task of its own)
                await asyncio.sleep(0.01)
    assert world.said == []


async def test_a_port_goes_over_to_the_next_service_that_asks_for_it(world: World) -> None:
    """As when a Service is deleted and made again with its healthCheckNodePort: between them nobody else has it."""
    port = free_port()
    world.facts.put(HealthCheck("a", "web", port, "u1"))
    assert (await world.get(port)).status == 200
    world.facts.put(HealthCheck("a", "web", port, "u2"))
    world.facts.put(HealthCheck("a", "web", port, "u3"))
    await asyncio.sleep(0.2)
    assert (await world.get(port)).status == 200
    world.facts.drop(HealthCheck, "a/web")
    world.facts.put(HealthCheck("a", "other", port))
    async with asyncio.timeout(RETRY_SECONDS - 1):
        while json.loads((await world.get(port)).body)["service"]["name"] != "other":  # noqa: ASYNC110 (a request)
            await asyncio.sleep(0.01)
    assert world.said == []


async def listens(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except ConnectionError:
        return False
    writer.close()
    return True


async def test_a_port_that_another_program_has_is_told_once_and_no_other_service_misses_its_own(
    world: World,
) -> None:
    with socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True) as taken:
        number = taken.getsockname()[1]
        world.facts.put(HealthCheck("a", "bad", number))
        world.facts.put(HealthCheck("a", "web", port := free_port()))
        assert (await world.get(port)).status == 200
        world.facts.put(HealthCheck("a", "third", third := free_port()))
        assert (await world.get(third)).status == 503
    message = f"Health checks of Service a/bad cannot be answered: port {number} cannot be opened: Address already in use"
    ((said, whose),) = world.said
    assert (said.startswith(message), whose) == (True, "a/bad")


async def test_the_proxy_says_how_it_is(world: World) -> None:
    found = await world.get(world.port, "/healthz")
    said = json.loads(found.body)
    times = [said.pop("lastUpdated"), said.pop("currentTime")]
    times += [said["status"][family].pop("lastUpdated") for family in ("IPv4", "IPv6")]
    assert [datetime.fromisoformat(at).tzinfo for at in times] == [UTC] * 4
    assert (found.status, said) == (
        200,
        {
            "nodeEligible": True,
            "healthy": True,
            "status": {"IPv4": {"healthy": True}, "IPv6": {"healthy": True}},
        },
    )
    assert (await world.get(world.port, "/other")).status == 404
    world.facts.put(AgentNode("n1", ("192.0.2.1",), (), being_removed=True))
    found = await world.get(world.port, "/healthz")
    assert (found.status, json.loads(found.body)["nodeEligible"]) == (503, False)
    found = await world.get(world.port, "/livez")
    assert (found.status, "nodeEligible" in json.loads(found.body)) == (200, False)


async def test_changes_that_do_not_take_effect_make_the_proxy_unhealthy(world: World) -> None:
    """No sink has begun: nothing is applied."""
    world.facts.put(HealthCheck("a", "web", port := free_port()))
    following = asyncio.create_task(world.health.run(Engine(world.facts, ())))
    assert (await world.get(world.port, "/healthz")).status == 200
    world.now += LATE_SECONDS
    found = await world.get(world.port, "/healthz")
    assert (found.status, json.loads(found.body)["status"]["IPv4"]["healthy"]) == (503, False)
    found = await world.get(port)
    assert (found.status, json.loads(found.body)["serviceProxyHealthy"]) == (503, False)
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)


async def test_strangers_who_say_nothing_do_not_keep_load_balancers_out(world: World) -> None:
    assert (await world.get(world.port, "/livez")).status == 200
    async with contextlib.AsyncExitStack() as held:
        for _ in range(LIMITS.connections + 20):
            _, writer = await asyncio.open_connection("127.0.0.1", world.port)
            held.callback(writer.close)
        assert (await world.get(world.port, "/livez")).status == 200
