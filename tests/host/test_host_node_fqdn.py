"""Rules on names meet what a Node resolves and connects to: DNS answers are held by the kernel until the address is in the set."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from typing import TYPE_CHECKING

import pytest
from node_host import EVERYBODY, FAMILIES, FRIEND, HOME, PORT, STRANGER, Host, peer, policy, rule

from antrea.apis import controlplane as cp
from antrea.apis.annotation import AUDIT
from antrea.config.agent import AgentConfig
from antrea.errors import Unavailable
from antrea.features.network_policy.agent.received import SentPolicy
from antrea.features.network_policy.agent_part.fqdn import HELD_SECONDS, FqdnController, untrusted
from antrea.features.node_policy.agent_part.part import NodeAnswers, node_scope
from antrea.features.node_policy.fqdn import QUEUE, AnswerQueue, UntrustedNodeAnswer
from antrea.features.node_policy.match import name_set

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from conftest import Namespaces

    from antrea.features.network_policy.agent.fqdn import FqdnAddress

PREFIX = {"ip": "198.51.100.", "ip6": "2001:db8:9::"}
"""Of the addresses that names have: `n7.example.com` has the 7th."""
KINDS = {"ip": "A", "ip6": "AAAA"}
SOCKETS = {"ip": "AF_INET", "ip6": "AF_INET6"}
NAMES = 40
SERVER = f"""
import dns.message, dns.rdatatype, dns.rrset, socket, threading
PREFIX = {{dns.rdatatype.A: "{PREFIX["ip"]}", dns.rdatatype.AAAA: "{PREFIX["ip6"]}"}}
def answer(data, number=""):
    said = dns.message.make_response(dns.message.from_wire(data))
    (asked,) = said.question
    kind = dns.rdatatype.to_text(asked.rdtype)
    if number:
        said.id ^= 1
    number = number or asked.name.labels[0][1:].decode()
    said.answer.append(dns.rrset.from_text(asked.name, 60, "IN", "CNAME", "edge.test."))
    said.answer.append(dns.rrset.from_text("edge.test.", 60, "IN", kind, PREFIX[asked.rdtype] + number))
    return said.to_wire()
def udp(ip):
    with socket.socket(socket.AF_INET6 if ":" in ip else socket.AF_INET, socket.SOCK_DGRAM) as one:
        one.bind((ip, 53))
        ready.release()
        while True:
            data, client = one.recvfrom(4096)
            if data[13:14] == b"t":
                one.sendto(answer(data, "99"), client)
            one.sendto(answer(data), client)
def tcp(ip):
    with socket.create_server((ip, 53), family=socket.AF_INET6 if ":" in ip else socket.AF_INET) as one:
        ready.release()
        while True:
            client, _ = one.accept()
            with client, client.makefile("rwb") as stream:
                data = answer(stream.read(int.from_bytes(stream.read(2))))
                # in two segments
                stream.write((len(data).to_bytes(2) + data)[:9]); stream.flush()
                stream.write(data[7:]); stream.flush()
def web():
    with socket.create_server(("::", {PORT}), family=socket.AF_INET6, dualstack_ipv6=True) as one:
        ready.release()
        while True:
            one.accept()[0].close()
ready = threading.Semaphore(0)
jobs = [(udp, (ip,)) for ip in {tuple(FRIEND.values())}] + [(tcp, (ip,)) for ip in {tuple(FRIEND.values())}] + [(web, ())]
for job, args in jobs:
    threading.Thread(target=job, args=args, daemon=True).start()
for _ in jobs:
    ready.acquire()
print("listening", flush=True)
threading.Event().wait()
"""
"""Gives each name of the form `n7.*` an address, by an alias, and answers to TCP there. Before the answer on `t7.*` comes one with another transaction id and address."""
CLIENT = """
import dns.message, dns.query, socket, sys
server, kind, by, port, *names = sys.argv[1:]
more = {} if by == "tcp" else {"ignore_errors": True}
ask = dns.query.tcp if by == "tcp" else dns.query.udp
for name in names:
    said = ask(dns.message.make_query(name, kind), server, timeout=30, **more)
    address = said.answer[-1][0].address
    try:
        socket.create_connection((address, int(port)), timeout=30).close()
        print("connected", end=" ", flush=True)
    except OSError as no:
        print(type(no).__name__, end=" ", flush=True)
