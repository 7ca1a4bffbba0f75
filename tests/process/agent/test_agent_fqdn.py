"""Addresses of names are kept up to date by questions to a DNS server, here one of the test on loopback."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import time
from typing import TYPE_CHECKING

import dns.flags
import dns.message
import dns.rcode
import dns.rrset
import pytest
from free_port import free_port

from antrea.config.agent import AgentConfig
from antrea.engine import Engine, Facts
from antrea.errors import Unavailable
from antrea.facts.node import ThisNode
from antrea.features.network_policy.agent.fqdn import FqdnAddress, FqdnPattern
from antrea.features.network_policy.agent.fqdn_cache import MAX_NAMES_PER_WILDCARD
from antrea.features.network_policy.agent.received import SentPolicy
from antrea.features.network_policy.agent_part.fqdn import FqdnController, nearly_full
from antrea.features.network_policy.agent_part.metrics import name_metrics
from antrea.features.network_policy.agent_part.name_scope import pod_scope
from antrea.features.node_policy.agent_part.part import node_scope
from antrea.features.node_policy.fqdn import NodeFqdnAddress, NodeFqdnPattern
from antrea.outside import name_server

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from antrea.facts.fact import Fact
    from antrea.features.network_policy.agent.fqdn_cache import Fill

NODE = ThisNode("n1", ("10.10.0.0/24", "fd00:10::/64"))


class NameServer(asyncio.DatagramProtocol):
    """Answers over UDP and TCP what `records` says; over UDP truncated if `truncates`."""

    def __init__(self) -> None:
        self.records: dict[str, list[str]] = {}
        """Addresses by name."""
        self.code = dns.rcode.NOERROR
        self.ttl, self.truncates = 1, False
        self.forged: dict[str, list[str]] = {}
        """Addresses by name, in answers with another transaction id, which come before the true ones."""
        self.hangs_up = False
        """Whether a connection over TCP ends without an answer."""
        self.hung_up = 0
        self.asked: list[str] = []
        self.port = free_port()
        """For both protocols, and nobody else's while it is closed."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        if self.forged:
            true, self.records = self.records, self.forged
            forged = self.answer(data)
            self.records, forged.id = true, forged.id ^ 1
            self._transport.sendto(forged.to_wire(), addr)  # type: ignore[attr-defined]
        said = self.answer(data)
        if self.truncates:
            said = dns.message.make_response(dns.message.from_wire(data))
            said.flags |= dns.flags.TC
        self._transport.sendto(said.to_wire(), addr)  # type: ignore[attr-defined]

    async def stream(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError):
            data = await reader.readexactly(int.from_bytes(await reader.readexactly(2)))
            self.hung_up += self.hangs_up
            said = b"" if self.hangs_up else self.answer(data).to_wire()
            writer.write(len(said).to_bytes(2) + said if said else b"")
            await writer.drain()
        writer.close()

    def answer(self, data: bytes) -> dns.message.Message:
        said = dns.message.make_response(dns.message.from_wire(data))
        (question,) = said.question
        name, v6 = question.name.to_text(omit_final_dot=True), question.rdtype == dns.rdatatype.AAAA
        self.asked.append(name)
        said.set_rcode(self.code)
        for address in self.records.get(name, []):
            if (":" in address) is v6:
                kind = dns.rdatatype.to_text(question.rdtype)
                said.answer.append(dns.rrset.from_text(question.name, self.ttl, "IN", kind, address))
        return said

    async def open(self) -> None:
        """Listen."""
        loop = asyncio.get_running_loop()
        self._streams = await asyncio.start_server(self.stream, "127.0.0.1", self.port)
        await loop.create_datagram_endpoint(lambda: self, ("127.0.0.1", self.port))

    def close(self) -> None:
        self._transport.close()
        self._streams.close()


@pytest.fixture
async def server() -> AsyncIterator[NameServer]:
    found = NameServer()
    await found.open()
    yield found
    found.close()


