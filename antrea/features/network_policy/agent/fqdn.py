"""Rules on domain names: the addresses that DNS answers give to their patterns, and the flows that hold those answers back.

An answer from port 53 to a Pod with such a rule is held in the switch until the addresses in it are in the flows of the rules,
so that the Pod's first connection to a name is judged by them. If only audited rules need it, it continues, and the agent gets
a copy: auditing delays and loses nothing.
parity: pkg/agent/openflow/network_policy.go NewDNSPacketInConjunction, AddAddressToDNSConjunction
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from antrea.config.agent import AgentConfig
from antrea.engine import Unit
from antrea.facts.fact import Fact
from antrea.facts.family import is_ipv6
from antrea.facts.ovs import PodInterface
from antrea.features.network_policy.agent.conjunction import RESERVED, clause_match, families, merge
from antrea.features.network_policy.agent.packet_in import GROUPS
from antrea.features.network_policy.agent.priority import FROM, OUT, TO, has_location
from antrea.features.network_policy.agent.rule import (
    COPIED,
    PolicyRule,
    conjunctions,
    resolved,
    rules_with_member,
)
from antrea.openflow import action
from antrea.openflow.action import controller, goto, resubmit
from antrea.openflow.cookie import Category
from antrea.openflow.fields import (
    OUTPUT_TO_CONTROLLER_REG_MARK,
    PACKET_IN_DNS_COPY_REG_MARK,
    PACKET_IN_DNS_METERED_REG_MARK,
    TARGET_OF_PORT,
    PacketIn,
)
from antrea.openflow.flow import Flow, flows_of
from antrea.openflow.group import Bucket, Group, GroupType
from antrea.openflow.match import PROTOCOLS, conj_id, ct_state, dst, in_port, src, tp_src
from antrea.openflow.meter import POD_DNS_METERS, Meter, PacketInMeter, packet_in_meter
from antrea.openflow.priority import Priority
from antrea.openflow.tables import ANTREA_POLICY_INGRESS_RULE, INGRESS_METRIC, OUTPUT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from antrea.engine import Facts
    from antrea.openflow.field import Match

DNS_PORT = 53
ANSWER = "+rpl+trk"
"""Connection state of a DNS answer."""
DNS_CONJUNCTION = RESERVED
"""Number of the conjunction that holds DNS answers back."""
CLAUSES = 2
"""Number of clauses of that conjunction: a DNS answer, and a Pod with rules on names."""
POD_SHARE = 10
"""Number of Pods that exceed their share before the agent's limit is reached; a single Pod cannot use it up for others."""
DENYING = ("Drop", "Reject")
"""Actions of rules for which a Pod's own answers count, from any server."""
flow = flows_of(Category.NETWORK_POLICY)


class FqdnPattern(Fact, frozen=True):
    """Domain name or wildcard that rules of this Node have as a peer; derived."""

    pattern: str
    denies: bool = False
    """Whether any of these rules drops or rejects."""

    @property
    def key(self) -> str:
        return self.pattern


class FqdnAddress(Fact, frozen=True):
    """Address of names that match a pattern; the cache of DNS answers writes it."""

    pattern: str
    address: str
    pod: str = ""
    """Pod (namespace/name) that alone has the address, from an untrusted server: it counts for rules that drop or reject."""

    @property
    def key(self) -> str:
        return f"{self.pattern} {self.address} {self.pod}" if self.pod else f"{self.pattern} {self.address}"


# units


def fqdn_patterns(facts: Facts, pattern: str) -> Iterator[FqdnPattern]:
    """Yield the patterns for which the cache of DNS answers keeps addresses."""
    yield FqdnPattern(pattern, any(rule.action in DENYING for rule in facts.by(PolicyRule, "fqdn", pattern)))


def fqdn_flows(facts: Facts, row: FqdnAddress) -> Iterator[Flow]:
    """Yield the address in the conjunctions of the rules on names that match."""
    if is_ipv6(row.address) not in families(facts):
        return
    senders = list(_senders(facts, row))
    yield from merge(
        clause_match(facts, rule, conjunction, OUT.peer, *sender, dst(row.address))
        for rule in facts.by(PolicyRule, "fqdn", row.pattern)
        if has_location(facts, rule) and (not row.pod or rule.action in DENYING)
        for conjunction in conjunctions(facts, rule)
        # names have no ports: with named ones they take part where the numbers are the rule's own
        if not rule.named or conjunction.services == resolved(rule.services, ())
        for sender in senders
    )


