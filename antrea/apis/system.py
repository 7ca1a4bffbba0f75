"""system.antrea.io/v1beta1: the controller about itself, and bundles of logs.

Source: upstream pkg/apis/system/v1beta1/types.go, pkg/apis/crd/v1beta1/types.go AntreaControllerInfo.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from antrea.apis.meta import Int32, Int64, ObjectMetadata, Wire

GROUP, VERSION = "system.antrea.io", "v1beta1"


class ObjectReference(Wire, frozen=True, kw_only=True):
    """Another object."""

    kind: Annotated[str, Meta(description="Kind of the object.")] = ""
    namespace: Annotated[str, Meta(description="Namespace of the object.")] = ""
    name: Annotated[str, Meta(description="Name of the object.")] = ""
    uid: Annotated[str, Meta(description="UID of the object.")] = ""
    api_version: Annotated[str, Meta(description="API version of the object.")] = ""
    resource_version: Annotated[str, Meta(description="Version of the object that is meant.")] = ""
    field_path: Annotated[str, Meta(description="Part of the object that is meant.")] = ""


class NetworkPolicyControllerInfo(Wire, frozen=True, kw_only=True):
    """How much is computed for network policies."""

    network_policy_num: Annotated[Int32, Meta(description="Number of NetworkPolicies.")] = 0
    address_group_num: Annotated[Int32, Meta(description="Number of AddressGroups.")] = 0
    applied_to_group_num: Annotated[Int32, Meta(description="Number of AppliedToGroups.")] = 0


class ControllerCondition(Wire, frozen=True, kw_only=True):
    """One line of health."""

    type: Annotated[str, Meta(description="What is judged, such as ControllerHealthy.")]
    status: Annotated[str, Meta(description="True, False or Unknown.")]
    last_heartbeat_time: Annotated[str | None, Meta(description="When it was judged.")]
    reason: Annotated[str, Meta(description="Why, in one word.")] = ""
    message: Annotated[str, Meta(description="Why, in a sentence.")] = ""


class AntreaControllerInfo(Wire, frozen=True, kw_only=True):
    """The controller about itself."""

    metadata: ObjectMetadata
    version: Annotated[str, Meta(description="Version of the program.")] = ""
    pod_ref: Annotated[ObjectReference, Meta(description="Its Pod.")]
    node_ref: Annotated[ObjectReference, Meta(description="Its Node.")]
    service_ref: Annotated[ObjectReference, Meta(description="Its Service.")]
    network_policy_controller_info: Annotated[
        NetworkPolicyControllerInfo, Meta(description="How much is computed for network policies.")
    ]
    connected_agent_num: Annotated[Int32, Meta(description="Agents that watch AppliedToGroups.")] = 0
    controller_conditions: Annotated[
        tuple[ControllerCondition, ...], Meta(description="Lines of health, ControllerHealthy among them.")
    ] = ()
    api_port: Annotated[Int32, Meta(description="Port of its API.")] = msgspec.field(
        default=0, name="apiPort"
    )


class SupportBundle(Wire, frozen=True, kw_only=True):
    """A bundle of logs that is made on demand."""

    metadata: ObjectMetadata = ObjectMetadata()
    status: Annotated[str, Meta(description="None, Collecting or Collected.")] = ""
    sum: Annotated[str, Meta(description="SHA-256 of the bundle in hexadecimal.")] = ""
    since: Annotated[str, Meta(description="Only logs younger than this duration.")] = ""
    size: Annotated[Int64, Meta(description="Bytes of the bundle.")] = 0