class Node:
    """An agent whose rules have these patterns, without a switch."""

    def __init__(self, server: NameServer, keep: Path, *patterns: str) -> None:
        self.facts = Facts()
        for row in (NODE, *map(FqdnPattern, patterns)):
            self.facts.put(row)
        self.facts.synced(SentPolicy)
        config = AgentConfig(dns_server_override=f"127.0.0.1:{server.port}")
        scope = pod_scope(self.facts, config, keep)
        self.names = FqdnController(self.facts, scope, _settled, retry=0.2)
        self._engine = Engine(self.facts, (), {})

    def addresses(self) -> set[str]:
        return {row.address for row in self.facts.all(FqdnAddress)}

    async def until(self, true: Callable[[], object]) -> None:
        async with asyncio.timeout(60):
            while not true():  # noqa: ASYNC110 (what another process sends)
                await asyncio.sleep(0.02)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[Node]:
        tasks = [asyncio.create_task(one.run()) for one in (self._engine, self.names)]
        try:
            yield self
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def _settled(_: Fact) -> None:
    return


async def test_an_exact_name_is_asked_for_in_both_families_and_followed(
    server: NameServer, tmp_path: Path
) -> None:
    server.records["api.example"] = ["192.0.2.1", "2001:db8::1"]
    async with Node(server, tmp_path / "names", "api.example", "*.test").running() as node:
        await node.until(lambda: node.addresses() == {"192.0.2.1", "2001:db8::1"})
        server.records["api.example"] = ["192.0.2.2"]
        await node.until(lambda: node.addresses() == {"192.0.2.2"})
        assert set(server.asked) == {"api.example"}


async def test_a_truncated_answer_is_asked_for_by_tcp(server: NameServer, tmp_path: Path) -> None:
    server.records["api.example"], server.truncates = ["192.0.2.1"], True
    async with Node(server, tmp_path / "names", "api.example").running() as node:
        await node.until(lambda: node.addresses() == {"192.0.2.1"})


async def test_an_answer_with_another_transaction_id_neither_counts_nor_ends_the_question(
    server: NameServer, tmp_path: Path
) -> None:
    server.records["api.example"], server.forged = ["192.0.2.1"], {"api.example": ["192.0.2.66"]}
    async with Node(server, tmp_path / "names", "api.example").running() as node:
        await node.until(node.addresses)
        assert node.addresses() == {"192.0.2.1"}


