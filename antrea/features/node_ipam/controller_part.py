"""Effects of NodeIPAM: the leader writes Pod CIDRs to Nodes that have none."""

from __future__ import annotations

from typing import TYPE_CHECKING

from antrea.apis.core import Node
from antrea.features.framework.admission import Watched
from antrea.features.framework.controller_part import ControllerPart
from antrea.features.node_ipam.allocation import Allocation
from antrea.features.node_ipam.controller import PATH, NodePodCidrs, PodCidrClaim, node_row
from antrea.outside.kube.leader_only_sink import LeaderOnlySink
from antrea.outside.kube.pod_cidr_sink import PodCidrSink

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from antrea.engine import Sink
    from antrea.features.framework.controller_part import ControllerContext


class NodeIPAMPart(ControllerPart):
    """Allocator of the Pod CIDRs of all Nodes."""

    def __init__(self, controller: ControllerContext) -> None:
        self._enabled = controller.config.node_ipam.enable_node_ipam

        def empty() -> Allocation:
            return Allocation(controller.config.node_ipam)

        self._claims = LeaderOnlySink(PodCidrSink(controller.kube, empty), controller.lead)

    def watched(self) -> Iterable[Watched]:
        return (Watched(PATH, Node, NodePodCidrs, node_row),) if self._enabled else ()

    def sinks(self) -> Mapping[type, Sink]:
        return {PodCidrClaim: self._claims}


PART = NodeIPAMPart