"""
"""Resolves each name and connects at once."""


class NodeNames:
    """The agent's part in it: the cache, and the queue of answers."""

    def __init__(self, host: Host, keep: Path) -> None:
        self.host, self.keep = host, keep
        self.trusted = tuple(FRIEND.values())
        """Servers that are trusted beside those of the cluster and of the Node."""

    @contextlib.asynccontextmanager
    async def running(
        self, *rules: cp.NetworkPolicyRule, enforcement: str = ""
    ) -> AsyncIterator[FqdnController]:
        host = self.host
        async with host.enforced(policy("p", *rules, enforcement=enforcement)) as engine:

            async def settled(row: FqdnAddress) -> None:
                await engine.settled(type(row), row.key)

            config = AgentConfig(fqdn_trusted_dns_servers=self.trusted)
            self.names = FqdnController(host.facts, node_scope(host.facts, config, self.keep), settled)
            answers = NodeAnswers(host.facts, self.names)
            host.facts.synced(SentPolicy)
            work = [asyncio.create_task(one.run()) for one in (self.names, answers)]
            try:
                await until(lambda: host.facts.all(AnswerQueue))
                await engine.quiet()
                yield self.names
            finally:
                for one in work:
                    one.cancel()
                await asyncio.gather(*work, return_exceptions=True)

    async def resolves(self, family: str, by: str, *names: str) -> set[str]:
        """What a process of the Node finds that asks for these names and connects to each at once."""
        words = ["ip", "netns", "exec", self.host.netns.home, sys.executable, "-c", CLIENT]
        asked = [*words, FRIEND[family], KINDS[family], by, str(PORT), *names]
        run = await asyncio.create_subprocess_exec(*asked, stdout=asyncio.subprocess.PIPE)
        out, _ = await run.communicate()
        assert run.returncode == 0
        found = out.decode().split()
        assert len(found) == len(names)
        return set(found)


