"""Antrea's own policies in the controller: what is sent to agents of them, and to which Nodes.

parity: pkg/controller/networkpolicy/networkpolicy_controller.go syncInternalNetworkPolicy
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from antrea.apis import core
from antrea.apis.crd.external import ExternalEntity
from antrea.engine import Unit
from antrea.facts.cluster import ClusterNode, ClusterService, Entity
from antrea.facts.group import (
    AppliedNode,
    ForeignMember,
    GroupNodes,
    GroupSelector,
    PublishedGroup,
    UnenforcedMember,
)
from antrea.features.framework.admission import Watched
from antrea.features.framework.controller_feature import ControllerFeature
from antrea.features.grouping.member import ADDRESS, APPLIED
from antrea.features.grouping.publication import POLICIES, GroupSpan, PublishedPolicy
from antrea.features.grouping.row import entity_row, node_row, service_row
from antrea.features.network_policy.controller import antrea_internal_policy, realization
from antrea.features.network_policy.controller import group as source_group
from antrea.features.network_policy.controller.antrea_internal_policy import (
    ClusterPolicy,
    InternalPolicy,
    NamespacedPolicy,
    internal_policy,
)
from antrea.features.network_policy.controller.group import GroupUse
from antrea.features.network_policy.controller.named_port import unknown_ports
from antrea.features.network_policy.controller.realization import MAX_PARTS, PolicySpan
from antrea.features.network_policy.controller.unbuilt import NO_MACHINE
from antrea.features.network_policy.tier import TIERS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from antrea.engine import Facts


def _united(spans: list[tuple[str, ...]]) -> tuple[str, ...]:
    """Unite spans; a single one, the usual case, is shared."""
    return spans[0] if len(spans) == 1 else tuple(sorted({node for span in spans for node in span}))


def publication(facts: Facts, policy: InternalPolicy) -> Iterator[PublishedPolicy | GroupSpan | PolicySpan]:
    """Yield the policy for all Nodes with a member that it is for, and those Nodes for the groups of its peers.

    There are no Nodes if one of its groups cannot be what a policy is for.
    """
    strange = next((name for name in policy.targets if facts.get(ForeignMember, f"{APPLIED}/{name}")), "")
    spans = [row.parts for name in policy.targets if (row := facts.get(GroupNodes, name)) is not None]
    nodes = () if strange else _united(spans)
    yield PublishedPolicy(policy.policy, nodes)
    unheld = (*policy.unheld, *_unenforced(facts, policy))
    own_nodes = {row.node for name in policy.targets for row in facts.by(AppliedNode, "group", name)}
    yield PolicySpan(
        policy.source,
        policy.policy.metadata.generation,
        nodes,
        strange,
        unheld,
        policy.audited,
        tuple(sorted(own_nodes)),
        unknown_ports(facts, policy.policy),
    )
    for name in policy.peers if nodes else ():
        yield GroupSpan(ADDRESS, name, nodes)


def _unenforced(facts: Facts, policy: InternalPolicy) -> Iterator[str]:
    """Yield a sentence for each ExternalEntity that the policy is for and that no agent serves, as many as a condition names."""
    entities = {row.entity for name in policy.targets for row in facts.by(UnenforcedMember, "group", name)}
    for entity in sorted(entities)[: MAX_PARTS + 1]:
        yield f"ExternalEntity {entity} {NO_MACHINE}"


_MADE = (InternalPolicy, PublishedGroup, GroupSelector, GroupUse)
FEATURE = ControllerFeature(
    name="AntreaPolicy",
    watched=(
        TIERS,
        *antrea_internal_policy.WATCHED,
        *source_group.WATCHED,
        Watched("/api/v1/nodes", core.Node, ClusterNode, node_row),
        Watched("/api/v1/services", core.Service, ClusterService, service_row),
        Watched("/apis/crd.antrea.io/v1alpha2/externalentities", ExternalEntity, Entity, entity_row),
    ),
    units=(
        *source_group.UNITS,
        Unit(ClusterPolicy, internal_policy, yields=_MADE, measured_as=(POLICIES,)),
        Unit(NamespacedPolicy, internal_policy, yields=_MADE, measured_as=(POLICIES,)),
        Unit(InternalPolicy, publication, yields=(PolicySpan,), measured_as=(POLICIES,)),
        *realization.UNITS,
    ),
    publishes=(ADDRESS, APPLIED, POLICIES),
    gate="AntreaPolicy",
)
