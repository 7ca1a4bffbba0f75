"""One random cluster after the other, explained and enforced: what differs, and how long both take."""

from __future__ import annotations

import json
import random
import time
from typing import TYPE_CHECKING

from benchmarks.policy_cluster import cluster, question
from benchmarks.policy_switch import agent_of, entry, expected, packet_of, smallest, world_of

if TYPE_CHECKING:
    from benchmarks.policy_cluster import Question
    from benchmarks.policy_switch import Switch


class Trial:
    """What was seen so far."""

    def __init__(self) -> None:
        self.packets = 0
        self.refused = 0
        self.by_antrea = 0
        self.explaining = 0.0
        self.differences: list[str] = []
        """The first of each cluster, with the seed that repeats it; the first of all with the least cluster for it."""
        self.mismatches = 0

    def cluster(self, switch: Switch, seed: int, packets: int) -> None:
        """All packets of one cluster."""
        rnd = random.Random(seed)
        objects = cluster(rnd)
        world = world_of(objects)
        agent = agent_of(world)
        switch.install(agent.entries)
        first: Question | None = None
        for _ in range(packets):
            asked = question(rnd)
            packet = packet_of(world, asked)
            begin = time.perf_counter()
            wanted = expected(world, packet)
            self.explaining += time.perf_counter() - begin
            found = agent.decided(switch.trace(entry(packet)))
            self.packets += 1
            self.refused += not wanted.port
            self.by_antrea += wanted.egress is not None or wanted.ingress is not None
            if found != wanted:
                self.mismatches += 1
                if first is None:
                    first = asked
                    self.differences.append(f"seed {seed}: {asked}: explained {wanted}, traced {found}")
        if first is not None and len(self.differences) == 1:
            self.differences[0] += f" in {json.dumps(smallest(switch, objects, first))}"