def _senders(facts: Facts, row: FqdnAddress) -> Iterator[tuple[Match, ...]]:
    """Yield matches beside the address: the sender, if the address counts for one Pod alone."""
    if not row.pod:
        yield ()
    for pod in facts.by(PodInterface, "pod", row.pod) if row.pod else ():
        if pod.uplink:
            yield (in_port(pod.ofport),)
        else:
            yield from ((src(ip),) for ip in pod.ips if is_ipv6(ip) == is_ipv6(row.address))


def dns_target_flows(facts: Facts, pod: PodInterface) -> Iterator[Flow | Meter]:
    """Yield flows that hold back or copy DNS answers to a Pod with a rule on names, within its share of the agent's limit."""
    audits = {rule.audit for rule, _ in rules_with_member(facts, pod) if rule.fqdns}
    if not audits:
        return
    to, meter = TARGET_OF_PORT(pod.ofport).match, POD_DNS_METERS + pod.ofport
    rate = max(1, facts.need(AgentConfig).packet_in_rate // POD_SHARE)
    yield packet_in_meter(meter, rate, Category.NETWORK_POLICY)
    metered = [action.meter(meter), PACKET_IN_DNS_METERED_REG_MARK.load]
    if False in audits:
        yield _held(TO, to)
        answer, again = (conj_id(DNS_CONJUNCTION), to), resubmit(ANTREA_POLICY_INGRESS_RULE)
        yield flow(ANTREA_POLICY_INGRESS_RULE, Priority.DNS_INTERCEPT, *answer, then=[*metered, again])
        return
    copy = PACKET_IN_DNS_COPY_REG_MARK.match, OUTPUT_TO_CONTROLLER_REG_MARK.match, to
    yield flow(OUTPUT, Priority.NORMAL, *copy, then=[*metered, resubmit(OUTPUT)])
    for v6 in families(facts):
        for protocol in ("UDP", "TCP"):
            match = (ct_state(ANSWER), PROTOCOLS[protocol][v6], tp_src(DNS_PORT), to)
            then = [action.group(_copies(facts))]
            yield flow(ANTREA_POLICY_INGRESS_RULE, Priority.DNS_COPY, *match, then=then)


def dns_flows(facts: Facts, use: str) -> Iterator[Flow | Group | Meter]:
    """Yield flows that give DNS answers within the shares of their Pods to the agent, while there are rules on names."""
    rate, metered = facts.need(AgentConfig).packet_in_rate, PACKET_IN_DNS_METERED_REG_MARK.match
    yield packet_in_meter(PacketInMeter.DNS, rate, Category.NETWORK_POLICY)
    if use == COPIED:
        to_agent = PACKET_IN_DNS_COPY_REG_MARK.load, OUTPUT_TO_CONTROLLER_REG_MARK.load
        then = [action.meter(PacketInMeter.DNS), controller(PacketIn.DNS)]
        yield flow(OUTPUT, Priority.NORMAL, metered, OUTPUT_TO_CONTROLLER_REG_MARK.match, then=then)
        buckets = (Bucket(0, (resubmit(INGRESS_METRIC),)), Bucket(1, (*to_agent, resubmit(OUTPUT))))
        yield Group(_copies(facts), GroupType.ALL, buckets, Category.NETWORK_POLICY)
        return
    for v6 in families(facts):
        for protocol in ("UDP", "TCP"):
            yield _held(FROM, ct_state(ANSWER), PROTOCOLS[protocol][v6], tp_src(DNS_PORT))
    then = [action.meter(PacketInMeter.DNS), controller(PacketIn.DNS, pause=True), goto(INGRESS_METRIC)]
    yield flow(ANTREA_POLICY_INGRESS_RULE, Priority.DNS_METERED, metered, then=then)


def _copies(facts: Facts) -> int:
    return facts.id(GROUPS, "copies of DNS answers")


def _held(clause: int, *match: Match) -> Flow:
    here = flow(ANTREA_POLICY_INGRESS_RULE, Priority.DNS_INTERCEPT, *match, then=())
    return here.with_parts([action.conjunction(DNS_CONJUNCTION, clause, CLAUSES)])


ADDRESSES = Unit(FqdnAddress, fqdn_flows)
UNITS = (
    Unit(PolicyRule, fqdn_patterns, yields=(FqdnPattern,), by="fqdn"),
    ADDRESSES,
    Unit(PodInterface, dns_target_flows),
    Unit(PolicyRule, dns_flows, by="dns"),
)
