"""Established connections that a policy with `antrea.io/on-deny: flush` now forbids: when to check, and which remain cut.

The agent finds them in the switch (antrea/features/network_policy/agent_part/connection_flush.py). Upstream lets established connections
continue.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from antrea.engine import Act
from antrea.facts.fact import Fact
from antrea.facts.ovs import OvsPort, PodInterface
from antrea.facts.service import Service
from antrea.features.framework.agent_feature import RealizedPipeline
from antrea.features.network_policy.agent.conjunction import ConjunctionId
from antrea.features.network_policy.agent.priority import IN, OUT, DirectionTables, direction_of
from antrea.features.network_policy.agent.received import SentAddressMember
from antrea.features.network_policy.agent.rule import PolicyRule, rules_with_member
from antrea.features.network_policy.agent.verdict import DENIES
from antrea.openflow.action import DROP
from antrea.openflow.audit_trace import enforced_part
from antrea.openflow.cookie import Category
from antrea.openflow.flow import flows_of
from antrea.openflow.match import PROTOCOLS, ct_state, dst, src, tp_dst, tp_src
from antrea.openflow.priority import Priority

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator

    from antrea.engine import Facts
    from antrea.openflow.flow import Flow

flow = flows_of(Category.NETWORK_POLICY)
_STEP = re.compile(r"^ *(\d+)\. ", re.MULTILINE)
_CONJUNCTION = re.compile(r"^ *(\d+)\. (?:[^ ]*,)?conj_id=(\d+)[, ]", re.MULTILINE)
_OUT = "-> output port is "


class InspectConnections(Act, frozen=True):
    """Request to check a Pod's connections after a change of its rules, one of which flushes."""

    interface: str


class Connection(NamedTuple):
    """Connection in conntrack, as its first packet had it; the ports of ICMP are type and code."""

    protocol: str
    """TCP, UDP, SCTP or ICMP."""
    source: str
    destination: str
    source_port: int
    port: int


class FlushedConnection(Fact, frozen=True):
    """Connection that was cut: what its server still sends must not begin a new one."""

    interface: str
    """Interface of the Pod for which it was cut."""
    connection: Connection

    @property
    def key(self) -> str:
        return f"{self.interface} {' '.join(map(str, self.connection))}"


def inspect_connections(facts: Facts, pod: PodInterface) -> Iterator[InspectConnections]:
    """Yield a request immediately, and whenever rules of a direction with a flushing rule, or their peers, change."""
    by_direction: dict[bool, list[PolicyRule]] = {}
    for rule, _ in rules_with_member(facts, pod):
        by_direction.setdefault(rule.egress, []).append(rule)
    cause: list[Hashable] = []
    for egress, rules in sorted(by_direction.items()):
        if any(rule.flush_on_deny for rule in rules):
            names = frozenset(rule.name for rule in rules)
            groups = sorted({group for rule in rules for group in rule.peer.address_groups})
            peers = frozenset(row for group in groups for row in facts.by(SentAddressMember, "group", group))
            named = sorted({name for rule in rules for name in rule.to_services})
            services = tuple(facts.get(Service, name) for name in named)
            cause.append((egress, names, hash((peers, services))))
    if cause:
        yield InspectConnections((pod.name, pod.ofport), (*cause, pod.ips), interface=pod.name)


def flushed_connection_flows(facts: Facts, cut: FlushedConnection) -> Iterator[Flow]:
    """Yield drops while a flushing rule is for the Pod: otherwise the client's packets would pass as answers to the server's."""
    pod, realized = facts.get(PodInterface, cut.interface), facts.get(RealizedPipeline)
    if (
        pod is None
        or realized is None
        or not any(rule.flush_on_deny for rule, _ in rules_with_member(facts, pod))
    ):
        return
    protocol, source, destination, source_port, port = cut.connection
    antrea = realized.pipeline.has(OUT.antrea)
    table, priority = (OUT.antrea, Priority.TOP_ANTREA_POLICY) if antrea else (OUT.rule, Priority.HIGH)
    ends = (src(destination), dst(source), tp_src(port), tp_dst(source_port))
    kind = PROTOCOLS[protocol][":" in source]
    yield flow(table, priority, ct_state("+new+trk"), kind, *ends, then=DROP)


def first_packet(facts: Facts, gateway: str, connection: Connection) -> str | None:
    """Return the first packet where it enters the bridge; None if neither end is a Pod of this Node, or there is no gateway."""
    port = facts.get(OvsPort, gateway)
    sender = next(iter(facts.by(PodInterface, "ip", connection.source)), None)
    receiver = next(iter(facts.by(PodInterface, "ip", connection.destination)), None)
    if port is None or (sender is None and receiver is None):
        return None
    v6 = ":" in connection.source
    kind, address = connection.protocol.lower() + ("6" if v6 else ""), "ipv6_{}={}" if v6 else "nw_{}={}"
    terms = [
        f"in_port={(sender or port).ofport}",
        kind,
        f"dl_src={(sender or port).mac},dl_dst={(receiver or port).mac},nw_ttl=64",
        address.format("src", connection.source),
        address.format("dst", connection.destination),
    ]
    if connection.protocol == "ICMP":
        name = "icmpv6" if v6 else "icmp"
        return ",".join([*terms, f"{name}_type={connection.source_port},{name}_code={connection.port}"])
    low = connection.protocol.lower()
    return ",".join([*terms, f"{low}_src={connection.source_port},{low}_dst={connection.port}"])


def forbidding_pod(
    facts: Facts, connection: Connection, trace: str, *, by_service: bool = False
) -> PodInterface | None:
    """Return the Pod of this Node for which a flushing rule forbids this connection, by the trace of its first packet.

    With `by_service` only rules on Services count: another Endpoint may have been chosen than the connection has.
    """
    realized, trace = facts.get(RealizedPipeline), enforced_part(trace)
    if _OUT in trace or realized is None:
        return None
    steps = _STEP.findall(trace)
    last = int(steps[-1]) if steps else -1
    tables = realized.pipeline.ids
    for here, ip in ((OUT, connection.source), (IN, connection.destination)):
        own_tables = {tables.get(table.name) for table in (here.antrea, here.rule, here.default, here.metric)}
        pod = next(iter(facts.by(PodInterface, "ip", ip)), None)
        if last in own_tables and pod is not None:
            return pod if _flushes(facts, here, pod, trace, by_service=by_service) else None
    return None


def _flushes(facts: Facts, here: DirectionTables, pod: PodInterface, trace: str, *, by_service: bool) -> bool:
    """Whether the denying rule, or one that isolates the Pod, flushes."""
    for _, number in _CONJUNCTION.findall(trace)[-1:]:
        known = facts.get(ConjunctionId, number)
        rule = facts.get(PolicyRule, known.rule) if known else None
        if rule is not None and direction_of(rule) is here and rule.action in DENIES:
            return rule.flush_on_deny and (bool(rule.to_services) or not by_service)
    return not by_service and any(
        rule.flush_on_deny and rule.isolates
        for rule, _ in rules_with_member(facts, pod)
        if direction_of(rule) is here
    )
