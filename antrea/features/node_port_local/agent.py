"""NodePortLocal in the agent: requests of Pods, the nftables that lead to them, annotations and Events."""

from __future__ import annotations

from antrea.engine import Unit
from antrea.facts.node import ThisNode
from antrea.features.framework.agent_feature import AgentFeature
from antrea.features.node_port_local.host import port_local_elements, port_local_tables
from antrea.features.node_port_local.request import port_annotation, port_message, port_requests
from antrea.features.node_port_local.row import PortLocalPod, PortRequest, PortsDecided
from antrea.openflow.cookie import Category

GATE = "NodePortLocal"
FEATURE = AgentFeature(
    name=GATE,
    gate=GATE,
    units=(
        Unit(ThisNode, port_local_tables),
        Unit(PortLocalPod, port_requests, yields=(PortRequest,)),
        Unit(PortRequest, port_local_elements),
        Unit(PortRequest, port_message),
        Unit(PortLocalPod, port_annotation),
    ),
    category=Category.SERVICE,
    sweep_after=(PortsDecided,),
)
FEATURES = (FEATURE,)