async def until(true: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not true():  # noqa: ASYNC110 (what another process does)
            await asyncio.sleep(0.02)


@pytest.fixture
def node(netns: Namespaces, tmp_path: Path) -> NodeNames:
    host = Host(netns)
    for family, length in (("ip", 24), ("ip6", 64)):
        version = "-6" if family == "ip6" else "-4"
        netns.sh(f"ip {version} route add local {PREFIX[family]}0/{length} dev lo", host.beside)
        netns.sh(f"ip {version} route add {PREFIX[family]}0/{length} via {FRIEND[family]}")
    queue_answers(netns)
    return NodeNames(host, tmp_path / "names")


def queue_answers(netns: Namespaces) -> None:
    """On a kernel without statement `queue` of nftables: the same by iptables, whose target leads to the same queue."""
    trial = "add table inet t; add chain inet t c; add rule inet t c queue flags bypass to 1"
    if netns.run(f"nft '{trial}; delete table inet t'").returncode == 0:
        return
    for command in ("iptables-legacy", "ip6tables-legacy"):
        for protocol in ("udp", "tcp"):
            reply = "-m conntrack --ctstate ESTABLISHED --ctdir REPLY --ctorigdstport 53"
            queue = f"-j NFQUEUE --queue-num {QUEUE} --queue-bypass"
            netns.sh(f"{command} -t mangle -A INPUT -p {protocol} {reply} {queue}")


NAMED = cp.NetworkPolicyPeer(fqdns=("*.Example.com.", "only.test"))
DNS = tuple(cp.Service(protocol=protocol, port=53) for protocol in ("UDP", "TCP"))
RULES = (
    rule("Out", NAMED, "Allow"),
    rule("Out", peer(*EVERYBODY), "Allow", services=DNS, priority=1),
    rule("Out", peer(*EVERYBODY), "Reject", priority=2),
)
"""A connection that is judged before the address is known fails at once."""


@FAMILIES
@pytest.mark.parametrize("by", ["udp", "tcp"])
async def test_the_first_connection_after_the_answer_is_let_through(
    node: NodeNames, family: str, by: str
) -> None:
    with node.host.netns.serving(node.host.beside, SERVER):
        async with node.running(*RULES) as names:
            assert await node.resolves(family, by, "n7.other.com") == {"ConnectionRefusedError"}
            assert len(names.cache) == 0
            many = [f"n{number}.example.com" for number in range(10, 10 + NAMES)]
            assert await node.resolves(family, by, *many) == {"connected"}
            assert len(names.cache) == NAMES
            assert not names.dropped


@FAMILIES
@pytest.mark.parametrize("by", ["udp", "tcp"])
async def test_an_answer_waits_until_its_address_is_in_the_set(node: NodeNames, family: str, by: str) -> None:
    """The client, which connects as soon as it has the answer, does not have it before."""
    with node.host.netns.serving(node.host.beside, SERVER):
        async with node.running(*RULES) as names:
            held, go_on, applied = asyncio.Event(), asyncio.Event(), names._settled

            async def late(row: FqdnAddress) -> None:
                await applied(row)
                held.set()
                await go_on.wait()

            names._settled = late
            client = asyncio.create_task(node.resolves(family, by, "n7.example.com"))
            async with asyncio.timeout(60):
                await held.wait()
            # longer than a client needs that has its answer, and less than answers are held at most
            _, waits = await asyncio.wait({client}, timeout=HELD_SECONDS / 2)
            assert waits == {client}
            go_on.set()
            assert await client == {"connected"}
            assert not names.dropped


@FAMILIES
async def test_addresses_outlive_the_agent_and_nobody_else_gives_any(node: NodeNames, family: str) -> None:
    with node.host.netns.serving(node.host.beside, SERVER):
        async with node.running(*RULES) as names:
            # from port 53, and nobody has asked
            forged = (
                "import dns.message, dns.rrset, socket;"
                f"said = dns.message.make_response(dns.message.make_query('n9.example.com', '{KINDS[family]}'));"
                f"said.answer.append(dns.rrset.from_text('n9.example.com.', 60, 'IN', '{KINDS[family]}', '{PREFIX[family]}9'));"
                f"one = socket.socket(socket.{SOCKETS[family]}, socket.SOCK_DGRAM); one.bind(('{STRANGER[family]}', 53));"
                f"one.sendto(said.to_wire(), ('{HOME[family]}', 40000))"
            )
            node.host.netns.sh(f'{sys.executable} -c "{forged}"', node.host.beside)
            assert await node.resolves(family, "udp", "n7.example.com") == {"connected"}
            assert {row.fqdn_name for row in names.answers()} == {"n7.example.com"}
            await until(
                lambda: node.keep.exists() and f"{PREFIX[family]}7".encode() in node.keep.read_bytes()
            )
        async with node.running(*RULES) as names:
            elements = node.host.netns.sh(
                f"nft list set inet antrea {name_set('*.example.com', ipv6=family == 'ip6')}"
            )
            assert f"{PREFIX[family]}7" in elements
            assert {row.fqdn_name for row in names.answers()} == {"n7.example.com"}


@FAMILIES
async def test_an_answer_with_another_transaction_id_reaches_the_client_and_what_it_says_counts_for_its_name_alone(
    node: NodeNames, family: str
) -> None:
    """Questions are not seen: what comes from the address and port that were asked is believed, of names in rules alone."""
    with node.host.netns.serving(node.host.beside, SERVER):
        async with node.running(*RULES) as names:
            assert await node.resolves(family, "udp", "t7.example.com") == {"connected"}
            assert await node.resolves(family, "udp", "t8.other.com") == {"ConnectionRefusedError"}
            found = {(row.fqdn_name, row.ip_address) for row in names.answers()}
            assert found == {("t7.example.com", f"{PREFIX[family]}{number}") for number in (7, 99)}
            assert not names.dropped


@FAMILIES
async def test_answers_of_a_server_that_is_not_trusted_count_for_no_rule_and_the_agent_says_so(
    node: NodeNames, family: str
) -> None:
    """They open no address of the Node, and close none, since a process could close any."""
    node.trusted = ()
    with node.host.netns.serving(node.host.beside, SERVER):
        async with node.running(*RULES) as names:
            assert await node.resolves(family, "udp", "n7.example.com") == {"ConnectionRefusedError"}
            assert len(names.cache) == 0
            assert f"{FRIEND[family]} by a process of node" in untrusted([names])
            assert node.host.facts.all(UntrustedNodeAnswer) == []


@FAMILIES
async def test_a_rule_that_denies_names_is_told_of_answers_of_a_server_that_is_not_trusted(
    node: NodeNames, family: str
) -> None:
    node.trusted = ()
    with node.host.netns.serving(node.host.beside, SERVER):
        async with node.running(rule("Out", NAMED, "Reject")):
            assert await node.resolves(family, "udp", "n7.example.com") == {"connected"}
            (row,) = node.host.facts.all(UntrustedNodeAnswer)
            assert row == UntrustedNodeAnswer("*.example.com", FRIEND[family])


@FAMILIES
async def test_answers_pass_while_no_agent_takes_them(node: NodeNames, family: str) -> None:
    with node.host.netns.serving(node.host.beside, SERVER):
        async with node.running(*RULES):
            assert await node.resolves(family, "udp", "n7.example.com") == {"connected"}
        # what is enforced stays: the address of the new name is not known
        assert await node.resolves(family, "udp", "n8.example.com") == {"ConnectionRefusedError"}
        assert await node.resolves(family, "udp", "n7.example.com") == {"connected"}


@FAMILIES
async def test_answers_that_audited_rules_alone_wait_for_are_read_and_not_held(
    node: NodeNames, family: str
) -> None:
    """Also if their addresses do not get into the sets in time."""
    with node.host.netns.serving(node.host.beside, SERVER):
        async with node.running(rule("Out", NAMED, "Drop"), enforcement=AUDIT) as names:

            async def never(row: FqdnAddress) -> None:
                raise Unavailable(row.key)

            names._settled = never
            assert await node.resolves(family, "udp", "n7.example.com") == {"connected"}
            await until(lambda: f"{PREFIX[family]}7" in node.host.netns.sh("nft list table inet antrea"))
            before = node.host.counted("np-p-0")
            assert await node.resolves(family, "udp", "n7.example.com") == {"connected"}
            assert node.host.counted("np-p-0") == before + 1
            assert not names.dropped


async def test_a_queue_that_another_process_has_is_told(node: NodeNames) -> None:
    async with node.running(*RULES):
        second = asyncio.create_task(NodeAnswers(node.host.facts, node.names).run())
        await until(lambda: node.host.facts.need(AnswerQueue, "").why_not.startswith(f"queue {QUEUE}"))
        second.cancel()
        await asyncio.gather(second, return_exceptions=True)
