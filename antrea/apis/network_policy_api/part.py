"""Types that the kinds of policy.networking.k8s.io share: subjects, peers, rules, conditions.

Lists and choices are bounded in the schema alone: objects of other versions of these CRDs are read as well, and what is not
known of them is closed, and named in their status.
Source: sigs.k8s.io/network-policy-api apis/v1alpha1, apis/v1alpha2
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, TypeAlias

from antrea.apis.crd.part import Condition, CrdStruct, LabelSelector, selector
from antrea.apis.schema import Schema, cel, doc

GROUP = "policy.networking.k8s.io"
LABEL = "[A-Za-z0-9_]([-A-Za-z0-9_]*[A-Za-z0-9])?"
DOMAIN = rf"^(\*\.)?({LABEL}\.)+{LABEL}\.?$"
ONE: Schema = {"minProperties": 1, "maxProperties": 1}
"""Exactly one of the fields."""
MAX_CIDR = 43
"""Characters."""
Number: TypeAlias = Annotated[int, doc(format="int32", minimum=1, maximum=65535)]
Network: TypeAlias = Annotated[str, doc(format="cidr", maxLength=MAX_CIDR)]
Domain: TypeAlias = Annotated[str, doc(pattern=DOMAIN)]
Priority: TypeAlias = Annotated[
    int,
    doc("Place among the policies of its tier; the lowest goes first.", format="int32", minimum=0, maximum=1000),
]  # fmt: skip
RuleName: TypeAlias = Annotated[str, doc("How the rule is named in logs and answers.", maxLength=100)]
RISES = cel("self.start < self.end", "start must be less than end")


class NamespacedPod(CrdStruct, frozen=True):
    """Pods by their labels and those of their Namespaces."""

    schema_keywords: ClassVar[Schema] = {"required": ["podSelector"]}

    namespace_selector: Annotated[LabelSelector, selector("Namespaces")] = LabelSelector()
    pod_selector: Annotated[LabelSelector, selector("Pods")] = LabelSelector()


class Subject(CrdStruct, frozen=True):
    """Whom a policy is for; Pods on the network of their Node are not meant."""

    schema_keywords: ClassVar[Schema] = ONE

    namespaces: Annotated[LabelSelector | None, selector("Namespaces, all of whose Pods are meant,")] = None
    pods: Annotated[NamespacedPod | None, doc("Pods of Namespaces.")] = None


class IngressPeer(Subject, frozen=True):
    """Where traffic comes from."""


class EgressPeer(Subject, frozen=True):
    """Where traffic goes."""

    nodes: Annotated[LabelSelector | None, selector("Nodes, whose addresses are meant,")] = None
    networks: Annotated[
        tuple[Network, ...],
        doc("CIDRs.", {"x-kubernetes-list-type": "set"}, minItems=1, maxItems=25),
    ] = ()
    domain_names: Annotated[
        tuple[Domain, ...],
        doc(
            "DNS names; *. before one stands for one or more labels.",
            {"x-kubernetes-list-type": "set"},
            minItems=1,
            maxItems=25,
        ),
    ] = ()


class Rule(CrdStruct, frozen=True):
    """Fields of a rule in every version and direction."""

    action: Annotated[str, doc("What becomes of the traffic; Pass leaves it to the next tier.")] = ""
    name: RuleName = ""

    @property
    def peers(self) -> tuple[Subject, ...]:
        """The other side of its traffic."""
        return ()

    @property
    def traffic(self) -> tuple[Any, ...]:
        """Ports or protocols, as its version has them; none: all traffic."""
        return ()


class PolicyCondition(Condition, frozen=True):
    """One statement on how the policy fares."""

    schema_keywords: ClassVar[Schema] = {
        "required": ["type", "status", "lastTransitionTime", "reason", "message"]
    }

    observed_generation: Annotated[int, doc("Generation that it speaks of.", format="int64")] = 0


class AdminPolicyStatus(CrdStruct, frozen=True):
    """How Nodes are with the policy."""

    conditions: Annotated[
        tuple[PolicyCondition, ...],
        doc(
            "Realizable, Realized, RealizationFailure.",
            {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
        ),
    ] = ()


class AdminPolicySpec(CrdStruct, frozen=True):
    """Fields of every kind."""

    schema_keywords: ClassVar[Schema] = {"required": ["subject"]}

    subject: Annotated[Subject, doc("Pods that the policy is for.")] = Subject()

    @property
    def place(self) -> tuple[str, float]:
        """Its tier in words, Admin or Baseline, and its priority there."""
        raise NotImplementedError

    @property
    def rules(self) -> tuple[tuple[str, tuple[Rule, ...]], ...]:
        """In and Out, with their rules in order."""
        raise NotImplementedError
