"""IPPool, ExternalIPPool and Egress of crd.antrea.io/v1alpha2, which are served and stored as v1beta1.

Source: upstream build/charts/antrea/crds/ippool.yaml; externalippool.yaml and egress.yaml of v1.15.1
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from antrea.apis.crd import egress, pool
from antrea.apis.crd.part import Address, Cidr, CrdStruct, LabelSelector, Metadata, Vlan, selector
from antrea.apis.schema import Schema, doc, one_of


class IPRange(CrdStruct, frozen=True):
    """A CIDR, or addresses from `start` to `end`, with their subnet."""

    schema_keywords: ClassVar[Schema] = one_of(
        ("cidr", "gateway", "prefixLength"), ("start", "end", "gateway", "prefixLength")
    )

    cidr: Annotated[Cidr, doc("All addresses of it that hosts can have.")] = ""
    start: Annotated[Address, doc("First address.")] = ""
    end: Annotated[Address, doc("Last address, itself included.")] = ""
    gateway: Annotated[Address, doc("Router of the subnet; the same in all ranges.")] = ""
    prefix_length: Annotated[
        int, doc("Prefix length of the subnet; the same in all ranges.", minimum=1, maximum=128)
    ] = 0
    vlan: Vlan = 0


class IPPoolSpec(CrdStruct, frozen=True):
    """Addresses of one family."""

    ip_version: Annotated[Literal[4, 6], doc("Family of the addresses.")]
    ip_ranges: Annotated[tuple[IPRange, ...], doc("Addresses of the pool.")]


class IPPool(CrdStruct, frozen=True):
    """Addresses for Pods and their further interfaces."""

    spec: IPPoolSpec
    metadata: Metadata = Metadata()
    status: pool.IPPoolStatus = pool.IPPoolStatus()


class ExternalIPPoolSpec(CrdStruct, frozen=True):
    """Addresses and the Nodes that may have them."""

    ip_ranges: Annotated[tuple[pool.IPRange, ...], doc("Addresses of the pool.")]
    node_selector: Annotated[LabelSelector, selector("Nodes that may have the addresses")]


class ExternalIPPool(CrdStruct, frozen=True):
    """Addresses for Egresses and Services of type LoadBalancer."""

    spec: ExternalIPPoolSpec
    metadata: Metadata = Metadata()
    status: pool.ExternalIPPoolStatus = pool.ExternalIPPoolStatus()


class Egress(CrdStruct, frozen=True):
    """The source address of Pods' traffic that leaves the cluster."""

    spec: Annotated[egress.EgressSpec, doc("", without=("bandwidth",))]
    metadata: Metadata = Metadata()
    status: egress.EgressStatus = egress.EgressStatus()
