"""What does membership cost, and how soon is a death found: agents with real sockets on loopback.

python -m benchmarks.gossip
"""

from __future__ import annotations

import json
import os
import random
import socket
import statistics
import subprocess
import sys
import time
from collections import deque
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from figure import Against, show

from antrea.features.egress.agent.hash_ring import Ring, RingRequest, place
from antrea.outside.gossip.machine import Machine

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from antrea.outside.gossip.machine import Packet

TIMES = 5
SETTLE_SECONDS, MEASURE_SECONDS = 10.0, 10.0
SETTLED_SECONDS = 20
"""In virtual time: until all have told each other what there is to tell."""
DEATHS = 5
LOSS, LOSS_SECONDS = 0.05, 120.0
UPSTREAM_SECONDS = (2.0, 6.0)
"""Until upstream finds a death: derived from memberlist's DefaultLocalConfig, not measured."""
CPU_TARGET = 3.0
"""Percent of a core, with 500 members."""


class Process:
    """One process of agents."""

    def __init__(
        self, here: Sequence[str], places: dict[str, str], port: int, key: str, loss: float = 0.0
    ) -> None:
        words = ["--port", str(port), "--key", key, "--here", ",".join(here), "--loss", str(loss)]
        self.run = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "benchmarks.gossip_agent",
                *words,
                *(f"{k}={v}" for k, v in places.items()),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def line(self) -> dict[str, Any]:
        """The next that it says."""
        assert self.run.stdout
        found: dict[str, Any] = json.loads(self.run.stdout.readline())
        return found

    def ask(self) -> dict[str, Any]:
        """Its figures now."""
        assert self.run.stdin
        self.run.stdin.write("\n")
        self.run.stdin.flush()
        while "cpu" not in (found := self.line()):
            pass
        return found

    def kill(self) -> None:
        self.run.kill()
        self.run.wait()
        for pipe in (self.run.stdin, self.run.stdout):
            assert pipe
            pipe.close()


