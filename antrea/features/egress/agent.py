"""Egress in the agent: which Pods of this Node each Egress selects, as the controller says.

parity: pkg/agent/controller/egress/egress_controller.go
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from antrea.apis.controlplane import PodReference
from antrea.facts.egress import EgressPod
from antrea.features.controlplane import GroupKind
from antrea.features.feature import AgentFeature, Families

if TYPE_CHECKING:
    from antrea.apis.controlplane import GroupMember
    from antrea.config.agent import AgentConfig
    from antrea.openflow.table import Table


def tables(config: AgentConfig, families: Families) -> tuple[Table, ...]:
    """None as long as no packet is marked."""
    return ()


def egress_pod(egress: str, member: GroupMember) -> EgressPod:
    """The members of an EgressGroup are Pods."""
    pod = member.pod or PodReference()
    return EgressPod(egress, f"{pod.namespace}/{pod.name}")


FEATURE = AgentFeature(
    name="Egress", tables=tables, watches=(GroupKind("egressgroups", EgressPod, egress_pod),)
)
