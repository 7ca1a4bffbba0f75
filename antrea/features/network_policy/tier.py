"""Tiers: the ones that always exist, the fields of others that admission reads, and their uses.

parity: pkg/controller/networkpolicy/tier.go
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import TYPE_CHECKING, ClassVar

from antrea.apis.core import CoreStruct, ObjectMeta
from antrea.apis.crd.part import Metadata
from antrea.apis.crd.tier import Tier, TierSpec
from antrea.facts.fact import Fact
from antrea.features.framework.admission import Watched

if TYPE_CHECKING:
    from typing import Any

DEFAULT, BASELINE = "application", "baseline"
STATIC = frozenset(("Emergency", "SecurityOps", "NetworkOps", "Platform", "Application", "Baseline"))
"""Names that policies may use for the default tiers since before there were Tier objects."""
CRD = "/apis/crd.antrea.io/v1beta1"


def _default(name: str, title: str, priority: int) -> Tier:
    text = f"[READ-ONLY]: System generated {title} Tier"
    return Tier(Metadata(name=name), TierSpec(priority, text))


DEFAULT_TIERS: tuple[Tier, ...] = (
    _default("emergency", "Emergency", 50),
    _default("securityops", "SecurityOps", 100),
    _default("networkops", "NetworkOps", 150),
    _default("platform", "Platform", 200),
    _default(DEFAULT, "default Application", 250),
    _default(BASELINE, "Baseline", 253),
)
"""Tiers that the controller creates and that cannot be deleted."""
DEFAULT_NAMES = frozenset(tier.metadata.name for tier in DEFAULT_TIERS)
"""Names that policies may always use, even before a new controller has created the Tiers."""


class _TierOfPolicy(CoreStruct, frozen=True):
    tier: str = ""


class _PolicyRef(CoreStruct, frozen=True):
    """Policy with only its tier."""

    metadata: ObjectMeta = ObjectMeta()
    spec: _TierOfPolicy = _TierOfPolicy()


class TierRow(Fact, frozen=True):
    """Existing Tier."""

    name: str
    priority: int
    indexes: ClassVar[Mapping[str, Callable[[TierRow], Iterable[Hashable]]]] = {
        "priority": lambda row: (row.priority,)
    }

    @property
    def key(self) -> str:
        return self.name


class TierUse(Fact, frozen=True):
    """Policy by the tier it names; the Namespace of an Antrea ClusterNetworkPolicy is empty."""

    namespace: str
    name: str
    tier: str
    indexes: ClassVar[Mapping[str, Callable[[TierUse], Iterable[Hashable]]]] = {
        "tier": lambda row: (row.tier,)
    }

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"


class NamespacedTierUse(TierUse, frozen=True):
    """Antrea NetworkPolicy by the tier it names: it has another feed, so another kind."""


def tier_path(name: str) -> str:
    """Return the path of the Tier in the API."""
    return f"{CRD}/tiers/{name}"


def _use(kind: type[TierUse]) -> Callable[[Any], TierUse]:
    return lambda policy: kind(policy.metadata.namespace, policy.metadata.name, policy.spec.tier)


def _row(tier: Tier) -> TierRow:
    return TierRow(tier.metadata.name, tier.spec.priority)


TIERS = Watched(f"{CRD}/tiers", Tier, TierRow, _row, guards="all")
WATCHED = (
    TIERS,
    Watched(f"{CRD}/clusternetworkpolicies", _PolicyRef, TierUse, _use(TierUse)),
    Watched(f"{CRD}/networkpolicies", _PolicyRef, NamespacedTierUse, _use(NamespacedTierUse)),
)
