"""Connections that stand and that a policy with `antrea.io/on-deny: flush` comes to forbid: when to look, and what stays cut.

The agent looks for them in the switch (antrea/agent/cutting.py). Beyond upstream, where what stands goes on.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from antrea.engine import Act
from antrea.facts.fact import Fact
from antrea.facts.ovs import OvsPort, PodInterface
from antrea.facts.service import Service
from antrea.features.feature import Realised
from antrea.features.network_policy.address import PROTOCOLS
from antrea.features.network_policy.conjunction import Numbered
from antrea.features.network_policy.place import IN, OUT, Side, side
from antrea.features.network_policy.rule import Rule, targets
from antrea.features.network_policy.sent import SentAddressMember
from antrea.features.network_policy.verdict import DENIES
from antrea.openflow.action import DROP
from antrea.openflow.cookie import Category
from antrea.openflow.flow import flows_of
from antrea.openflow.match import ct_state, dst, src, tp_dst, tp_src
from antrea.openflow.priority import Priority

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator

    from antrea.engine import Facts
    from antrea.openflow.flow import Flow

flow = flows_of(Category.NETWORK_POLICY)
_STEP = re.compile(r"^ *(\d+)\. ", re.MULTILINE)
_CONJUNCTION = re.compile(r"^ *(\d+)\. (?:[^ ]*,)?conj_id=(\d+)[, ]", re.MULTILINE)
_OUT = "-> output port is "


class Look(Act, frozen=True):
    """Something has changed in what a Pod may send or receive, and a rule that cuts is for it."""

    interface: str


class Connection(NamedTuple):
    """One that conntrack knows, as its first packet had it; of ICMP, the ports are type and code."""

    protocol: str
    """TCP, UDP, SCTP or ICMP."""
    source: str
    destination: str
    source_port: int
    port: int


class Severed(Fact, frozen=True):
    """A connection that was cut: what its server still sends is not taken for the beginning of one."""

    interface: str
    """Of the Pod for whose sake it was."""
    connection: Connection

    @property
    def key(self) -> str:
        return f"{self.interface} {' '.join(map(str, self.connection))}"


def looks(facts: Facts, pod: PodInterface) -> Iterator[Look]:
    """At once, and whenever rules of a direction in which one of them cuts, or their peers, become others."""
    found: dict[bool, list[Rule]] = {}
    for rule, _ in targets(facts, pod):
        found.setdefault(rule.egress, []).append(rule)
    cause: list[Hashable] = []
    for egress, rules in sorted(found.items()):
        if any(rule.cuts for rule in rules):
            names = frozenset(rule.name for rule in rules)
            groups = sorted({group for rule in rules for group in rule.peer.address_groups})
            peers = frozenset(row for group in groups for row in facts.by(SentAddressMember, "group", group))
            named = sorted({name for rule in rules for name in rule.to_services})
            services = tuple(facts.get(Service, name) for name in named)
            cause.append((egress, names, hash((peers, services))))
    if cause:
        yield Look((pod.name, pod.ofport), (*cause, pod.ips), interface=pod.name)


def severed_flows(facts: Facts, cut: Severed) -> Iterator[Flow]:
    """While a rule that cuts is for the Pod: without, the client's packets would pass as answers to what is sent to it."""
    pod, realised = facts.get(PodInterface, cut.interface), facts.get(Realised)
    if pod is None or realised is None or not any(rule.cuts for rule, _ in targets(facts, pod)):
        return
    protocol, source, destination, source_port, port = cut.connection
    antrea = realised.pipeline.has(OUT.antrea)
    table, priority = (OUT.antrea, Priority.TOP_ANTREA_POLICY) if antrea else (OUT.rule, Priority.HIGH)
    ends = (src(destination), dst(source), tp_src(port), tp_dst(source_port))
    kind = PROTOCOLS[protocol][":" in source]
    yield flow(table, priority, ct_state("+new+trk"), kind, *ends, then=DROP)


def entered(facts: Facts, gateway: str, one: Connection) -> str | None:
    """Its first packet, where it enters the bridge; None if neither end is a Pod of this Node, or there is no gateway."""
    port = facts.get(OvsPort, gateway)
    sender = next(iter(facts.by(PodInterface, "ip", one.source)), None)
    receiver = next(iter(facts.by(PodInterface, "ip", one.destination)), None)
    if port is None or (sender is None and receiver is None):
        return None
    v6 = ":" in one.source
    kind, address = one.protocol.lower() + ("6" if v6 else ""), "ipv6_{}={}" if v6 else "nw_{}={}"
    terms = [
        f"in_port={(sender or port).ofport}",
        kind,
        f"dl_src={(sender or port).mac},dl_dst={(receiver or port).mac},nw_ttl=64",
        address.format("src", one.source),
        address.format("dst", one.destination),
    ]
    if one.protocol == "ICMP":
        name = "icmpv6" if v6 else "icmp"
        return ",".join([*terms, f"{name}_type={one.source_port},{name}_code={one.port}"])
    low = one.protocol.lower()
    return ",".join([*terms, f"{low}_src={one.source_port},{low}_dst={one.port}"])


def forbids(facts: Facts, one: Connection, trace: str) -> PodInterface | None:
    """The Pod of this Node for whose sake a rule that cuts forbids this connection, by the way of its first packet."""
    realised = facts.get(Realised)
    if _OUT in trace or realised is None:
        return None
    steps = _STEP.findall(trace)
    last = int(steps[-1]) if steps else -1
    tables = realised.pipeline.ids
    for here, ip in ((OUT, one.source), (IN, one.destination)):
        own = {tables.get(table.name) for table in (here.antrea, here.rule, here.default, here.metric)}
        pod = next(iter(facts.by(PodInterface, "ip", ip)), None)
        if last in own and pod is not None:
            return pod if _cuts(facts, here, pod, trace) else None
    return None


def _cuts(facts: Facts, here: Side, pod: PodInterface, trace: str) -> bool:
    """Whether the rule that denies, or one that isolates the Pod, cuts."""
    for _, number in _CONJUNCTION.findall(trace)[-1:]:
        known = facts.get(Numbered, number)
        rule = facts.get(Rule, known.rule) if known else None
        if rule is not None and side(rule) is here and rule.action in DENIES:
            return rule.cuts
    return any(rule.cuts and rule.isolates for rule, _ in targets(facts, pod) if side(rule) is here)
