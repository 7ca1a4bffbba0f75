"""Do 10,000 rules slow down new connections to a Pod?

`python -m benchmarks.policy_dataplane`: four Nodes with a real Open vSwitch in user space, each with the agent's flows for two Pods.
A client connects, sends a byte, gets it back and closes, again and again (TCP_CRR). The Pod that it connects to has no rule, or one
with 10,000 blocks, or 100 rules while 99 other Pods of the Node have as many of their own, or 10,000 rules of its own; one rule lets
the client in. By turns; figures are microseconds for one transaction, which the programs at both ends take part of (`crr`), of the switch's
processor for it (`switch`), and of a first one when the datapath has forgotten all it knew (`first`). Needs root.
"""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from figure import Against, alternate, show

from antrea.apis import controlplane as cp
from antrea.apis.meta import ObjectMetadata
from antrea.facts.ovs import PodInterface
from antrea.features.network_policy.agent.received import SentAppliedMember, SentPolicy
from antrea.features.network_policy.controller.peer import network
from antrea.openflow.flow import Flow
from benchmarks.cni_add import namespaces, open_vswitch, processes
from benchmarks.policy_packets import IPS, Agent, connected

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from antrea.facts.fact import Fact

PORT = 9010
RULES, PODS = 10_000, 100
SECONDS, ROUNDS = 0.4, 61
TARGET = 1 / 0.95
FIRSTS = 31
TIMEOUT = 120


def serve(address: str) -> None:
    """Give each connection its byte back, for ever."""
    with socket.create_server((address, PORT), backlog=512) as listener:
        print("listening", flush=True)
        while True:
            connection, _ = listener.accept()
            with connection:
                connection.sendall(connection.recv(1))
                connection.recv(1)  # the client closes first


def transact(address: str) -> None:
    with socket.create_connection((address, PORT), timeout=10) as connection:
        connection.sendall(b"x")
        assert connection.recv(1) == b"x"


def connect(address: str) -> None:
    """For each line with a number of seconds: how long it took, and how many transactions there were; one at least."""
    print("listening", flush=True)
    for line in sys.stdin:
        number, began = 0, time.monotonic()
        while (passed := time.monotonic() - began) < float(line) or not number:
            transact(address)
            number += 1
        print(passed, number, flush=True)


def blocks(number: int) -> list[str]:
    """So many, of one address each."""
    return [f"172.{16 + (n >> 16)}.{n >> 8 & 255}.{n & 255}/32" for n in range(number)]


def rule(cidrs: Iterable[str], port: int) -> cp.NetworkPolicyRule:
    peer = cp.NetworkPolicyPeer(ip_blocks=tuple(cp.IPBlock(cidr=network(cidr)) for cidr in cidrs))
    services = (cp.Service(protocol="TCP", port=port),)
    return cp.NetworkPolicyRule(
        direction="In", from_=peer, to=cp.NetworkPolicyPeer(), services=services, enable_logging=False
    )


def policy(name: str, pod: str, rules: Iterable[cp.NetworkPolicyRule]) -> Iterator[Fact]:
    """For one Pod, which is a group of its own."""
    yield SentAppliedMember(pod, cp.GroupMember(pod=cp.PodReference(name=pod, namespace="shop")))
    meta = ObjectMetadata(name=name, uid=name)
    source = cp.NetworkPolicyReference(type="K8sNetworkPolicy", namespace="shop", name=name, uid=name)
    yield SentPolicy(
        cp.NetworkPolicy(metadata=meta, rules=tuple(rules), applied_to_groups=(pod,), source_ref=source)
    )


def distinct(first: int, count: int) -> Iterator[cp.NetworkPolicyRule]:
    """No two of all are alike."""
    for number in range(first, first + count):
        yield rule([f"10.{number >> 8}.{number & 255}.0/24"], 10_000 + number)


def client() -> Iterator[Fact]:
    return policy("client", "p2", [rule([f"{IPS['p1']}/32"], PORT)])


def one_rule() -> Iterator[Fact]:
    """Of as many blocks, as upstream's own benchmark has it."""
    yield from policy("blocks", "p2", [rule(blocks(RULES), PORT)])
    yield from client()


def whole_node() -> Iterator[Fact]:
    """As many rules for each of its Pods."""
    each = RULES // PODS
    for number in range(1, PODS):
        name, ip, mac = f"f{number}", f"10.10.0.{100 + number}", f"0a:00:00:00:01:{number:02x}"
        yield PodInterface(name, name, "shop", name, mac, (ip,), 1000 + number, name)
        yield from policy(name, name, distinct(number * each, each))
    yield from policy("rules", "p2", distinct(0, each))
    yield from client()


