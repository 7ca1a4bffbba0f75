"""BGPPolicy of crd.antrea.io/v1alpha1.

Source: upstream pkg/apis/crd/v1alpha1/types.go, build/charts/antrea/crds/bgppolicy.yaml
"""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from antrea.apis.crd.part import Address, CrdStruct, LabelSelector, Metadata, selector
from antrea.apis.schema import doc

Asn: TypeAlias = Annotated[int, doc(format="int32", minimum=1, maximum=65535)]
BgpPort: TypeAlias = Annotated[int, doc(format="int32", minimum=1, maximum=65535, default=179)]


class Confederation(CrdStruct, frozen=True):
    """The confederation that the Nodes belong to."""

    identifier: Annotated[Asn | None, doc("AS number that others see.")] = None
    member_asns: Annotated[tuple[Asn, ...], doc("AS numbers of its other members.")] = ()


class ServiceAdvertisement(CrdStruct, frozen=True):
    """Addresses of Services."""

    ip_types: Annotated[
        tuple[Literal["ClusterIP", "LoadBalancerIP", "ExternalIP"], ...], doc("Which of their addresses.")
    ] = ()


class PodAdvertisement(CrdStruct, frozen=True):
    """Pod CIDRs of the Node."""


class EgressAdvertisement(CrdStruct, frozen=True):
    """Egress IPs of the Node."""


class Advertisements(CrdStruct, frozen=True):
    """Addresses that are advertised to routers; a kind that is not given is not advertised."""

    service: ServiceAdvertisement | None = None
    pod: PodAdvertisement | None = None
    egress: EgressAdvertisement | None = None


class BgpPeer(CrdStruct, frozen=True):
    """A router."""

    address: Annotated[Address, doc("Its address.")]
    asn: Annotated[Asn, doc("Its AS number.")]
    port: Annotated[BgpPort, doc("Its port.")] = 179
    multihop_ttl: Annotated[
        int, doc("TTL of packets to it.", format="int32", minimum=1, maximum=255, default=1)
    ] = 1
    graceful_restart_time_seconds: Annotated[
        int,
        doc(
            "Seconds that it keeps our routes while we restart.",
            format="int32",
            minimum=1,
            maximum=3600,
            default=120,
        ),
    ] = 120


class BGPPolicySpec(CrdStruct, frozen=True):
    """Sessions of Nodes with routers."""

    node_selector: Annotated[LabelSelector, selector("Nodes that it is for")]
    local_asn: Annotated[Asn, doc("AS number of the Nodes.")]
    listen_port: Annotated[BgpPort, doc("Port of the Nodes.")] = 179
    confederation: Confederation | None = None
    advertisements: Advertisements = Advertisements()
    bgp_peers: Annotated[tuple[BgpPeer, ...], doc("Routers.")] = ()


class BGPPolicy(CrdStruct, frozen=True):
    """Advertisement of routes by Nodes to routers by BGP."""

    spec: BGPPolicySpec
    metadata: Metadata = Metadata()
