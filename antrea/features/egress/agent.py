"""Egress in the agent: which Pods of this Node leave the cluster with which address, and by which Node.

A Pod that several Egresses of one family select follows the oldest of them, then the first by name.
parity: pkg/agent/controller/egress/egress_controller.go, pkg/agent/openflow/egress.go
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from antrea.apis.annotation import FAILBACK
from antrea.apis.controlplane import PodReference
from antrea.apis.crd import egress as crd
from antrea.engine import Unit
from antrea.facts.egress import Egress, EgressMark, EgressPod
from antrea.facts.node import LocalAddress, OnLink, PeerNode, ThisNode
from antrea.facts.ovs import PodInterface
from antrea.features.admission import Watched
from antrea.features.controlplane import GroupKind
from antrea.features.egress.address import (
    egress_device,
    held_address,
    node_device,
    on_link,
    own_address,
    taken_address,
)
from antrea.features.egress.bandwidth import LIMITED, limit_of
from antrea.features.egress.duplicate import conflicts
from antrea.features.egress.failback import waiting_of
from antrea.features.egress.flow import local_flows, node_flows, peer_flows, pod_flows
from antrea.features.egress.gateway import unanswered
from antrea.features.egress.handover import given_up
from antrea.features.egress.list_status import list_status
from antrea.features.egress.lost import lost_elements, lost_rule, resets
from antrea.features.egress.mark import MOST, POOL, address_mark, host_rules, mark_elements
from antrea.features.egress.placement import MOST_SUBNETS
from antrea.features.egress.preference import NEVER, WHEN_IDLE, preferred_nodes
from antrea.features.egress.relay import accepted_answers, relayed_answers, silent_address
from antrea.features.egress.several import listed
from antrea.features.egress.status import IP_ASSIGNED, egress_status
from antrea.features.egress.subnet import TABLE_POOL, mark_rule
from antrea.features.external_ip_pool.address import canonical
from antrea.features.feature import AgentFeature, Families
from antrea.features.ip_range import prefix
from antrea.openflow.tables import EGRESS_MARK

if TYPE_CHECKING:
    from antrea.apis.controlplane import GroupMember
    from antrea.config.agent import AgentConfig
    from antrea.openflow.table import Table


def tables(config: AgentConfig, families: Families) -> tuple[Table, ...]:
    """The one in which a Pod's packets learn their Egress IP."""
    return (EGRESS_MARK,)


def egress_pod(egress: str, member: GroupMember) -> EgressPod:
    """The members of an EgressGroup are Pods."""
    pod = member.pod or PodReference()
    return EgressPod(egress, f"{pod.namespace}/{pod.name}")


def _networks(cidrs: tuple[str, ...]) -> tuple[str, ...]:
    """As flows name them, each once."""
    return tuple(dict.fromkeys(str(prefix(cidr).network) for cidr in cidrs))


def egress_rows(found: crd.Egress) -> tuple[Egress, ...]:
    """One for each of its addresses."""
    one = egress_row(found)
    return listed(one, found) or (one,)


def egress_row(found: crd.Egress) -> Egress:
    """An Egress by what agents need of it, with its one address."""
    text, failback = found.spec.egress_ip, found.metadata.annotations.get(FAILBACK, "").strip()
    return Egress(
        name=found.metadata.name,
        uid=found.metadata.uid,
        ip=canonical(text),
        pool=found.spec.external_ip_pool,
        created=found.metadata.creation_timestamp,
        node=found.status.egress_node,
        held=canonical(found.status.egress_ip),
        preferred=preferred_nodes(found.metadata.annotations),
        stays=failback == NEVER,
        waits=failback == WHEN_IDLE,
        waiting=waiting_of(found.status.conditions),
        resets=resets(found.metadata.annotations),
        limit=limit_of(found.spec.bandwidth),
        cidrs=_networks(found.spec.destinations.cidrs) if found.spec.destinations else (),
        excepts=_networks(found.spec.destinations.except_) if found.spec.destinations else (),
        failed=any(one.type == IP_ASSIGNED and one.status == "False" for one in found.status.conditions),
        unanswered=bool(unanswered(found.status.conditions)),
        conflicts=conflicts(found.status.conditions),
        judged=any(one.type == LIMITED for one in found.status.conditions),
    )


FEATURE = AgentFeature(
    name="Egress",
    tables=tables,
    gate="Egress",
    limits=((POOL, MOST), (TABLE_POOL, MOST_SUBNETS)),
    watched=(Watched("/apis/crd.antrea.io/v1beta1/egresses", crd.Egress, Egress, egress_rows),),
    watches=(GroupKind("egressgroups", EgressPod, egress_pod),),
    units=(
        Unit(LocalAddress, address_mark, yields=(EgressMark,)),
        Unit(LocalAddress, on_link, yields=(OnLink,)),
        Unit(ThisNode, host_rules),
        Unit(EgressMark, mark_elements),
        Unit(ThisNode, lost_rule),
        Unit(EgressMark, lost_elements),
        Unit(ThisNode, node_flows),
        Unit(PeerNode, peer_flows),
        Unit(EgressMark, mark_rule),
        Unit(EgressMark, local_flows),
        Unit(PodInterface, pod_flows),
        Unit(ThisNode, node_device),
        Unit(Egress, egress_device),
        Unit(Egress, held_address),
        Unit(Egress, own_address),
        Unit(Egress, taken_address),
        Unit(Egress, given_up),
        Unit(EgressMark, accepted_answers),
        Unit(Egress, relayed_answers),
        Unit(Egress, silent_address),
        Unit(Egress, egress_status),
        Unit(Egress, list_status),
    ),
)
