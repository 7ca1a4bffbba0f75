"""Lines of the audit log on packets of the Node itself, which nftables hands over by `log group`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from antrea.apis.shown import one_word
from antrea.facts.node import ThisNode
from antrea.features.network_policy.agent.audit import (
    MAX_LENGTH,
    NOTHING,
    AuditRecord,
    packet_fields,
    receiver_names,
)
from antrea.features.network_policy.agent.received import SentPolicy
from antrea.features.node_policy.fqdn import NodeFqdnAddress
from antrea.features.node_policy.rule import NodeRule

if TYPE_CHECKING:
    from antrea.engine import Facts
    from antrea.openflow.packet import Packet

TABLES = {True: "NodePolicyEgressRule", False: "NodePolicyIngressRule"}
"""Names in place of the switch's tables; by whether it is egress."""


def rule_of(facts: Facts, prefix: str) -> NodeRule | None:
    """Return the rule whose log has this prefix: the name of its counter."""
    policy, _, number = prefix.removeprefix("np-").rpartition("-")
    return facts.get(NodeRule, f"{policy} {number}")


def line(facts: Facts, prefix: str, read: Packet) -> AuditRecord | None:
    """Make the line of a packet; None for a rule that is gone."""
    rule, node = rule_of(facts, prefix), facts.get(ThisNode)
    policy = facts.get(SentPolicy, rule.policy) if rule else None
    source = policy.policy.source_ref if policy else None
    if rule is None or node is None or source is None:
        return None
    fields = (
        *(
            TABLES[rule.egress],
            f"{source.type}:{source.name}",
            one_word(rule.rule.name[:MAX_LENGTH]) or NOTHING,
        ),
        *(
            "Egress" if rule.egress else "Ingress",
            f"{'Audit' if rule.audit else ''}{rule.action}",
            NOTHING,
            node.name,
            *packet_fields(read),
        ),
        *(str(read.length), one_word(rule.rule.log_label) or NOTHING),
        *receiver_names(facts, NodeFqdnAddress, rule.fqdns, read.destination),
    )
    return AuditRecord(" ".join(fields), repeats=rule.action != "Allow")
