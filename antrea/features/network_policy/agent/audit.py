"""Lines of the audit log: what a rule whose policy enables logging did with a packet.

parity: pkg/agent/controller/networkpolicy/audit_logging.go; where several policies state the same rule, each that enables
logging has a line of its own, and upstream has one
"""

from __future__ import annotations

from ipaddress import ip_address
from typing import TYPE_CHECKING, NamedTuple

from antrea.apis.shown import one_word
from antrea.facts.ovs import PodInterface
from antrea.features.framework.agent_feature import RealizedPipeline
from antrea.features.network_policy.agent.audit_pass import NOBODY, AuditedIsolation
from antrea.features.network_policy.agent.deciding_rule import stated_rules
from antrea.features.network_policy.agent.fqdn import FqdnAddress
from antrea.features.network_policy.agent.priority import IN, OUT
from antrea.features.network_policy.agent.rule import patterns
from antrea.openflow.fields import (
    AP_CONJ_ID,
    AP_DENY,
    AP_DISPOSITION,
    AUDIT_PASS,
    DISPOSITION_DROP_REG_MARK,
    DISPOSITION_REJ_REG_MARK,
    L7_NP_REG,
    PACKET_IN_TABLE,
    TO_NODE_PORT_ADDRESS,
)
from antrea.openflow.packet import ICMP, ICMPV6, IGMP, SCTP, TCP, UDP
from antrea.openflow.packet_in import CT_IPV6_SRC, CT_NW_SRC, CT_TP_SRC

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from antrea.engine import Facts
    from antrea.features.network_policy.agent.deciding_rule import RuleOfPolicy
    from antrea.features.network_policy.agent.priority import DirectionTables
    from antrea.openflow.packet import Packet
    from antrea.openflow.packet_in import PacketIn

NOTHING = "<nil>"
MAX_LENGTH = 253
"""Maximum number of characters of a rule's name in a line."""
KUBERNETES = "K8sNetworkPolicy"
VERDICTS = ("Allow", "Drop", "Reject", "Pass")
AUDITED = ("AuditAllow", "AuditDrop", "AuditReject", "AuditPass")
"""Dispositions of a copy, which audited policies judge: the packet itself is not affected."""
REDIRECTED = "Redirect"
"""Disposition of a packet to the L7 engine, whose verdicts on requests have a log of their own."""
DENIED = (DISPOSITION_DROP_REG_MARK.value, DISPOSITION_REJ_REG_MARK.value)
PROTOCOLS = {ICMP: "ICMP", IGMP: "IGMP", TCP: "TCP", UDP: "UDP", ICMPV6: "IPv6-ICMP", SCTP: "SCTP"}


class AuditRecord(NamedTuple):
    """Content of a line, without the time."""

    text: str
    repeats: bool
    """Whether equal lines that follow soon are counted, not written: those of packets that are dropped."""


class DecidingRule(NamedTuple):
    """Policy and rule that decided, as far as there are any."""

    policy: str
    rule: str = NOTHING
    priority: str = NOTHING
    label: str = NOTHING
    fqdns: tuple[str, ...] = ()
    """Domain names and wildcards among the peers."""


def audit_records(facts: Facts, packet_in: PacketIn, read: Packet) -> Iterator[AuditRecord]:
    """Make the lines for a packet; none for a rule that is gone."""
    realized = facts.get(RealizedPipeline)
    number, verdict = packet_in.value(PACKET_IN_TABLE), packet_in.value(AP_DISPOSITION)
    if realized is None:
        return
    table = realized.pipeline.name_of(number)
    here = next((direction for direction in (OUT, IN) if table in _tables(direction)), None)
    if here is None:
        return
    local = read.source if here is OUT else read.destination
    pods = facts.by(PodInterface, "ip", local)
    word = (AUDITED if packet_in.value(AUDIT_PASS) else VERDICTS)[verdict]
    if packet_in.value(L7_NP_REG):
        word = REDIRECTED
    packet = (pods[0].pod if pods else NOTHING, *_ends(packet_in, read))
    for who in _deciding_policies(facts, packet_in, here, verdict):
        fields = (
            *(table, who.policy, who.rule, "Egress" if here is OUT else "Ingress", word),
            *(who.priority, *packet, str(read.length), who.label),
            *receiver_names(facts, FqdnAddress, who.fqdns, read.destination),
        )
        yield AuditRecord(" ".join(fields), repeats=verdict != 0)


def receiver_names(
    facts: Facts, kind: type[FqdnAddress], fqdns: Iterable[str], address: str
) -> tuple[str, ...]:
    """Return the last field of a line: the rule's names that have the peer's address; nothing if none has."""
    names = [name for name in fqdns if facts.get(kind, f"{name} {address}") is not None]
    return (one_word(f"fqdn={','.join(names)}"),) if names else ()


def _tables(here: DirectionTables) -> tuple[str, ...]:
    return here.antrea.name, here.rule.name, here.default.name


def _ends(packet_in: PacketIn, read: Packet) -> tuple[str, str, str, str, str]:
    """Return the ends of a packet; for a connection to a NodePort, with the client before any translation."""
    ip, source_port, *others = packet_fields(read)
    destination, port, protocol = others
    if packet_in.value(TO_NODE_PORT_ADDRESS):
        tracked = packet_in.address(CT_NW_SRC, CT_IPV6_SRC)
        ip = (
            tracked
            or (_noted_client(packet_in, ipv6=read.ipv6) if not packet_in.value(AP_DISPOSITION) else "")
            or ip
        )
        if tracked and source_port != NOTHING:
            source_port = str(int.from_bytes(packet_in.fields.get(CT_TP_SRC, b"")))
    return ip, source_port, destination, port, protocol


def _noted_client(packet_in: PacketIn, *, ipv6: bool) -> str:
    """Return the client of a packet that a rule allowed, which is not tracked any more; empty if no register has it."""
    values = [packet_in.registers.get(number, 0) for number in (range(12, 16) if ipv6 else (3,))]
    return str(ip_address(b"".join(word.to_bytes(4) for word in values))) if any(values) else ""


def packet_fields(read: Packet) -> tuple[str, str, str, str, str]:
    """Return both ends and the protocol."""
    ports = read.ports if read.protocol in {TCP, UDP} else None
    source, destination = map(str, ports) if ports else (NOTHING, NOTHING)
    protocol = PROTOCOLS.get(read.protocol, "UnknownProtocol")
    return read.source, source, read.destination, destination, protocol


def _deciding_policies(
    facts: Facts, packet_in: PacketIn, here: DirectionTables, verdict: int
) -> Iterator[DecidingRule]:
    """Yield the policies that state the rule; isolation is not a single policy's."""
    if verdict in DENIED and (not packet_in.value(AP_DENY) or _isolates(facts, packet_in)):
        yield DecidingRule(KUBERNETES)
        return
    number = packet_in.value(AP_CONJ_ID if verdict in DENIED else here.register)
    for stated in stated_rules(facts, number):
        yield _stated(stated)


def _isolates(facts: Facts, packet_in: PacketIn) -> bool:
    """Whether isolation has denied a copy."""
    rule_number = packet_in.value(AP_CONJ_ID)
    return rule_number == NOBODY or facts.get(AuditedIsolation, str(rule_number)) is not None


def _stated(stated: RuleOfPolicy) -> DecidingRule:
    rule = stated.rule
    name, label = one_word(rule.name[:MAX_LENGTH]) or NOTHING, one_word(rule.log_label) or NOTHING
    return DecidingRule(stated.policy or NOTHING, name, str(stated.priority), label, patterns(rule.to))