async def test_names_that_nearly_reach_a_limit_are_told_once_and_have_a_condition(
    server: NameServer, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At four fifths of it, by the log, the condition and the metric."""
    async with Node(server, tmp_path / "names", "*.example").running() as node:
        cache, full = node.names.cache, node.names.nearly_full
        await node.until(lambda: cache.patterns)
        most = MAX_NAMES_PER_WILDCARD * 4 // 5
        for number in range(most):
            cache.learn(f"n{number}.example", [("192.0.2.1", 60)], time.monotonic())
        assert not nearly_full([node.names])
        cache.learn("one-more.example", [("192.0.2.1", 60)], time.monotonic())
        told = f"of *.example in rules on pods {most + 1} of {MAX_NAMES_PER_WILDCARD}"
        assert told in nearly_full([node.names])
        await node.until(lambda: "Names in rules nearly reach their limit" in caplog.text)
        looks: list[list[Fill]] = []

        def counted() -> list[Fill]:
            looks.append(full())
            return looks[-1]

        monkeypatch.setattr(node.names, "nearly_full", counted)
        await node.until(lambda: len(looks) >= 2)
        assert caplog.text.count("Names in rules nearly reach their limit") == 1
        assert 'fqdn_cache_fill_ratio{limit="selector_limit"} 0.801' in name_metrics([node.names])


async def test_a_server_that_hangs_up_is_asked_again(server: NameServer, tmp_path: Path) -> None:
    server.records["api.example"], server.truncates, server.hangs_up = ["192.0.2.1"], True, True
    async with Node(server, tmp_path / "names", "api.example").running() as node:
        await node.until(lambda: server.hung_up)
        server.hangs_up = False
        await node.until(lambda: node.addresses() == {"192.0.2.1"})


async def test_addresses_stay_while_the_server_fails_and_go_when_it_says_so(
    server: NameServer, tmp_path: Path
) -> None:
    server.records["api.example"] = ["192.0.2.1"]
    async with Node(server, tmp_path / "names", "api.example").running() as node:
        await node.until(node.addresses)
        server.code, before = dns.rcode.SERVFAIL, len(server.asked)
        await node.until(lambda: len(server.asked) > before + 2)
        assert node.addresses() == {"192.0.2.1"}
        server.code = dns.rcode.NXDOMAIN
        server.records.clear()
        await node.until(lambda: not node.addresses())


async def test_the_next_server_is_asked_where_one_fails(server: NameServer, tmp_path: Path) -> None:
    failing = NameServer()
    failing.code = dns.rcode.SERVFAIL
    await failing.open()
    server.records["api.example"] = ["192.0.2.1"]
    node = Node(server, tmp_path / "names", "api.example")
    servers = [("127.0.0.1", one.port) for one in (failing, server)]
    node.names._scope = node.names._scope._replace(servers=lambda: servers)
    async with node.running():
        await node.until(lambda: node.addresses() == {"192.0.2.1"})
    assert failing.asked
    failing.close()


async def test_a_name_that_has_another_address_each_second_has_one_at_a_time(
    server: NameServer, tmp_path: Path
) -> None:
    """As often as its server tells, and no address stays that the server no longer has."""
    async with Node(server, tmp_path / "names", "api.example").running() as node:
        for number in range(1, 4):
            server.records["api.example"] = [f"192.0.2.{number}"]
            await node.until(lambda number=number: node.addresses() == {f"192.0.2.{number}"})  # type: ignore[misc]
        assert len(node.names.cache) == 1


async def test_addresses_in_rules_on_the_node_stay_while_no_resolver_is_there(
    server: NameServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And follow it once it is back, though a question to the one that went is never answered."""
    ask, failed = functools.partial(name_server.ask, seconds=0.5), []

    async def counted(name: str, *, v6: bool, server: tuple[str, int]) -> bytes:
        try:
            return await ask(name, v6=v6, server=server)
        except Unavailable as error:
            failed.append(error)
            raise

    monkeypatch.setattr(name_server, "ask", counted)
    server.records["api.example"] = ["192.0.2.1"]
    facts = Facts()
    for row in (NODE, NodeFqdnPattern("api.example")):
        facts.put(row)
    facts.synced(SentPolicy)
    config = AgentConfig(dns_server_override=f"127.0.0.1:{server.port}")
    node = Node(server, tmp_path / "unused")
    node.facts = facts
    node.names = FqdnController(facts, node_scope(facts, config, tmp_path / "names"), _settled, retry=0.2)
    node._engine = Engine(facts, (), {})

    def addresses() -> set[str]:
        return {row.address for row in facts.all(NodeFqdnAddress)}

    async with node.running():
        await node.until(addresses)
        server.close()
        failed.clear()
        # more than the time to live of the answer and the time of one question
        await node.until(lambda: len(failed) >= 3)
        assert addresses() == {"192.0.2.1"}
        server.records["api.example"] = ["192.0.2.2"]
        await server.open()
        await node.until(lambda: addresses() == {"192.0.2.2"})


async def test_what_an_earlier_agent_kept_is_there_at_once_and_a_damaged_file_is_kept_aside(
    server: NameServer, tmp_path: Path
) -> None:
    keep = tmp_path / "names"
    server.records["api.example"], server.ttl = ["192.0.2.1"], 3600
    async with Node(server, keep, "api.example").running() as node:
        await node.until(lambda: keep.exists() and b"192.0.2.1" in keep.read_bytes())
    assert Node(server, keep, "api.example").addresses() == {"192.0.2.1"}
    keep.write_bytes(keep.read_bytes()[:-1] + b"x")
    assert Node(server, keep, "api.example").addresses() == set()
    assert (tmp_path / "names.damaged").exists()
