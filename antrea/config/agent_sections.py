"""The nested sections of antrea-agent.conf, in the order of the file."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from antrea.config.connection import WireGuardPort
from antrea.config.shape import (
    BindAddress,
    Cidr,
    CollectorAddress,
    Count,
    Duration,
    Port,
    PortRange,
    ServiceRef,
)


class Section(msgspec.Struct, frozen=True, rename="camel"):
    """A mapping inside the file; keys are upstream's."""


class Egress(Section, frozen=True):
    """The keys under `egress`."""

    except_cidrs: tuple[Cidr, ...] = msgspec.field(default=(), name="exceptCIDRs")
    """Destinations to which Pods keep their own address, whatever Egress selects them."""
    max_egress_ips_per_node: Annotated[int, msgspec.Meta(ge=1, le=255, extra={"unset": (0,)})] = (
        msgspec.field(default=255, name="maxEgressIPsPerNode")
    )
    """Most Egress IPs that one Node holds; the Node annotation node.antrea.io/max-egress-ips overrides it."""
    snat_fully_random_ports: bool | None = None
    """Choose source ports of Egress SNAT at random; unset: as the top-level key of this name."""
    unique_mac_for_sub_interfaces: bool = msgspec.field(default=True, name="uniqueMACForSubInterfaces")
    """Give each VLAN sub-interface its own MAC instead of its parent's."""


class Memberlist(Section, frozen=True):
    """The keys under `memberlist`."""

    gossip_verify_outgoing: bool = True
    """Encrypt the gossip that this Node sends."""
    gossip_verify_incoming: bool = True
    """Reject gossip that is not encrypted; false while some Nodes have no key yet."""


class FlowExporter(Section, frozen=True):
    """The keys under `flowExporter`."""

    enable: bool = False
    """Export flow records to the collector named here."""
    flow_collector_addr: CollectorAddress = "flow-aggregator/flow-aggregator:14739:grpc"
    """host[:port][:protocol] of the collector; a Service is namespace/name; protocols grpc, tls, tcp, udp."""
    flow_poll_interval: Duration = "5s"
    """How often connections are read from conntrack; at least 1s."""
    active_flow_export_timeout: Duration = "5s"
    """A connection that has traffic is exported this often."""
    idle_flow_export_timeout: Duration = "15s"
    """A connection without traffic for this long is exported and then ends."""
    protocol_filter: tuple[str, ...] | None = None
    """Export these of tcp, udp, sctp only; unset: all."""


class NodePortLocal(Section, frozen=True):
    """The keys under `nodePortLocal`."""

    enable: bool = False
    """Make annotated Pods reachable at a port of their Node."""
    port_range: PortRange = "61000-62000"
    """Ports of the Node to choose from."""


class Multicast(Section, frozen=True):
    """The keys under `multicast`."""

    enable: bool = False
    """Forward multicast; needs the gate Multicast, too."""
    multicast_interfaces: tuple[str, ...] = ()
    """Interfaces that forward multicast; empty: the transport interface."""
    igmp_query_versions: tuple[Literal[1, 2, 3], ...] = (1, 2, 3)
    """IGMP versions to query Pods with."""
    igmp_query_interval: Duration = "125s"
    """Time between IGMP queries to Pods."""


class AntreaProxy(Section, frozen=True):
    """The keys under `antreaProxy`."""

    enable: bool = True
    """Serve ClusterIPs in OVS."""
    proxy_all: bool = False
    """Serve NodePorts, external IPs and traffic of the Nodes as well, so that kube-proxy can go."""
    node_port_addresses: tuple[Cidr, ...] = ()
    """Addresses of the Node that serve NodePorts; empty: all. Only with proxyAll."""
    skip_services: tuple[ServiceRef, ...] = ()
    """Services to leave alone, as namespace/name or ClusterIP."""
    proxy_load_balancer_ips: bool = msgspec.field(default=True, name="proxyLoadBalancerIPs")
    """Serve external IPs of LoadBalancer Services too; false sends that traffic to the external balancer."""
    serve_node_external_ips: bool = msgspec.field(default=True, name="serveNodeExternalIPs")
    """Serve external IPs that are an address of a Node, except for ports that the Node needs; false where users who create Services must not take ports of Nodes. Only with proxyAll."""
    service_proxy_name: str = ""
    """Serve only Services whose label service.kubernetes.io/service-proxy-name has this value; empty: without the label."""
    default_load_balancer_mode: Literal["nat", "dsr"] = "nat"
    """How external traffic to another Node's endpoint returns: nat by this Node, dsr directly to the client."""
    disable_service_health_check_server: bool = False
    """Do not serve the health checks of Services with externalTrafficPolicy Local."""
    service_health_check_server_bind_address: BindAddress = "0.0.0.0:10256"
    """Address of the Service health check server."""


