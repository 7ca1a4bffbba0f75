"""BGPPolicy of crd.antrea.io/v1alpha1.

Source: upstream pkg/apis/crd/v1alpha1/types.go, build/charts/antrea/crds/bgppolicy.yaml
"""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from antrea.apis.crd.part import Address, Cidr, Condition, CrdStruct, LabelSelector, Metadata, selector
from antrea.apis.schema import doc

Asn: TypeAlias = Annotated[int, doc(format="int32", minimum=1, maximum=65535)]
COMMUNITY = "^[0-9]{1,5}:[0-9]{1,5}$"
MAX_COMMUNITIES = 32
MAX_FILTERS = 64
Seconds: TypeAlias = Annotated[int, doc(format="int32", minimum=1, maximum=65535)]
Ttl: TypeAlias = Annotated[int, doc(format="int32", minimum=1, maximum=255, default=1)]
Interval: TypeAlias = Annotated[int, doc(format="int32", minimum=50, maximum=60000, default=300)]
Multiplier: TypeAlias = Annotated[int, doc(format="int32", minimum=2, maximum=255, default=3)]
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


class BfdTimerSettings(CrdStruct, frozen=True):
    """Timers of BFD with a router."""

    transmit_interval_milliseconds: Annotated[
        Interval, doc("Least milliseconds between packets to the router.")
    ] = 300
    receive_interval_milliseconds: Annotated[
        Interval, doc("Least milliseconds between packets that the router is asked to send.")
    ] = 300
    detection_multiplier: Annotated[Multiplier, doc("Packets that must be missing.")] = 3


class BfdSettings(BfdTimerSettings, frozen=True):
    """Detection of a dead path to a router by BFD (RFC 5880)."""

    enabled: Annotated[bool, doc("Whether BFD watches the session.")] = False


class BfdPeer(BfdTimerSettings, frozen=True, kw_only=True):
    """A router that watches the Node by BFD alone, such as one with static routes by it."""

    address: Annotated[Address, doc("Its address.")]
    multihop_ttl: Annotated[Ttl, doc("Hops to it, at most; 1: it is in a network of the Node.")] = 1


class RouteImport(CrdStruct, frozen=True):
    """Routes that Nodes take from a router into their routing table."""

    networks: Annotated[
        tuple[Cidr, ...], doc("Only routes within these networks are taken.", maxItems=MAX_FILTERS)
    ] = ()
    default_route: Annotated[bool, doc("Whether the default route is taken.")] = False
    maximum_routes: Annotated[
        int,
        doc(
            "Accepted routes above which the session ends, for five minutes.",
            format="int32",
            minimum=1,
            maximum=10000,
            default=100,
        ),
    ] = 100


class BgpPeer(CrdStruct, frozen=True):
    """A router."""

    address: Annotated[Address, doc("Its address.")]
    asn: Annotated[Asn, doc("Its AS number.")]
    port: Annotated[BgpPort, doc("Its port.")] = 179
    multihop_ttl: Annotated[Ttl, doc("TTL of packets to it.")] = 1
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
    graceful_restart_enabled: Annotated[
        bool | None,
        doc(
            "Whether the router keeps the routes while we restart; not given: it does, unless BFD watches the session."
        ),
    ] = None
    hold_time_seconds: Annotated[
        int | None,
        doc(
            "Seconds without a message after which the session ends.",
            format="int32",
            minimum=3,
            maximum=65535,
        ),
    ] = None
    keepalive_interval_seconds: Annotated[
        Seconds | None, doc("Seconds between messages that keep the session.")
    ] = None
    connect_retry_seconds: Annotated[Seconds | None, doc("Seconds between tries to connect.")] = None
    idle_hold_time_after_reset_seconds: Annotated[
        Seconds | None,
        doc("Seconds after which a session that was reset is tried again, at most."),
    ] = None
    bfd: BfdSettings | None = None
    communities: Annotated[
        tuple[Annotated[str, doc(pattern=COMMUNITY)], ...],
        doc(
            "Communities of the networks that the router is sent, such as 64512:100.",
            maxItems=MAX_COMMUNITIES,
        ),
    ] = ()
    local_preference: Annotated[
        int | None,
        doc(
            "Local preference of the networks, for a router of the same AS or confederation.",
            format="int64",
            minimum=0,
            maximum=4294967295,
        ),
    ] = None
    advertised_networks: Annotated[
        tuple[Cidr, ...],
        doc("Only networks within these are sent to the router.", maxItems=MAX_FILTERS),
    ] = ()
    external_ip_pools: Annotated[
        tuple[str, ...],
        doc(
            "Only addresses of these ExternalIPPools, and of advertisedNetworks, are sent to the router.",
            maxItems=MAX_FILTERS,
        ),
    ] = ()
    imported_routes: Annotated[
        RouteImport | None, doc("Routes that Nodes take from the router; not given: none.")
    ] = None


class BGPPolicySpec(CrdStruct, frozen=True):
    """Sessions of Nodes with routers."""

    node_selector: Annotated[LabelSelector, selector("Nodes that it is for")]
    local_asn: Annotated[Asn, doc("AS number of the Nodes.")]
    listen_port: Annotated[BgpPort, doc("Port of the Nodes.")] = 179
    confederation: Confederation | None = None
    advertisements: Advertisements = Advertisements()
    bgp_peers: Annotated[tuple[BgpPeer, ...], doc("Routers.")] = ()
    bfd_peers: Annotated[
        tuple[BfdPeer, ...], doc("Routers that watch the Nodes by BFD alone, without a BGP session.")
    ] = ()


class BGPPolicyStatus(CrdStruct, frozen=True):
    """Whether Nodes follow the policy."""

    conditions: Annotated[tuple[Condition, ...], doc("Effective.")] = ()


class BGPPolicy(CrdStruct, frozen=True):
    """Advertisement of routes by Nodes to routers by BGP."""

    spec: BGPPolicySpec
    metadata: Metadata = Metadata()
    status: BGPPolicyStatus = BGPPolicyStatus()
