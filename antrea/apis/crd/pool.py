"""ExternalIPPool and IPPool of crd.antrea.io/v1beta1.

Source: upstream pkg/apis/crd/v1beta1/types.go, build/charts/antrea/crds/{externalippool,ippool}.yaml
"""

from __future__ import annotations

from typing import Annotated, ClassVar

from antrea.apis.crd.part import Address, Cidr, Condition, CrdStruct, LabelSelector, Metadata, Vlan, selector
from antrea.apis.schema import Schema, cel, doc, one_of


class IPRange(CrdStruct, frozen=True):
    """A CIDR, or addresses from `start` to `end`."""

    schema_keywords: ClassVar[Schema] = one_of("cidr", ("start", "end"))

    cidr: Annotated[Cidr, doc("All addresses of it that hosts can have.")] = ""
    start: Annotated[Address, doc("First address.")] = ""
    end: Annotated[Address, doc("Last address, itself included.")] = ""


class SubnetInfo(CrdStruct, frozen=True):
    """The subnet that the addresses are in."""

    gateway: Annotated[Address, doc("Router of the subnet.")]
    prefix_length: Annotated[int, doc("Prefix length of the subnet.", minimum=1, maximum=127)]
    vlan: Vlan = 0


class ExternalIPPoolSpec(CrdStruct, frozen=True):
    """Addresses and the Nodes that may have them."""

    ip_ranges: Annotated[tuple[IPRange, ...], doc("Addresses of the pool.")]
    node_selector: Annotated[LabelSelector, selector("Nodes that may have the addresses")]
    subnet_info: Annotated[
        SubnetInfo | None, doc("Subnet of the addresses, unless it is the Nodes' own.")
    ] = None


class PoolUsage(CrdStruct, frozen=True, omit_defaults=False):
    """How full the pool is."""

    total: Annotated[int, doc("Addresses that the pool has.")] = 0
    used: Annotated[int, doc("Addresses that are taken.")] = 0


class ExternalIPPoolStatus(CrdStruct, frozen=True):
    """How full the pool is."""

    usage: PoolUsage = PoolUsage()
    conditions: Annotated[
        tuple[Condition, ...],
        doc("GatewayAnswers, while its gateway does not; RangesValid, while ranges are left out."),
    ] = ()


class ExternalIPPool(CrdStruct, frozen=True):
    """Addresses for Egresses and Services of type LoadBalancer."""

    spec: ExternalIPPoolSpec
    metadata: Metadata = Metadata()
    status: ExternalIPPoolStatus = ExternalIPPoolStatus()


class IPPoolSpec(CrdStruct, frozen=True):
    """Addresses and their subnet."""

    ip_ranges: Annotated[tuple[IPRange, ...], doc("Addresses of the pool.")]
    subnet_info: Annotated[
        SubnetInfo,
        doc(
            "",
            at={
                "gateway": cel("self == oldSelf", "gateway is immutable"),
                "prefixLength": cel("self == oldSelf", "prefixLength is immutable"),
            },
        ),
    ]


class PodOwner(CrdStruct, frozen=True):
    """An interface of a Pod."""

    name: Annotated[str, doc("Name of the Pod.")] = ""
    namespace: Annotated[str, doc("Namespace of the Pod.")] = ""
    container_id: Annotated[str, doc("Its sandbox.")] = ""
    if_name: Annotated[str, doc("The interface within it.")] = ""


class StatefulSetOwner(CrdStruct, frozen=True):
    """A place in a StatefulSet."""

    name: Annotated[str, doc("Name of the StatefulSet.")] = ""
    namespace: Annotated[str, doc("Namespace of the StatefulSet.")] = ""
    index: Annotated[int, doc("Ordinal of the Pod.")] = 0


class IPAddressOwner(CrdStruct, frozen=True):
    """Object that owns an address."""

    pod: PodOwner | None = None
    stateful_set: StatefulSetOwner | None = None


class IPAddressState(CrdStruct, frozen=True):
    """One address that is taken."""

    ip_address: Annotated[str, doc("The address.")] = ""
    owner: IPAddressOwner = IPAddressOwner()
    phase: Annotated[str, doc("Allocated, Preallocated or Reserved.")] = ""


class IPPoolStatus(CrdStruct, frozen=True):
    """Which addresses are taken."""

    ip_addresses: Annotated[tuple[IPAddressState, ...], doc("Addresses that are taken.")] = ()
    usage: PoolUsage = PoolUsage()


class IPPool(CrdStruct, frozen=True):
    """Addresses for Pods and their further interfaces."""

    spec: IPPoolSpec
    metadata: Metadata = Metadata()
    status: IPPoolStatus = IPPoolStatus()
