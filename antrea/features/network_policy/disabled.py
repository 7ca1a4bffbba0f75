"""Status of Antrea's own policies and groups while the gate AntreaPolicy is off: no Node has them."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from antrea.apis.crd.part import Condition
from antrea.apis.status import Status
from antrea.engine import Unit
from antrea.features.framework.controller_feature import ControllerFeature
from antrea.features.framework.disabled import MANAGER, DisabledObject, switched_off, watched
from antrea.features.network_policy.tier import CRD

if TYPE_CHECKING:
    from collections.abc import Iterator

    from antrea.engine import Facts

GATE = "AntreaPolicy"


class DisabledNamespacedPolicy(DisabledObject, frozen=True):
    """NetworkPolicy of crd.antrea.io."""

    kind: ClassVar[str] = "NetworkPolicy"


class DisabledClusterPolicy(DisabledObject, frozen=True):
    """ClusterNetworkPolicy of crd.antrea.io."""

    kind: ClassVar[str] = "ClusterNetworkPolicy"


class DisabledNamespacedGroup(DisabledObject, frozen=True):
    """A Group."""

    kind: ClassVar[str] = "Group"


class DisabledClusterGroup(DisabledObject, frozen=True):
    """A ClusterGroup."""

    kind: ClassVar[str] = "ClusterGroup"


def withdrawn_policy_status(
    _: Facts, policy: DisabledNamespacedPolicy | DisabledClusterPolicy
) -> Iterator[Status]:
    """Yield the status of a policy that no Node enforces."""
    yield Status(
        path=policy.path,
        kind=policy.kind,
        manager=MANAGER,
        fields=(
            ("phase", "Failed"),
            ("observedGeneration", policy.generation),
            ("currentNodesRealized", 0),
            ("desiredNodesRealized", 0),
        ),
        conditions=(switched_off("Realizable", GATE), Condition("RealizationFailure")),
    )


def withdrawn_group_status(
    _: Facts, group: DisabledNamespacedGroup | DisabledClusterGroup
) -> Iterator[Status]:
    """Yield the status of a group whose members are not computed."""
    yield Status(
        path=group.path,
        kind=group.kind,
        manager=MANAGER,
        conditions=(switched_off("GroupMembersComputed", GATE),),
    )


FEATURE = ControllerFeature(
    name="AntreaPolicy disabled",
    watched=(
        watched(f"{CRD}/networkpolicies", DisabledNamespacedPolicy),
        watched(f"{CRD}/clusternetworkpolicies", DisabledClusterPolicy),
        watched(f"{CRD}/groups", DisabledNamespacedGroup),
        watched(f"{CRD}/clustergroups", DisabledClusterGroup),
    ),
    units=(
        Unit(DisabledNamespacedPolicy, withdrawn_policy_status),
        Unit(DisabledClusterPolicy, withdrawn_policy_status),
        Unit(DisabledNamespacedGroup, withdrawn_group_status),
        Unit(DisabledClusterGroup, withdrawn_group_status),
    ),
    gate=GATE,
)
FEATURES = (FEATURE,)
