"""Egress in the agent: which Pods of this Node leave the cluster with which address, and by which Node.

A Pod that several Egresses of one family select follows the oldest of them, then the first by name.

The path of an address, each step with the modules that compute it:

1. allocated: whether the Egress may use the address. A function, not a row: all steps below ask it, so that none acts on an
   address that another Egress has.
2. owner (hash_ring, bfd): the Node that is to hold it, `EgressOwner`.
3. address (subnet, handover, duplicate_address, gateway_reachability): the owner adds and announces it, `LocalAddress`,
   `AssignedAddress`; during a move two Nodes have it (`HandoverState`).
4. snat_mark (subnet, port_block): its number, `EgressMark`, its source translation and its routing table; unknown_segment: what
   belongs to connections of another gateway; connection_copy (copy_stream): which Nodes get copies of them.
5. multi_address, flow (bandwidth): the flows of Pods, to this Node or to the one that has it.
6. reply_relay: answers that arrive at the wrong one of two Nodes during a move.
7. address_report, status, takeover_event: findings, conditions and Events.

parity: pkg/agent/controller/egress/egress_controller.go, pkg/agent/openflow/egress.go
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from antrea.apis.annotation import FAILBACK
from antrea.apis.controlplane import PodReference
from antrea.apis.crd import egress as crd
from antrea.apis.egress_address import EGRESSES
from antrea.engine import Unit
from antrea.facts.egress import (
    AssignedAddress,
    ConnectionCopy,
    CopySource,
    Egress,
    EgressMark,
    EgressPod,
    EgressPortBlock,
    ReleasedAddress,
)
from antrea.facts.member import GossipMember, PoolSelector, SilentNetwork
from antrea.facts.node import LocalAddress, PeerNode, ThisNode
from antrea.facts.ovs import PodInterface
from antrea.facts.service import Service
from antrea.features.egress.agent.address import (
    HELD_ADDRESSES,
    egress_device,
    node_device,
    own_address,
    taken_address,
)
from antrea.features.egress.agent.address_report import report_missing
from antrea.features.egress.agent.bandwidth import FEATURE as BANDWIDTH
from antrea.features.egress.agent.bandwidth import LIMITED, limit_of
from antrea.features.egress.agent.connection_copy import COPIED, connection_copy, copy_source
from antrea.features.egress.agent.duplicate_address import conflicts
from antrea.features.egress.agent.flow import (
    COUNTED,
    egress_node_flows,
    egress_peer_flows,
    egress_pod_flows,
    local_flows,
    unserved_flows,
)
from antrea.features.egress.agent.gateway_reachability import silent_subnets
from antrea.features.egress.agent.handover import unassigned_address
from antrea.features.egress.agent.hash_ring import MAX_SUBNETS
from antrea.features.egress.agent.multi_address import listed
from antrea.features.egress.agent.owner import FEATURE as PLACEMENT
from antrea.features.egress.agent.owner import waiting_of
from antrea.features.egress.agent.port_block import (
    answer_elements,
    end_rules,
    liberal_tracking,
    other_ports,
    pod_port_range,
    port_block_elements,
    port_block_rows,
    port_block_rules,
    unknown_answer_flows,
)
from antrea.features.egress.agent.reply_relay import (
    accepted_answers,
    relayed_answers,
    silent_address,
    unknown_answers,
)
from antrea.features.egress.agent.snat_mark import (
    MAX_AS,
    NUMBERS,
    POOL,
    address_mark,
    host_rules,
    lost_elements,
    lost_rule,
    mark_elements,
    released_mark,
    resets,
)
from antrea.features.egress.agent.status import egress_status, failure
from antrea.features.egress.agent.subnet import TABLE_POOL, mark_rule, rule_numbers
from antrea.features.egress.agent.tunnel_return import return_entries, return_flows, return_marks
from antrea.features.egress.agent.unknown_segment import unanswered_address, unknown_segments
from antrea.features.egress.preference import NONE, PORTS, survival
from antrea.features.egress.spec import unanswered
from antrea.features.framework.address import canonical
from antrea.features.framework.admission import Watched
from antrea.features.framework.agent_feature import AgentFeature
from antrea.features.framework.controlplane_watch import GroupKind
from antrea.features.framework.ip_range import prefix, usable
from antrea.features.framework.preference import NEVER, WHEN_IDLE, preferred_nodes
from antrea.host.carrier import HOLDER_TYPE
from antrea.host.ovs_port import BFD
from antrea.openflow.cookie import Category
from antrea.openflow.tables import EGRESS_MARK

if TYPE_CHECKING:
    from antrea.apis.controlplane import GroupMember

FLOW_KINDS = (Egress, EgressPod, LocalAddress, PoolSelector)
"""Kinds from which flows of Egress are derived."""


def egress_pod(egress: str, member: GroupMember) -> EgressPod:
    """Make the row of a member of an EgressGroup, which is a Pod."""
    pod = member.pod or PodReference()
    return EgressPod(egress, f"{pod.namespace}/{pod.name}")


def _destinations(cidrs: tuple[str, ...]) -> tuple[str, ...]:
    """Normalize networks, each once; none, which means everywhere, if one is invalid.

    Admission refuses an invalid one, but it may have been stored before: packets must not leave by another address then.
    """
    try:
        return tuple(dict.fromkeys(str(prefix(cidr).network) for cidr in cidrs))
    except ValueError:
        return ()


def _exceptions(cidrs: tuple[str, ...]) -> tuple[str, ...]:
    """Normalize exceptions; an invalid one is left out."""
    return tuple(dict.fromkeys(network for cidr in cidrs for network in _destinations((cidr,))))


def egress_rows(stored: crd.Egress) -> tuple[Egress, ...]:
    """Make a row for each address of an Egress."""
    row = egress_row(stored)
    return listed(row, stored) or (row,)


def egress_row(stored: crd.Egress) -> Egress:
    """Make the row of an Egress with its one address."""
    text, failback = stored.spec.egress_ip, stored.metadata.annotations.get(FAILBACK, "").strip()
    return Egress(
        name=stored.metadata.name,
        uid=stored.metadata.uid,
        ip=usable(text),
        invalid="" if usable(text) else text,
        pool=stored.spec.external_ip_pool,
        created=stored.metadata.creation_timestamp,
        node=stored.status.egress_node,
        held=canonical(stored.status.egress_ip),
        preferred=preferred_nodes(stored.metadata.annotations),
        stays=failback == NEVER,
        waits=failback == WHEN_IDLE,
        waiting=waiting_of(stored.status.conditions),
        resets=resets(stored.metadata.annotations),
        survives=survival(stored) == PORTS,
        copies=survival(stored) != NONE,
        copied=any(condition.type == COPIED for condition in stored.status.conditions),
        limit=limit_of(stored.spec.bandwidth),
        cidrs=_destinations(stored.spec.destinations.cidrs) if stored.spec.destinations else (),
        excepts=_exceptions(stored.spec.destinations.except_) if stored.spec.destinations else (),
        failed=failure(stored.status.conditions),
        unanswered=bool(unanswered(stored.status.conditions)),
        conflicts=conflicts(stored.status.conditions),
        judged=any(condition.type == LIMITED for condition in stored.status.conditions),
    )


FEATURE = AgentFeature(
    name="Egress",
    tables=(EGRESS_MARK,),
    gate="Egress",
    limits=((POOL, MAX_AS), (TABLE_POOL, MAX_SUBNETS)),
    watched=(
        Watched(EGRESSES, crd.Egress, Egress, egress_rows),
        Watched(EGRESSES, crd.Egress, EgressPortBlock, port_block_rows),
    ),
    watches=(GroupKind("egressgroups", EgressPod, egress_pod),),
    units=(
        Unit(LocalAddress, address_mark, yields=(EgressMark,)),
        Unit(ReleasedAddress, released_mark, yields=(EgressMark,)),
        Unit(ThisNode, host_rules),
        Unit(EgressMark, mark_elements),
        Unit(ThisNode, return_entries),
        Unit(ThisNode, return_marks),
        Unit(PeerNode, return_flows),
        Unit(ThisNode, lost_rule),
        Unit(EgressMark, lost_elements),
        Unit(ThisNode, unknown_segments),
        Unit(Egress, unanswered_address),
        Unit(ThisNode, port_block_rules),
        Unit(ThisNode, end_rules),
        Unit(EgressPortBlock, port_block_elements),
        Unit(EgressPortBlock, answer_elements),
        Unit(EgressMark, other_ports),
        Unit(EgressMark, liberal_tracking),
        Unit(Egress, connection_copy, yields=(ConnectionCopy,)),
        Unit(Egress, copy_source, yields=(CopySource,)),
        Unit(PodInterface, pod_port_range),
        Unit(PodInterface, unknown_answer_flows),
        Unit(ThisNode, egress_node_flows),
        Unit(PeerNode, egress_peer_flows),
        Unit(Service, unserved_flows),
        Unit(EgressMark, mark_rule),
        Unit(EgressMark, local_flows),
        Unit(PodInterface, egress_pod_flows),
        Unit(ThisNode, node_device),
        Unit(ThisNode, silent_subnets, yields=(SilentNetwork,)),
        Unit(Egress, egress_device),
        HELD_ADDRESSES,
        Unit(Egress, own_address),
        Unit(Egress, taken_address),
        Unit(AssignedAddress, unassigned_address),
        Unit(ThisNode, unknown_answers),
        Unit(EgressMark, accepted_answers),
        Unit(Egress, relayed_answers),
        Unit(Egress, silent_address),
        Unit(Egress, report_missing),
        Unit(Egress, egress_status),
    ),
    numbers=NUMBERS,
    rule_numbers=rule_numbers,
    category=Category.EGRESS,
    sweep_after=(*FLOW_KINDS, EgressPortBlock, GossipMember, Service),
    replay_after=FLOW_KINDS,
    own_ports=frozenset({HOLDER_TYPE, BFD}),
    counted=COUNTED,
)
FEATURES = (FEATURE, PLACEMENT, BANDWIDTH)
