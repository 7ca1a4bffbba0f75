"""Tenants of the L7 engine: rules with application protocols, the VLANs of their connections, and whether they are judged.

A rule has a tenant for each of its versions: connections from before a change keep theirs, whose signatures follow a little
later.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import TYPE_CHECKING, ClassVar, Final

import msgspec

from antrea.facts.fact import Fact
from antrea.features.framework.gate import EnabledGates
from antrea.openflow.cookie import Category
from antrea.openflow.fields import (
    L7_NP_EGRESS_CT_LABEL,
    L7_NP_EGRESS_VLAN_ID_CT_LABEL,
    L7_NP_INGRESS_CT_LABEL,
    L7_NP_REDIRECT_CT_MARK,
    L7_NP_RULE_VLAN_ID_CT_LABEL,
)
from antrea.rank import Rank

if TYPE_CHECKING:
    from collections.abc import Iterator

    from antrea.engine import Facts
    from antrea.features.network_policy.agent.rule import PolicyRule
    from antrea.openflow.field import Mark

GATE: Final = "L7NetworkPolicy"
POOL: Final = "l7-vlan"
"""Pool of VLANs; a version of a rule keeps its own over restarts."""
NAMESPACE_SHARE: Final = 512
"""Share of the 4,094 tenants of a Node for the rules of one Namespace."""
ALL_NAMESPACES_SHARE: Final = 3582
"""Share of the 4,094 tenants for the rules of all Namespaces together: the rest is for cluster-scoped policies."""
MAX_OLD_VERSIONS: Final = 8
"""Maximum number of versions of a rule that have tenants for connections from before a change."""
DROPPED: Final = "all that the rule names is dropped"
CLOSED: Final = f"its requests are not judged, so {DROPPED}"


class Tenant(msgspec.Struct, frozen=True, kw_only=True):
    """Entry of the engine: it judges connections with this VLAN by these signatures, before flows send them there."""

    rule: str
    """Name of its PolicyRule."""
    version: str
    """Version of the rule that gave it its VLAN: see `version_of`."""
    vlan: int
    """1 to 4094."""
    signatures: str
    """Content of the rule file."""
    is_old: bool = False
    """Whether new connections have another tenant: this one gets the signatures later."""

    rank: ClassVar[int] = Rank.RECEIVES
    category: ClassVar[int] = Category.NETWORK_POLICY

    @property
    def key(self) -> int:
        return self.vlan


class LoadedTenant(Fact, frozen=True):
    """Tenant whose connections the engine judges; written by the effects of L7NetworkPolicy."""

    vlan: int
    rule: str = ""
    """Name of its PolicyRule."""
    version: str = ""
    """Version of the rule that its VLAN belongs to."""
    since: int = 0
    """Order: among several of a rule, new connections have the one with the largest number."""
    outdated: str = ""
    """Why the engine judges them by earlier signatures; empty if it does not."""
    indexes: ClassVar[Mapping[str, Callable[[LoadedTenant], Iterable[Hashable]]]] = {
        "rule": lambda row: (row.rule,)
    }

    @property
    def key(self) -> str:
        return str(self.vlan)


class UsedVlan(Fact, frozen=True):
    """VLAN that the engine, or connections, may have; written by the effects of L7NetworkPolicy. No other version gets its
    number.
    """

    vlan: int
    version: str
    """Version of the rule that the VLAN belongs to."""

    @property
    def key(self) -> str:
        return str(self.vlan)


class RejectedSignatures(Fact, frozen=True):
    """Reason why a rule has no signatures; derived."""

    rule: str
    why: str

    @property
    def key(self) -> str:
        return self.rule


class L7Claim(Fact, frozen=True):
    """Need of a namespaced rule for tenants; derived. Rules of cluster-scoped policies have none: administrators write those."""

    rule: str
    namespace: str
    since: tuple[str, str, int]
    """Order among the rules of a Namespace, least first: creation of the policy, its UID, the number of the rule."""
    indexes: ClassVar[Mapping[str, Callable[[L7Claim], Iterable[Hashable]]]] = {
        "namespace": lambda row: (row.namespace,)
    }

    @property
    def key(self) -> str:
        return self.rule


class L7Namespace(Fact, frozen=True):
    """Namespace with rules that need tenants; derived."""

    name: str

    @property
    def key(self) -> str:
        return self.name


class L7Demand(Fact, frozen=True):
    """How many tenants the rules of a Namespace need, at most as many as one Namespace can have; derived."""

    name: str
    tenants: int

    @property
    def key(self) -> str:
        return self.name


class L7Share(Fact, frozen=True):
    """How many tenants each Namespace can have, where all Namespaces together need too many; there is one row; derived."""

    most: int


class L7Excess(Fact, frozen=True):
    """Rule without a tenant, because earlier ones of its Namespace have as many as one Namespace may have; derived."""

    rule: str
    namespace: str
    most: int
    """Tenants that the Namespace can have on this Node."""

    @property
    def key(self) -> str:
        return self.rule


class L7Engine(Fact, frozen=True):
    """State of the engine on this Node; there is one row, once that is known."""

    why_not: str = ""
    """Why it judges nothing; empty if it runs."""


def version_of(rule: PolicyRule, signatures: str) -> str:
    """Return the name of a rule with its current content."""
    return f"{rule.name} {hashlib.sha256(signatures.encode()).hexdigest()[:16]}"


def serving(facts: Facts, rule: PolicyRule) -> LoadedTenant | None:
    """Return the tenant of new connections."""
    rows = facts.by(LoadedTenant, "rule", rule.name)
    return max(rows, key=lambda row: row.since, default=None)


def is_inspectable(facts: Facts, rule: PolicyRule) -> bool:
    """Whether the rule can have a tenant: its gate is on, and its connections are those of a Pod by the time of the verdict."""
    gates = facts.get(EnabledGates)
    return gates is not None and GATE in gates and not (rule.pre_dnat or rule.on_node_ports)


def why_not_inspected(facts: Facts, rule: PolicyRule) -> str:
    """Return why no request of the rule's connections is judged; empty if each is."""
    if not is_inspectable(facts, rule):
        why = "toServices needs AntreaProxy" if rule.pre_dnat else f"feature gate {GATE} is off"
        why = "l7Protocols are not for NodePorts" if rule.on_node_ports else why
        return f"{why}: {DROPPED}"
    if excess := facts.get(L7Excess, rule.name):
        shared = "" if excess.most == NAMESPACE_SHARE else f" while all need more than {ALL_NAMESPACES_SHARE}"
        return (
            f"Namespace {excess.namespace} has {excess.most} rules with l7Protocols, or versions of them that connections still "
            f"have, on this Node, as many as one Namespace can have{shared}: {CLOSED}. Delete some, or use fewer and larger rules"
        )
    if rejected := facts.get(RejectedSignatures, rule.name):
        return f"{rejected.why}: {DROPPED}"
    if serving(facts, rule) is None:
        engine = facts.get(L7Engine)
        return f"{(engine and engine.why_not) or 'the L7 engine has not loaded the rule yet'}: {CLOSED}"
    return ""


def outdated(facts: Facts, rule: PolicyRule) -> str:
    """Return why requests are judged by an earlier version of the rule; empty if they are not."""
    loaded = serving(facts, rule)
    return loaded.outdated if loaded else ""


def inspection_marks(facts: Facts, rule: PolicyRule) -> Iterator[Mark]:
    """Yield the marks that a connection of the rule stores.

    An ingress rule comes after an egress rule, whose VLAN has a field of its own beside upstream's.
    """
    tenant = serving(facts, rule)
    if tenant is None:
        return  # its connections are dropped
    vlan = tenant.vlan
    yield from (L7_NP_REDIRECT_CT_MARK, L7_NP_RULE_VLAN_ID_CT_LABEL(vlan))
    if rule.egress:
        yield from (L7_NP_EGRESS_CT_LABEL, L7_NP_EGRESS_VLAN_ID_CT_LABEL(vlan))
    else:
        yield L7_NP_INGRESS_CT_LABEL
