"""Lines of the audit log: what a rule whose policy wants a log did with a packet.

parity: pkg/agent/controller/networkpolicy/audit_logging.go; where several policies state the same rule, each that wants
a log has a line of its own, and upstream has one
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
"""Characters of a rule's name that are logged."""
KUBERNETES = "K8sNetworkPolicy"
VERDICTS = ("Allow", "Drop", "Reject", "Pass")
AUDITED = ("AuditAllow", "AuditDrop", "AuditReject", "AuditPass")
"""The same of a copy, which audited policies judge: nothing has become of the packet itself."""
REDIRECTED = "Redirect"
"""To the L7 engine, whose verdicts on requests have a log of their own."""
DENIED = (DISPOSITION_DROP_REG_MARK.value, DISPOSITION_REJ_REG_MARK.value)
PROTOCOLS = {ICMP: "ICMP", IGMP: "IGMP", TCP: "TCP", UDP: "UDP", ICMPV6: "IPv6-ICMP", SCTP: "SCTP"}


class AuditRecord(NamedTuple):
    """What is logged, without the time."""

    text: str
    repeats: bool
    """Whether equal ones that follow soon are counted, not written: those of packets that go no further."""


class DecidingRule(NamedTuple):
    """A policy and its rule, as far as there are such."""

    policy: str
    rule: str = NOTHING
    priority: str = NOTHING
    label: str = NOTHING
    fqdns: tuple[str, ...] = ()
    """Domain names and wildcards among its receivers."""


def lines(facts: Facts, found: PacketIn, read: Packet) -> Iterator[AuditRecord]:
    """None for a rule that is gone meanwhile."""
    realized = facts.get(RealizedPipeline)
    number, verdict = found.value(PACKET_IN_TABLE), found.value(AP_DISPOSITION)
    if realized is None:
        return
    table = realized.pipeline.name_of(number)
    here = next((one for one in (OUT, IN) if table in _tables(one)), None)
    if here is None:
        return
    local = read.source if here is OUT else read.destination
    pods = facts.by(PodInterface, "ip", local)
    word = (AUDITED if found.value(AUDIT_PASS) else VERDICTS)[verdict]
    if found.value(L7_NP_REG):
        word = REDIRECTED
    packet = (pods[0].pod if pods else NOTHING, *_ends(found, read))
    for who in _who(facts, found, here, verdict):
        words = (
            *(table, who.policy, who.rule, "Egress" if here is OUT else "Ingress", word),
            *(who.priority, *packet, str(read.length), who.label),
            *receiver_names(facts, FqdnAddress, who.fqdns, read.destination),
        )
        yield AuditRecord(" ".join(words), repeats=verdict != 0)


def receiver_names(
    facts: Facts, kind: type[FqdnAddress], fqdns: Iterable[str], address: str
) -> tuple[str, ...]:
    """The last word of a line: those of a rule's names that have the receiver's address; no word where none has."""
    found = [one for one in fqdns if facts.get(kind, f"{one} {address}") is not None]
    return (one_word(f"fqdn={','.join(found)}"),) if found else ()


def _tables(here: DirectionTables) -> tuple[str, ...]:
    return here.antrea.name, here.rule.name, here.default.name


def _ends(found: PacketIn, read: Packet) -> tuple[str, str, str, str, str]:
    """Of a connection to a NodePort, whose source may be translated by now, the client as it came to the Node."""
    ip, source_port, *others = packet_words(read)
    destination, port, protocol = others
    if found.value(TO_NODE_PORT_ADDRESS):
        tracked = found.address(CT_NW_SRC, CT_IPV6_SRC)
        ip = (
            tracked or (_noted_client(found, ipv6=read.ipv6) if not found.value(AP_DISPOSITION) else "") or ip
        )
        if tracked and source_port != NOTHING:
            source_port = str(int.from_bytes(found.fields.get(CT_TP_SRC, b"")))
    return ip, source_port, destination, port, protocol


def _noted_client(found: PacketIn, *, ipv6: bool) -> str:
    """Of a packet that a rule allowed, which is not tracked any more; empty if a register has none."""
    words = [found.registers.get(number, 0) for number in (range(12, 16) if ipv6 else (3,))]
    return str(ip_address(b"".join(word.to_bytes(4) for word in words))) if any(words) else ""


def packet_words(read: Packet) -> tuple[str, str, str, str, str]:
    """Both ends and the protocol."""
    ports = read.ports if read.protocol in {TCP, UDP} else None
    source, destination = map(str, ports) if ports else (NOTHING, NOTHING)
    protocol = PROTOCOLS.get(read.protocol, "UnknownProtocol")
    return read.source, source, read.destination, destination, protocol


def _who(facts: Facts, found: PacketIn, here: DirectionTables, verdict: int) -> Iterator[DecidingRule]:
    """The policies that state the rule; what isolates Pods is no policy's own."""
    if verdict in DENIED and (not found.value(AP_DENY) or _isolates(facts, found)):
        yield DecidingRule(KUBERNETES)
        return
    number = found.value(AP_CONJ_ID if verdict in DENIED else here.register)
    for stated in stated_rules(facts, number):
        yield _stated(stated)


def _isolates(facts: Facts, found: PacketIn) -> bool:
    """Whether isolation has denied a copy."""
    own = found.value(AP_CONJ_ID)
    return own == NOBODY or facts.get(AuditedIsolation, str(own)) is not None


def _stated(stated: RuleOfPolicy) -> DecidingRule:
    rule = stated.rule
    name, label = one_word(rule.name[:MAX_LENGTH]) or NOTHING, one_word(rule.log_label) or NOTHING
    return DecidingRule(stated.policy or NOTHING, name, str(stated.priority), label, patterns(rule.to))
