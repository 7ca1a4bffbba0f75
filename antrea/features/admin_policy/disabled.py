"""Admin policies while their gates are off: no Node has them, and their status claims none."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import msgspec

from antrea.apis.network_policy_api.place import PLACES
from antrea.engine import Unit
from antrea.features.framework.controller_feature import ControllerFeature
from antrea.features.framework.disabled import DisabledObject, switched_off, watched
from antrea.features.network_policy.controller.admin_status import REALIZED, admin_status

if TYPE_CHECKING:
    from collections.abc import Iterator

    from antrea.apis.status import Status
    from antrea.engine import Facts


class DisabledAdminPolicy(DisabledObject, frozen=True):
    """An AdminNetworkPolicy."""

    source_type: ClassVar[str] = "AdminNetworkPolicy"
    gate: ClassVar[str] = "AdminNetworkPolicy"


class DisabledBaselinePolicy(DisabledAdminPolicy, frozen=True):
    """A BaselineAdminNetworkPolicy."""

    source_type: ClassVar[str] = "BaselineAdminNetworkPolicy"


class DisabledTieredPolicy(DisabledAdminPolicy, frozen=True):
    """A ClusterNetworkPolicy of policy.networking.k8s.io."""

    source_type: ClassVar[str] = "K8sClusterNetworkPolicy"
    gate: ClassVar[str] = "ClusterNetworkPolicy"


def withdrawn_admin_status(_: Facts, policy: DisabledAdminPolicy) -> Iterator[Status]:
    """Yield the status of a policy that no Node enforces."""
    off = switched_off("Realizable", policy.gate)
    conditions = (off, msgspec.structs.replace(off, type=REALIZED))
    yield admin_status(policy.path, PLACES[policy.source_type].kind, policy.generation, conditions)


def _feature(gate: str, *kinds: type[DisabledAdminPolicy]) -> ControllerFeature:
    return ControllerFeature(
        name=f"{gate} disabled",
        watched=tuple(watched(PLACES[kind.source_type].collection, kind, optional=True) for kind in kinds),
        units=tuple(Unit(kind, withdrawn_admin_status) for kind in kinds),
        gate=gate,
    )


FEATURES = (
    _feature("AdminNetworkPolicy", DisabledAdminPolicy, DisabledBaselinePolicy),
    _feature("ClusterNetworkPolicy", DisabledTieredPolicy),
)
