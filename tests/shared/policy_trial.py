"""One random cluster after the other, explained and enforced: what differs, and how long both take.

Each packet is compared twice: where it leaves and which rules decide, with a trace of the switch; and what `antctl explain`
prints of the switches, which must agree. Of packets to Services that AntreaProxy serves, the Endpoints to choose from are
compared with the group of the switch, and the Endpoint that it chose decides on the rest.
"""

from __future__ import annotations

import json
import random
import time
from typing import TYPE_CHECKING, NamedTuple

from policy_cluster import cluster, question
from policy_command import Command
from policy_services import served, service_question
from policy_shrink import least
from policy_switch import (
    NODE,
    REJECTED,
    Agent,
    Decided,
    choice,
    entered,
    entry,
    expected,
    is_passed_on,
    packet_of,
    world_of,
)

from antrea.explain.answer import through_service
from antrea.explain.service import balanced, is_direct, translated
from antrea.explain.verdict import judged

if TYPE_CHECKING:
    from policy_cluster import Cluster, Question
    from policy_switch import Switch

    from antrea.antctl.explain.switch import SwitchVerdict
    from antrea.explain.answer import Through
    from antrea.explain.packet import Packet
    from antrea.explain.verdict import Judged
    from antrea.explain.world import Proxy, World


class Explained(NamedTuple):
    """A packet, and what becomes of it by the objects; of one to a Service, at each of its Endpoints."""

    packet: Packet
    found: Judged | Through


def explained(world: World, asked: Question) -> Explained:
    """As `antctl explain` has it, without the changes that would turn it over."""
    packet = packet_of(world, asked)
    if (balance := balanced(world, packet)) is not None:
        return Explained(packet, through_service(world, packet, balance))
    return Explained(packet, judged(world, packet))


class Enforced:
    """One cluster as the switch has it."""

    def __init__(self, switch: Switch, world: World) -> None:
        self._world = world
        self._switch = switch
        self._agent = Agent(world)
        switch.install(self._agent.entries, self._agent.served.pipeline)
        self._groups = switch.groups() if world.proxy is not None else {}
        self._command = Command(switch, self._agent, world)
        self.direct = 0
        """Packets that left as they came so far."""

    def difference(self, asked: Question, one: Explained) -> tuple[str, Decided]:
        """What the switch does otherwise than explained, or the command says that it does; "" if nothing. And what is expected."""
        packet = entered(self._agent.facts, one.packet)
        trace = self._switch.trace(entry(packet, asked.source_port or 1))
        balance = balanced(self._world, one.packet)
        wanted = Decided(0, None, None)
        if balance is None:
            wanted = expected(judged(self._world, one.packet), one.packet)
        else:
            group, chosen = choice(trace)
            among = frozenset(balance.endpoints)
            if balance.refused and (group or REJECTED in trace):
                return f"explained as dropped by loadBalancerSourceRanges, group {group} chooses", wanted
            if not balance.refused and self._groups.get(group) != among:
                return f"explained {among}, group {group} chooses from {self._groups.get(group)}", wanted
            if among and chosen not in among:
                return f"explained {among}, chosen {chosen}", wanted
            if not among and not balance.refused and REJECTED not in trace:
                return "explained as rejected for want of an Endpoint, which no trace shows", wanted
            if chosen is not None:
                after = translated(self._world, one.packet, balance.name, chosen, node_port=balance.node_port)
                if balance.node_port and self._passes_on(after) != is_passed_on(trace):
                    return (
                        f"explained {chosen} as direct: {self._passes_on(after)}, which the trace does not show",
                        wanted,
                    )
                wanted = expected(judged(self._world, after), after, direct=is_passed_on(trace))
                self.direct += is_passed_on(trace)
        traced = self._agent.decided(trace)
        if traced != wanted:
            return f"explained {wanted}, traced {traced}", wanted
        if balance is not None and balance.node_port:
            return "", wanted  # the command traces no NodePorts
        says: list[SwitchVerdict] = self._command.says(*one)
        wrong = [each for each in says if each.node == NODE.name and not each.agrees]
        return f"antctl explain says {wrong}" if wrong else "", wanted

    def _passes_on(self, after: Packet) -> bool:
        """Whether the explanation has the Endpoint get the packet as it came."""
        pod = after.destination.pod
        there = pod.spec.node_name if pod else ""
        v = 6 if ":" in after.source.ip else 4
        elsewhere = there not in ("", NODE.name)
        return elsewhere and is_direct(self._world, after.service, NODE.name, there, v)


class Trial:
    """What was seen so far."""

    def __init__(self) -> None:
        self.packets = 0
        self.refused = 0
        self.by_antrea = 0
        self.balanced = 0
        self.node_ports = 0
        """Of the balanced."""
        self.direct = 0
        self.explaining = 0.0
        self.differences: list[str] = []
        """The first of each cluster, with the seed that repeats it; the first of all with the least cluster for it."""
        self.mismatches = 0

    def cluster(self, switch: Switch, seed: int, packets: int, *, proxied: bool = False) -> None:
        """All packets of one cluster; `proxied`: AntreaProxy serves its Services, and most packets are for them."""
        rnd = random.Random(seed)
        objects = cluster(rnd)
        proxy = served(rnd, objects) if proxied else None
        world = world_of(objects, proxy)
        enforced = Enforced(switch, world)
        first: Question | None = None
        for _ in range(packets):
            asked = service_question(rnd, objects) if proxied else question(rnd)
            begin = time.perf_counter()
            one = explained(world, asked)
            self.explaining += time.perf_counter() - begin
            difference, wanted = enforced.difference(asked, one)
            self.packets += 1
            self.refused += not wanted.port
            self.by_antrea += wanted.egress is not None or wanted.ingress is not None
            balance = balanced(world, one.packet)
            self.balanced += balance is not None
            self.node_ports += balance is not None and bool(balance.node_port)
            if difference:
                self.mismatches += 1
                if first is None:
                    first = asked
                    self.differences.append(f"seed {seed}: {asked}: {difference}")
        self.direct += enforced.direct
        if first is not None and len(self.differences) == 1:
            self.differences[0] += f" in {json.dumps(smallest(switch, objects, first, proxy))}"


def smallest(switch: Switch, objects: Cluster, asked: Question, proxy: Proxy | None) -> Cluster:
    """The least cluster in which they still differ."""

    def differ(found: Cluster) -> bool:
        world = world_of(found, proxy)
        difference, _ = Enforced(switch, world).difference(asked, explained(world, asked))
        return bool(difference)

    return least(objects, differ)
