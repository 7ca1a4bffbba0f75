"""AdminNetworkPolicy and BaselineAdminNetworkPolicy of policy.networking.k8s.io/v1alpha1.

Source: sigs.k8s.io/network-policy-api apis/v1alpha1
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

import msgspec

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

MAX_RULES = 100
"""Rules of a direction, peers and ports of a rule."""
ACTIONS = ("Allow", "Deny", "Pass")
NAMELESS = (
    "!(self.to.exists(peer, has(peer.networks) || has(peer.nodes){names}) && has(self.ports)"
    " && self.ports.exists(port, has(port.namedPort)))"
)
NAMED = " || has(peer.domainNames)"


class PortNumber(CrdStruct, frozen=True):
    """One port."""

    schema_keywords: ClassVar[Schema] = {"required": ["port"]}

    protocol: Annotated[str, doc("TCP, UDP or SCTP.", default="TCP")] = "TCP"
    port: Annotated[Number, doc("Destination port.")] = 0


class ProtocolPortRange(CrdStruct, frozen=True):
    """Ports from one to another, both included."""

    schema_keywords: ClassVar[Schema] = {"required": ["start", "end"], **RISES}

    protocol: Annotated[str, doc("TCP, UDP or SCTP.", default="TCP")] = "TCP"
    start: Annotated[Number, doc("First port.")] = 0
    end: Annotated[Number, doc("Last port.")] = 0


class PolicyPort(CrdStruct, frozen=True):
    """Ports by number or name."""

    schema_keywords: ClassVar[Schema] = ONE

    port_number: Annotated[PortNumber | None, doc("One port.")] = None
    named_port: Annotated[str | None, doc("Name of a port of Pods, whatever its protocol.")] = None
    some_ports: Annotated[ProtocolPortRange | None, doc("Ports from one to another.")] = msgspec.field(
        default=None, name="portRange"
    )


class PortRule(Rule, frozen=True):
    """A rule with ports."""

    ports: Annotated[
        tuple[PolicyPort, ...],
        doc("Any of these ports; all traffic if not given.", minItems=1, maxItems=MAX_RULES),
    ] = ()

    @property
    def traffic(self) -> tuple[Any, ...]:
        return self.ports


class IngressRule(PortRule, frozen=True):
    """Traffic to the Pods and what becomes of it."""

    schema_keywords: ClassVar[Schema] = {"required": ["action", "from"]}

    from_: Annotated[
        tuple[IngressPeer, ...], doc("Where the traffic comes from.", minItems=1, maxItems=MAX_RULES)
    ] = ()

    @property
    def peers(self) -> tuple[Subject, ...]:
        return self.from_


class EgressRule(PortRule, frozen=True):
    """Traffic from the Pods and what becomes of it."""

    schema_keywords: ClassVar[Schema] = {
        "required": ["action", "to"],
        **cel(NAMELESS.format(names=NAMED), "networks, nodes and domainNames have no named ports"),
    }

    to: Annotated[tuple[EgressPeer, ...], doc("Where the traffic goes.", minItems=1, maxItems=MAX_RULES)] = ()

    @property
    def peers(self) -> tuple[Subject, ...]:
        return self.to


class BaselineEgressRule(EgressRule, frozen=True):
    """Traffic from the Pods and what becomes of it; peers have no names."""

    schema_keywords: ClassVar[Schema] = {
        "required": ["action", "to"],
        **cel(NAMELESS.format(names=""), "networks and nodes have no named ports"),
    }


class AdminNetworkPolicySpec(AdminPolicySpec, frozen=True):
    """Rules that no NetworkPolicy overrides."""

    schema_keywords: ClassVar[Schema] = {"required": ["priority", "subject"]}

    priority: Priority = 0
    ingress: Annotated[
        tuple[IngressRule, ...],
        doc("Rules for traffic to them, in order.", maxItems=MAX_RULES, at={"action": {"enum": [*ACTIONS]}}),
    ] = ()
    egress: Annotated[
        tuple[EgressRule, ...],
        doc(
            "Rules for traffic from them, in order.", maxItems=MAX_RULES, at={"action": {"enum": [*ACTIONS]}}
        ),
    ] = ()

    @property
    def place(self) -> tuple[str, float]:
        return "Admin", float(self.priority)

    @property
    def rules(self) -> tuple[tuple[str, tuple[Rule, ...]], ...]:
        return ("In", self.ingress), ("Out", self.egress)


class BaselineAdminNetworkPolicySpec(AdminPolicySpec, frozen=True):
    """Rules for Pods that no NetworkPolicy selects."""

    ingress: Annotated[
        tuple[IngressRule, ...],
        doc(
            "Rules for traffic to them, in order.",
            maxItems=MAX_RULES,
            at={"action": {"enum": [*ACTIONS[:2]]}},
        ),
    ] = ()
    egress: Annotated[
        tuple[BaselineEgressRule, ...],
        doc(
            "Rules for traffic from them, in order.",
            maxItems=MAX_RULES,
            at={"action": {"enum": [*ACTIONS[:2]]}},
            without=("to.domainNames",),
        ),
    ] = ()

    @property
    def place(self) -> tuple[str, float]:
        return "Baseline", 1.0

    @property
    def rules(self) -> tuple[tuple[str, tuple[Rule, ...]], ...]:
        return ("In", self.ingress), ("Out", self.egress)


class AdminNetworkPolicy(CrdStruct, frozen=True):
    """A policy of the cluster's administrators, before all NetworkPolicies."""

    schema_keywords: ClassVar[Schema] = {"required": ["spec"]}

    metadata: Metadata = Metadata()
    spec: AdminNetworkPolicySpec = AdminNetworkPolicySpec()
    status: AdminPolicyStatus = AdminPolicyStatus()


class BaselineAdminNetworkPolicy(CrdStruct, frozen=True):
    """The policy of the cluster's administrators after all NetworkPolicies; there is one, and its name is default."""

    schema_keywords: ClassVar[Schema] = {"required": ["spec"]}

    metadata: Metadata = Metadata()
    spec: BaselineAdminNetworkPolicySpec = BaselineAdminNetworkPolicySpec()
    status: AdminPolicyStatus = AdminPolicyStatus()