def one_pod() -> Iterator[Fact]:
    """All for one."""
    for number in range(100):
        yield from policy(f"rules-{number}", "p2", distinct(number * 100, RULES // 100))
    yield from client()


SHAPES: dict[str, Callable[[], Iterable[Fact]]] = {
    "none": tuple,
    "one_rule": one_rule,
    "node": whole_node,
    "pod": one_pod,
}


class Node:
    """A switch of its own, with flows of one shape."""

    def __init__(self, stack: ExitStack) -> None:
        self.directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ovs-")))
        self.spaces = stack.enter_context(namespaces(len(IPS)))
        self._start = stack.enter_context(processes())
        _, self._switch = open_vswitch(self.directory, self._start)
        self.cpu: list[float] = []
        """Microseconds that the switch took for one transaction, in each round."""
        self._agent = Agent(self.directory, connected(self.directory, self.spaces))
        for space in self.spaces:
            settings = ("net.ipv4.tcp_tw_reuse=1", "net.ipv4.ip_local_port_range=10000 65000")
            subprocess.run(["nsenter", f"--net={space}", "sysctl", "-qw", *settings], check=True)
        self._program(1, "serve")
        self._client = self._program(0, "connect")

    def _program(self, space: int, what: str) -> subprocess.Popen[bytes]:
        words = ("nsenter", f"--net={self.spaces[space]}", sys.executable, str(Path(__file__)), what)
        pipe = subprocess.PIPE
        started = self._start(*words, IPS["p2"], stdin=pipe, stdout=pipe)
        assert started.stdout is not None
        assert started.stdout.readline() == b"listening\n"
        return started

    async def enforce(self, rows: Iterable[Fact]) -> int:
        """How many flows there are then."""
        for row in rows:
            self._agent.facts.put(row)
        running = asyncio.create_task(self._agent.engine.run())
        await asyncio.wait_for(self._agent.engine.quiet(), TIMEOUT)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        assert not self._agent.engine.errors.counts, self._agent.engine.errors.counts
        return sum(kind is Flow for kind, _ in self._agent.engine.applied())

    def transaction(self, seconds: float = SECONDS) -> float:
        """Microseconds of one."""
        assert self._client.stdin is not None
        assert self._client.stdout is not None
        before = cpu(self._switch)
        self._client.stdin.write(f"{seconds}\n".encode())
        self._client.stdin.flush()
        passed, number = map(float, self._client.stdout.readline().split())
        self.cpu.append((cpu(self._switch) - before) / number)
        return passed / number * 1e6

    def first(self) -> float:
        """With nothing in the datapath."""
        control = str(self.directory / "ovs-vswitchd.ctl")
        subprocess.run(["ovs-appctl", "-t", control, "revalidator/purge"], check=True)
        return self.transaction(0)


def cpu(pid: int) -> float:
    """Microseconds that the threads of a process have used (proc(5), schedstat)."""
    return sum(int(one.read_text().split()[0]) for one in Path(f"/proc/{pid}/task").glob("*/schedstat")) / 1e3


def report(name: str, found: dict[str, list[float]]) -> None:
    """Each shape, and how many times that without rules it is."""
    none = found["none"]
    for shape, values in list(found.items())[1:]:
        show(f"policy_dataplane_{name}_{shape}", "us", values, against=Against("no rules", tuple(none)))
        ratios = [one / two for one, two in zip(values, none, strict=True)]
        target = TARGET if name == "crr" else None
        show(f"policy_dataplane_{name}_{shape}_ratio", "of that without rules", ratios, target=target)


def main() -> None:
    """Exit code 0 with figures that are met or missed."""
    if sys.argv[1:2] in (["serve"], ["connect"]):
        {"serve": serve, "connect": connect}[sys.argv[1]](sys.argv[2])
        return
    with ExitStack() as stack:
        nodes = {name: Node(stack) for name in SHAPES}
        for name, rows in SHAPES.items():
            began = time.monotonic()
            flows = asyncio.run(nodes[name].enforce(rows()))
            print(f"{name}: {flows} flows after {time.monotonic() - began:.1f} s", flush=True)
        for node in nodes.values():
            node.transaction(0)
            node.cpu.clear()
        report("crr", alternate({name: node.transaction for name, node in nodes.items()}, ROUNDS))
        report("switch", {name: node.cpu for name, node in nodes.items()})
        report("first", alternate({name: node.first for name, node in nodes.items()}, FIRSTS))


if __name__ == "__main__":
    main()
