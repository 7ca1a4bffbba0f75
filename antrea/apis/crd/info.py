"""AntreaAgentInfo and AntreaControllerInfo of crd.antrea.io/v1beta1.

Source: upstream pkg/apis/crd/v1beta1/types.go, build/charts/antrea/crds/{antreaagentinfo,antreacontrollerinfo}.yaml
"""

from __future__ import annotations

from typing import Annotated, Final, Literal, TypeAlias

import msgspec

from antrea.apis.crd.part import CrdStruct, Int32, Metadata, ObjectReference, Port
from antrea.apis.schema import doc

Verdict: TypeAlias = Annotated[Literal["True", "False", "Unknown"], doc("Whether it holds.")]
Heartbeat: TypeAlias = Annotated[str, doc("When it was judged, RFC 3339.", format="date-time")]
CONDITION_TYPE: Final = "^[A-Z][A-Za-z0-9]*$"
Mtu: TypeAlias = Annotated[int, doc(format="int32", minimum=0)]


class AgentCondition(CrdStruct, frozen=True):
    """One line of an agent's health."""

    # no list of values: a feature adds its own, and a CustomResourceDefinition of another release must not refuse them
    type: Annotated[str, doc("Condition that is judged.", pattern=CONDITION_TYPE)]
    status: Verdict
    last_heartbeat_time: Heartbeat
    reason: Annotated[str, doc("Why, in one word.")] = ""
    message: Annotated[str, doc("Why, in a sentence.")] = ""


class ControllerCondition(CrdStruct, frozen=True):
    """One line of the controller's health."""

    type: Annotated[Literal["ControllerHealthy", "ConfigRejected", "PartFailed"], doc("What is judged.")]
    status: Verdict
    last_heartbeat_time: Heartbeat
    reason: Annotated[str, doc("Why, in one word.")] = ""
    message: Annotated[str, doc("Why, in a sentence.")] = ""


class OvsInfo(CrdStruct, frozen=True):
    """The switch of a Node."""

    version: Annotated[str, doc("Version of Open vSwitch.")] = ""
    bridge_name: Annotated[str, doc("The agent's bridge.")] = ""
    flow_table: Annotated[dict[str, Int32], doc("Number of flows by table.")] = msgspec.field(
        default_factory=dict
    )


class NetworkPolicyControllerInfo(CrdStruct, frozen=True):
    """How many objects of network policies a program has."""

    network_policy_num: Annotated[Int32, doc("Number of NetworkPolicies.")] = 0
    address_group_num: Annotated[Int32, doc("Number of AddressGroups.")] = 0
    applied_to_group_num: Annotated[Int32, doc("Number of AppliedToGroups.")] = 0


class NetworkInfo(CrdStruct, frozen=True):
    """How a Node reaches others."""

    transport_interface: Annotated[str, doc("Interface of traffic between Nodes.")] = ""
    transport_interface_mtu: Annotated[Mtu, doc("Its MTU.")] = 0
    pod_mtu: Annotated[Mtu, doc("MTU of Pods.")] = 0
    transport_interface_ips: Annotated[
        tuple[str, ...], doc("Its addresses, one per family.", maxItems=2)
    ] = ()


class AntreaAgentInfo(CrdStruct, frozen=True):
    """An agent about itself."""

    # what a factory makes is written though it is empty, as upstream's: `ovsInfo: {}`
    metadata: Metadata = Metadata()
    version: Annotated[str, doc("Version of the program.")] = ""
    pod_ref: Annotated[ObjectReference, doc("Its Pod.")] = msgspec.field(default_factory=ObjectReference)
    node_ref: Annotated[ObjectReference, doc("Its Node.")] = msgspec.field(default_factory=ObjectReference)
    node_subnets: Annotated[tuple[str, ...], doc("Where its Pods' addresses come from.")] = ()
    ovs_info: OvsInfo = msgspec.field(default_factory=OvsInfo)
    network_policy_controller_info: NetworkPolicyControllerInfo = msgspec.field(
        default_factory=NetworkPolicyControllerInfo
    )
    local_pod_num: Annotated[Int32, doc("Number of its Pods.")] = 0
    agent_conditions: Annotated[tuple[AgentCondition, ...], doc("Lines of health.")] = ()
    api_port: Annotated[Port, doc("Port of its API.")] = 0
    node_port_local_port_range: Annotated[str, doc("Ports of the Node that Pods can be given.")] = ""
    api_ca_bundle: Annotated[bytes, doc("Certificate authority of its API, PEM.")] = b""
    network_info: NetworkInfo = msgspec.field(default_factory=NetworkInfo)


class AntreaControllerInfo(CrdStruct, frozen=True):
    """The controller about itself."""

    metadata: Metadata = Metadata()
    version: Annotated[str, doc("Version of the program.")] = ""
    pod_ref: Annotated[ObjectReference, doc("Its Pod.")] = ObjectReference()
    node_ref: Annotated[ObjectReference, doc("Its Node.")] = ObjectReference()
    service_ref: Annotated[ObjectReference, doc("Its Service.")] = ObjectReference()
    network_policy_controller_info: NetworkPolicyControllerInfo = NetworkPolicyControllerInfo()
    connected_agent_num: Annotated[Int32, doc("Agents that watch.")] = 0
    controller_conditions: Annotated[tuple[ControllerCondition, ...], doc("Lines of health.")] = ()
    api_port: Annotated[Port, doc("Port of its API.")] = 0