class IPsec(Section, frozen=True):
    """The keys under `ipsec`."""

    authentication_mode: Literal["psk", "cert"] = "psk"
    """How IKE peers prove who they are: psk from env ANTREA_IPSEC_PSK, or cert signed by the controller."""


class MulticlusterWireGuardPort(Section, frozen=True):
    """The port of the WireGuard device between clusters."""

    port: Port = 51821
    """UDP port that the WireGuard device between clusters listens on."""


class Multicluster(Section, frozen=True):
    """The keys under `multicluster`."""

    enable_gateway: bool = False
    """Carry traffic between clusters through gateway Nodes; encap mode only."""
    namespace: str = ""
    """Namespace of the multi-cluster controller; empty: the agent's."""
    enable_stretched_network_policy: bool = False
    """Let ingress rules select peers in other clusters; needs enableGateway."""
    enable_pod_to_pod_connectivity: bool = False
    """Let Pods of different clusters reach each other's Pod IPs."""
    wire_guard: MulticlusterWireGuardPort = MulticlusterWireGuardPort()
    """WireGuard between clusters."""
    traffic_encryption_mode: Literal["none", "wireGuard"] = "none"
    """Encryption of traffic between clusters."""


class BypassRule(Section, frozen=True):
    """One element of `externalNode.policyBypassRules`."""

    direction: Literal["ingress", "egress"]
    """ingress or egress, seen from the Node."""
    protocol: Literal["tcp", "udp", "icmp", "ip"]
    """Protocol of the traffic."""
    cidr: Cidr
    """The other end: source of ingress, destination of egress."""
    port: Annotated[int, msgspec.Meta(ge=0, le=65535)] = 0
    """Destination port; needed for tcp and udp."""


class ExternalNode(Section, frozen=True):
    """The keys under `externalNode`."""

    external_node_namespace: str = "default"
    """Namespace of this machine's ExternalNode."""
    policy_bypass_rules: tuple[BypassRule, ...] = ()
    """Traffic that no NetworkPolicy may stop, such as SSH."""


class AuditLogging(Section, frozen=True):
    """The keys under `auditLogging`."""

    max_size: Annotated[int, msgspec.Meta(ge=1, extra={"unset": (0,)})] = 500
    """Size in MB at which the log of NetworkPolicy verdicts is rotated."""
    max_backups: Count = 3
    """Rotated files to keep; 0: all."""
    max_age: Count = 28
    """Days to keep rotated files; 0: no limit."""
    compress: bool = True
    """Compress rotated files with gzip."""


class SecondaryBridge(Section, frozen=True):
    """One element of `secondaryNetwork.ovsBridges`."""

    bridge_name: str
    """Name of the bridge; not the one of ovsBridge."""
    physical_interfaces: tuple[str, ...] = ()
    """Interfaces to attach to it, at most eight."""
    enable_multicast_snooping: bool = False
    """Send multicast only to ports that have receivers."""


class SecondaryNetwork(Section, frozen=True):
    """The keys under `secondaryNetwork`."""

    ovs_bridges: tuple[SecondaryBridge, ...] = ()
    """The bridge of secondary interfaces, at most one."""


class HostNetworkAcceleration(Section, frozen=True):
    """The keys under `hostNetworkAcceleration`."""

    enable: bool = False
    """Let an nftables flowtable carry Pod to Pod traffic through the host in noEncap and hybrid mode: not built yet (upstream's
    default is true)."""


__all__ = [
    "AntreaProxy",
    "AuditLogging",
    "Egress",
    "ExternalNode",
    "FlowExporter",
    "HostNetworkAcceleration",
    "IPsec",
    "Memberlist",
    "Multicast",
    "Multicluster",
    "NodePortLocal",
    "SecondaryNetwork",
    "WireGuardPort",
]
