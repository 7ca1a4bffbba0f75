"""ClusterNetworkPolicy of policy.networking.k8s.io/v1alpha2.

Source: sigs.k8s.io/network-policy-api apis/v1alpha2
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from antrea.apis.crd.part import CrdStruct, Metadata
from antrea.apis.network_policy_api.part import (
    ONE,
    RISES,
    AdminPolicySpec,
    AdminPolicyStatus,
    EgressPeer,
    IngressPeer,
    Number,
    Priority,
    Rule,
    Subject,
)
from antrea.apis.schema import Schema, cel, doc

MAX_RULES = 25
"""Rules of a direction, peers and protocols of a rule."""
ACTIONS = {"enum": ["Accept", "Deny", "Pass"]}
NAMELESS = (
    "!(self.to.exists(peer, has(peer.networks) || has(peer.nodes) || has(peer.domainNames))"
    " && has(self.protocols) && self.protocols.exists(protocol, has(protocol.destinationNamedPort)))"
)


class PortRange(CrdStruct, frozen=True):
    """Ports from one to another, both included."""

    schema_keywords: ClassVar[Schema] = {"required": ["start", "end"], **RISES}

    start: Annotated[Number, doc("First port.")] = 0
    end: Annotated[Number, doc("Last port.")] = 0


class Port(CrdStruct, frozen=True):
    """A port or a range."""

    schema_keywords: ClassVar[Schema] = ONE

    number: Annotated[Number, doc("One port.")] = 0
    range: Annotated[PortRange | None, doc("Ports from one to another.")] = None


class ProtocolPorts(CrdStruct, frozen=True):
    """Traffic of one protocol."""

    schema_keywords: ClassVar[Schema] = {"minProperties": 1}

    destination_port: Annotated[Port | None, doc("Destination ports.")] = None


class PolicyProtocol(CrdStruct, frozen=True):
    """A protocol with its ports, or ports by name."""

    schema_keywords: ClassVar[Schema] = ONE

    tcp: Annotated[ProtocolPorts | None, doc("TCP.")] = None
    udp: Annotated[ProtocolPorts | None, doc("UDP.")] = None
    sctp: Annotated[ProtocolPorts | None, doc("SCTP.")] = None
    destination_named_port: Annotated[str, doc("Name of a port of Pods, whatever its protocol.")] = ""


class ProtocolRule(Rule, frozen=True):
    """A rule with protocols."""

    protocols: Annotated[
        tuple[PolicyProtocol, ...],
        doc("Any of these; all traffic if not given.", minItems=1, maxItems=MAX_RULES),
    ] = ()

    @property
    def traffic(self) -> tuple[Any, ...]:
        return self.protocols


class IngressRule(ProtocolRule, frozen=True):
    """Traffic to the Pods and what becomes of it."""

    schema_keywords: ClassVar[Schema] = {"required": ["action", "from"]}

    from_: Annotated[
        tuple[IngressPeer, ...], doc("Where the traffic comes from.", minItems=1, maxItems=MAX_RULES)
    ] = ()

    @property
    def peers(self) -> tuple[Subject, ...]:
        return self.from_


class EgressRule(ProtocolRule, frozen=True):
    """Traffic from the Pods and what becomes of it."""

    schema_keywords: ClassVar[Schema] = {
        "required": ["action", "to"],
        **cel(NAMELESS, "networks, nodes and domainNames have no named ports"),
    }

    to: Annotated[tuple[EgressPeer, ...], doc("Where the traffic goes.", minItems=1, maxItems=MAX_RULES)] = ()

    @property
    def peers(self) -> tuple[Subject, ...]:
        return self.to


class ClusterNetworkPolicySpec(AdminPolicySpec, frozen=True):
    """Rules before or after all NetworkPolicies."""

    schema_keywords: ClassVar[Schema] = {"required": ["tier", "priority", "subject"]}

    tier: Annotated[
        str,
        doc(
            "Admin: no NetworkPolicy overrides its rules; Baseline: for Pods of which no NetworkPolicy speaks.",
            enum=["Admin", "Baseline"],
        ),
    ] = ""
    priority: Priority = 0
    ingress: Annotated[
        tuple[IngressRule, ...],
        doc("Rules for traffic to them, in order.", maxItems=MAX_RULES, at={"action": ACTIONS}),
    ] = ()
    egress: Annotated[
        tuple[EgressRule, ...],
        doc("Rules for traffic from them, in order.", maxItems=MAX_RULES, at={"action": ACTIONS}),
    ] = ()

    @property
    def place(self) -> tuple[str, float]:
        return self.tier, float(self.priority)

    @property
    def rules(self) -> tuple[tuple[str, tuple[Rule, ...]], ...]:
        return ("In", self.ingress), ("Out", self.egress)


class ClusterNetworkPolicy(CrdStruct, frozen=True):
    """A policy of the cluster's administrators."""

    schema_keywords: ClassVar[Schema] = {"required": ["spec"]}

    metadata: Metadata = Metadata()
    spec: ClusterNetworkPolicySpec = ClusterNetworkPolicySpec()
    status: AdminPolicyStatus = AdminPolicyStatus()
