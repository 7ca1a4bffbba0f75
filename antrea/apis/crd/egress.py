"""Egress of crd.antrea.io/v1beta1; v1alpha2 is the same without `bandwidth`.

Source: upstream pkg/apis/crd/v1beta1/types.go, build/charts/antrea/crds/egress.yaml (and v1.15.1's)
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from antrea.apis.crd.part import Address, AppliedToPods, Cidr, Condition, CrdStruct, Metadata
from antrea.apis.schema import Schema, doc

ONE_OR_MANY = [
    {"anyOf": [{"required": ["egressIP"]}, {"required": ["externalIPPool"]}]},
    {"anyOf": [{"required": ["egressIPs"]}, {"required": ["externalIPPools"]}]},
]

MAX_CIDRS = 64
"""Each costs a flow for each Pod."""


class Bandwidth(CrdStruct, frozen=True):
    """Limits for all traffic of the Egress together."""

    rate: Annotated[str, doc("Bits per second, a quantity such as 500k or 10M.")]
    burst: Annotated[str, doc("Bits above the rate, a quantity such as 500k or 10M.")]


class Destinations(CrdStruct, frozen=True):
    """Destinations outside the cluster for which the address is used."""

    cidrs: Annotated[
        tuple[Cidr, ...], doc("Packets to these leave with the address; none: to all.", maxItems=MAX_CIDRS)
    ] = ()
    except_: Annotated[
        tuple[Cidr, ...], doc("Packets to these leave as without the Egress.", maxItems=MAX_CIDRS)
    ] = ()


class EgressSpec(CrdStruct, frozen=True):
    """Which Pods leave the cluster with which address."""

    schema_keywords: ClassVar[Schema] = {"oneOf": ONE_OR_MANY}

    applied_to: Annotated[AppliedToPods, doc("Pods whose traffic leaves with the address.")]
    egress_ip: Annotated[Address, doc("The address; chosen from `externalIPPool` if not given.")] = ""
    egress_ips: Annotated[
        tuple[Annotated[str, doc(oneOf=[{"maxLength": 0}, {"format": "ipv4"}, {"format": "ipv6"}])], ...],
        doc(
            "Several addresses, of which each Pod leaves with one of each family; an entry of a pool is empty until it is given.",
            minItems=1,
        ),
    ] = ()
    external_ip_pool: Annotated[
        str, doc("ExternalIPPool of the address; if empty, a Node must have the address already.")
    ] = ""
    external_ip_pools: Annotated[
        tuple[str, ...], doc("Pools of `egressIPs`, entry by entry.", minItems=1)
    ] = ()
    bandwidth: Bandwidth | None = None
    destinations: Destinations | None = None
    survive: Annotated[
        Literal["ports", "sync", "none"] | None,
        doc("How TCP connections outlive their gateway; before annotation egress.antrea.io/survive."),
    ] = None


class AddressStatus(CrdStruct, frozen=True):
    """Where one of several addresses is."""

    egress_ip: Annotated[str, doc("One of the Egress's addresses.")]
    egress_node: Annotated[str, doc("Node that has it; empty: none has.")] = ""
    failback: Annotated[
        str, doc("waits while connections keep it from a better Node, idle when none does any more.")
    ] = ""
    conflict: Annotated[str, doc("Which other host of the network has it, too.")] = ""
    unanswered: Annotated[str, doc("Which gateway of its pool does not answer its Node.")] = ""


class PortBlock(CrdStruct, frozen=True):
    """Source ports that one Pod alone has at all addresses of the Egress."""

    pod: Annotated[str, doc("Namespace and name of the Pod: shop/web-0.")]
    first_port: Annotated[int, doc("First port of the block.", minimum=1, maximum=65535)]
    last_port: Annotated[int, doc("Last port of the block.", minimum=1, maximum=65535)]
    pod_ips: Annotated[tuple[str, ...], doc("Addresses of the Pod; empty while they are not known.")] = ()
    released: Annotated[
        bool, doc("Whether the Pod has ended: no other Pod gets the block for 5 minutes.")
    ] = False


class EgressStatus(CrdStruct, frozen=True):
    """Where the address is."""

    egress_node: Annotated[str, doc("Node that has the address.")] = ""
    egress_ip: Annotated[str, doc("Address that the traffic leaves with; of several the first.")] = ""
    conditions: Annotated[tuple[Condition, ...], doc("IPAllocated, IPAssigned.")] = ()
    addresses: Annotated[
        tuple[AddressStatus, ...], doc("Of an Egress with `egressIPs`: where each of them is.")
    ] = ()
    port_blocks: Annotated[
        tuple[PortBlock, ...], doc("If connections survive by ports: the block of each Pod.")
    ] = ()


class Egress(CrdStruct, frozen=True):
    """The source address of Pods' traffic that leaves the cluster."""

    spec: EgressSpec
    metadata: Metadata = Metadata()
    status: EgressStatus = EgressStatus()