def free_port() -> int:
    """For UDP and TCP, on any address of loopback."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def places_of(count: int) -> dict[str, str]:
    """Members, each with its address."""
    return {f"node-{n}": f"127.78.{n // 250}.{n % 250 + 1}" for n in range(count)}


@contextmanager
def cluster(count: int, *, apart: int, loss: float = 0.0) -> Iterator[list[Process]]:
    """`apart` members have a process each, and the rest one together, which is the last."""
    places, port, key = places_of(count), free_port(), os.urandom(32).hex()
    names = list(places)
    shares = [[name] for name in names[:apart]] + ([names[apart:]] if names[apart:] else [])
    processes = [Process(share, places, port, key, loss) for share in shares]
    try:
        yield processes
    finally:
        for process in processes:
            process.kill()


def agreed(processes: Sequence[Process], count: int) -> None:
    """Returns once everybody knows everybody."""
    deadline = time.monotonic() + 120
    while min(process.ask()["living"] for process in processes) < count:
        assert time.monotonic() < deadline, "members do not find each other"
        time.sleep(0.5)


def cost(count: int) -> tuple[list[float], list[float], list[float]]:
    """Percent of a core, packets and bytes a second that one member of `count` takes."""
    cpu, packets, octets = [], [], []
    with cluster(count, apart=1) as processes:
        agreed(processes, count)
        time.sleep(SETTLE_SECONDS)
        for _ in range(TIMES):
            before, began = processes[0].ask(), time.monotonic()
            time.sleep(MEASURE_SECONDS)
            after, seconds = processes[0].ask(), time.monotonic() - began
            cpu.append(100 * (after["cpu"] - before["cpu"]) / seconds)
            packets.append((after["packets"] - before["packets"]) / seconds)
            octets.append((after["octets"] - before["octets"]) / seconds)
    return cpu, packets, octets


def cost_without_sockets(count: int, seconds: int = 10) -> list[float]:
    """Percent of a core that one member of `count` takes by itself, in virtual time: so many fit no machine otherwise."""
    names = [f"node-{number}" for number in range(count)]
    rng, at = random.Random(1), 0.0
    machines = {name: Machine(name, random=rng, token=rng.randbytes) for name in names}
    measured, taken = machines[names[0]], [0.0]

    def during(machine: Machine, work: Callable[[], object]) -> None:
        began = time.thread_time()
        work()
        packets, _ = machine.pop_output()
        if machine is measured:
            taken[0] += time.thread_time() - began
        queue.extend(packets)

    queue: deque[Packet] = deque()
    for machine in machines.values():
        machine.keys((bytes(32),))
        machine.peers(names)
    found = []
    for tick in range(20 * (SETTLED_SECONDS + TIMES * seconds)):
        at = 0.05 * tick
        for machine in machines.values():
            during(machine, partial(machine.tick, at))
        while queue:
            packet = queue.popleft()
            there = machines[packet.to]
            during(there, partial(there.packet, at, packet.data))
        if tick >= 20 * SETTLED_SECONDS and (tick + 1) % (20 * seconds) == 0:
            found.append(100 * taken[0] / seconds)
        if (tick + 1) % (20 * seconds) == 0:
            taken[0] = 0.0
    assert all(machine.swim.census == (True, count, count) for machine in machines.values())
    return found


def detection(count: int, loss: float) -> tuple[list[float], list[float]]:
    """Seconds from a kill -9 until the first and until the last member knows."""
    first, last = [], []
    for _ in range(DEATHS):
        with cluster(count, apart=count, loss=loss) as processes:
            agreed(processes, count)
            time.sleep(1 + random.random())
            gone, *rest = processes
            gone.run.kill()
            killed = time.clock_gettime(time.CLOCK_BOOTTIME)
            found = []
            for process in rest:
                while (line := process.line()).get("alive", True) or line["node"] != "node-0":
                    pass
                found.append(line["at"] - killed)
        first.append(min(found))
        last.append(max(found))
    return first, last


def false_deaths(count: int, seconds: float) -> int:
    """How often a living member was taken for dead while datagrams were lost."""
    with cluster(count, apart=count, loss=LOSS) as processes:
        agreed(processes, count)
        time.sleep(2)
        deadline = time.clock_gettime(time.CLOCK_BOOTTIME)
        time.sleep(seconds)
        wrong = 0
        for process in processes:
            assert process.run.stdin
            process.run.stdin.write("\n")
            process.run.stdin.flush()
            while "cpu" not in (line := process.line()) or line["at"] < deadline + seconds:
                wrong += "alive" in line and not line["alive"] and line["at"] > deadline
    return wrong


def placement() -> None:
    """1,000 addresses over 100 Nodes, and what a Node that leaves moves."""
    nodes = list(places_of(100))
    wishes = [RingRequest("", f"egress-{n}", f"10.{n // 250}.9.{n % 250}", "pool") for n in range(1000)]
    taken, before = [], place(wishes, {"pool": [nodes]}, lambda _: 255)
    moved, wrong = [], 0
    for gone in nodes[:20]:
        began = time.perf_counter()
        after = place(wishes, {"pool": [[node for node in nodes if node != gone]]}, lambda _: 255)
        taken.append(1000 * (time.perf_counter() - began))
        moves = {name for name in before if before[name] != after[name]}
        moved.append(float(len(moves)))
        wrong += moves != {name for name in before if before[name] == gone}
    show("placement_of_1000_after_one_of_100_left", "ms", taken, target=50)
    show("placement_moved", "addresses", moved, against=Against("a hundredth of all", (10.0,)))
    show("placement_moved_needlessly", "leaves", [float(wrong)], target=0)
    ring = Ring(nodes)
    loads = [sum(ring.pick(wish.address) == node for wish in wishes) for node in nodes]
    show("placement_most_on_one_node", "addresses", [float(max(loads))], against=Against("average", (10.0,)))


def main() -> None:
    """All figures."""
    few, *_ = cost(10)
    cpu, packets, octets = cost(100)
    show("gossip_cpu_of_one_of_100", "percent", cpu, against=Against("of 10", tuple(few)), target=CPU_TARGET)
    show("gossip_packets_of_one_of_100", "per_second", packets)
    show("gossip_bytes_of_one_of_100", "per_second", octets)
    bare = {count: tuple(cost_without_sockets(count)) for count in (100, 500)}
    against = Against("of 100", bare[100])
    show("gossip_cpu_of_one_of_500_without_sockets", "percent", bare[500], against=against, target=CPU_TARGET)
    for loss in (0.0, LOSS):
        first, last = detection(5, loss)
        tail = f"_at_{loss:.0%}_loss".replace("%", "_percent") if loss else ""
        upstream = Against("upstream, derived", UPSTREAM_SECONDS)
        show(f"gossip_first_knows_of_a_death{tail}", "s", first, against=upstream)
        show(f"gossip_all_know_of_a_death{tail}", "s", last, against=upstream, target=4.25 if loss else 2.75)
    wrong = [float(false_deaths(count, LOSS_SECONDS)) for count in (2, 5)]
    show("gossip_false_deaths_at_5_percent_loss", "deaths", [statistics.fmean(wrong)], target=0)
    placement()


if __name__ == "__main__":
    main()
