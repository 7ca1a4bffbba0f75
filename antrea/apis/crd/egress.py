"""Egress of crd.antrea.io/v1beta1; v1alpha2 is the same without `bandwidth`.

Source: upstream pkg/apis/crd/v1beta1/types.go, build/charts/antrea/crds/egress.yaml (and v1.15.1's)
"""

from __future__ import annotations

from typing import Annotated, ClassVar

from antrea.apis.crd.part import Address, AppliedToPods, Condition, CrdStruct, Metadata
from antrea.apis.schema import Schema, doc

ONE_OR_MANY = [
    {"anyOf": [{"required": ["egressIP"]}, {"required": ["externalIPPool"]}]},
    {"anyOf": [{"required": ["egressIPs"]}, {"required": ["externalIPPools"]}]},
]


class Bandwidth(CrdStruct, frozen=True):
    """Limits for all traffic of the Egress together."""

    rate: Annotated[str, doc("Bits per second, a quantity such as 500k or 10M.")]
    burst: Annotated[str, doc("Bits above the rate, a quantity such as 500k or 10M.")]


class EgressSpec(CrdStruct, frozen=True):
    """Which Pods leave the cluster with which address."""

    schema_keywords: ClassVar[Schema] = {"oneOf": ONE_OR_MANY}

    applied_to: Annotated[AppliedToPods, doc("Pods whose traffic leaves with the address.")]
    egress_ip: Annotated[Address, doc("The address; chosen from `externalIPPool` if not given.")] = ""
    egress_ips: Annotated[
        tuple[Annotated[str, doc(oneOf=[{"maxLength": 0}, {"format": "ipv4"}, {"format": "ipv6"}])], ...],
        doc("Several addresses (not supported yet)."),
    ] = ()
    external_ip_pool: Annotated[
        str, doc("ExternalIPPool of the address; if empty, a Node must have the address already.")
    ] = ""
    external_ip_pools: Annotated[tuple[str, ...], doc("Pools of `egressIPs` (not supported yet).")] = ()
    bandwidth: Bandwidth | None = None


class EgressStatus(CrdStruct, frozen=True):
    """Where the address is."""

    egress_node: Annotated[str, doc("Node that has the address.")] = ""
    egress_ip: Annotated[str, doc("Address that the traffic leaves with.")] = ""
    conditions: Annotated[tuple[Condition, ...], doc("IPAllocated, IPAssigned.")] = ()


class Egress(CrdStruct, frozen=True):
    """The source address of Pods' traffic that leaves the cluster."""

    spec: EgressSpec
    metadata: Metadata = Metadata()
    status: EgressStatus = EgressStatus()
