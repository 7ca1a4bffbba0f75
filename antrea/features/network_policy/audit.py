"""Lines of the audit log: what a rule whose policy wants a log did with a packet.

parity: pkg/agent/controller/networkpolicy/audit_logging.go; where several policies state the same rule, each that wants
a log has a line of its own, and upstream has one
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from antrea.facts.ovs import PodInterface
from antrea.features.feature import Realised
from antrea.features.network_policy.conjunction import Numbered
from antrea.features.network_policy.place import IN, OUT
from antrea.features.network_policy.rule import Stated
from antrea.features.network_policy.sent import SentPolicy
from antrea.openflow.fields import (
    AP_CONJ_ID,
    AP_DENY,
    AP_DISPOSITION,
    DISPOSITION_DROP_REG_MARK,
    DISPOSITION_REJ_REG_MARK,
    PACKET_IN_TABLE,
)
from antrea.openflow.packet import ICMP, ICMPV6, IGMP, SCTP, TCP, UDP

if TYPE_CHECKING:
    from collections.abc import Iterator

    from antrea.engine import Facts
    from antrea.features.network_policy.place import Side
    from antrea.openflow.packet import Packet
    from antrea.openflow.packet_in import PacketIn

NOTHING = "<nil>"
KUBERNETES, CLUSTER = "K8sNetworkPolicy", "AntreaClusterNetworkPolicy"
VERDICTS = ("Allow", "Drop", "Reject", "Pass")
DENIED = (DISPOSITION_DROP_REG_MARK.value, DISPOSITION_REJ_REG_MARK.value)
PROTOCOLS = {ICMP: "ICMP", IGMP: "IGMP", TCP: "TCP", UDP: "UDP", ICMPV6: "IPv6-ICMP", SCTP: "SCTP"}


class Line(NamedTuple):
    """What is logged, without the time."""

    text: str
    repeats: bool
    """Whether equal ones that follow soon are counted, not written: those of packets that go no further."""


class Who(NamedTuple):
    """A policy and its rule, as far as there are such."""

    policy: str
    rule: str = NOTHING
    priority: str = NOTHING
    label: str = NOTHING


def lines(facts: Facts, found: PacketIn, read: Packet) -> Iterator[Line]:
    """None for a rule that is gone meanwhile."""
    realised = facts.get(Realised)
    number, verdict = found.value(PACKET_IN_TABLE), found.value(AP_DISPOSITION)
    if realised is None or number >= len(realised.pipeline.tables):
        return
    table = realised.pipeline.tables[number].name
    here = next((one for one in (OUT, IN) if table in _tables(one)), None)
    if here is None:
        return
    local = read.source if here is OUT else read.destination
    pods = facts.by(PodInterface, "ip", local)
    packet = (pods[0].pod if pods else NOTHING, *_ends(read), PROTOCOLS.get(read.protocol, "UnknownProtocol"))
    for who in _who(facts, found, here, verdict):
        words = (
            *(table, who.policy, who.rule, "Egress" if here is OUT else "Ingress", VERDICTS[verdict]),
            *(who.priority, *packet, str(read.length), who.label),
        )
        yield Line(" ".join(words), repeats=verdict != 0)


def _tables(here: Side) -> tuple[str, ...]:
    return here.antrea.name, here.rule.name, here.default.name


def _ends(read: Packet) -> tuple[str, str, str, str]:
    ports = read.ports if read.protocol in {TCP, UDP} else None
    source, destination = map(str, ports) if ports else (NOTHING, NOTHING)
    return read.source, source, read.destination, destination


def _who(facts: Facts, found: PacketIn, here: Side, verdict: int) -> Iterator[Who]:
    """The policies that state the rule; what isolates Pods is no policy's own."""
    if verdict in DENIED and not found.value(AP_DENY):
        yield Who(KUBERNETES)
        return
    number = found.value(AP_CONJ_ID if verdict in DENIED else here.register)
    numbered = facts.get(Numbered, str(number))
    if numbered is None:
        return
    for stated in facts.by(Stated, "rule", numbered.rule):
        policy = facts.get(SentPolicy, stated.policy)
        if policy is not None:
            yield _stated(policy, stated, numbered.priority)


def _stated(policy: SentPolicy, stated: Stated, priority: int) -> Who:
    rule, source = policy.found.rules[stated.number], policy.found.source_ref
    if source is None:
        return Who(NOTHING, rule.name or NOTHING, str(priority), rule.log_label or NOTHING)
    name = source.name if source.type == CLUSTER else f"{source.namespace}/{source.name}"
    return Who(f"{source.type}:{name}", rule.name or NOTHING, str(priority), rule.log_label or NOTHING)
