"""antrea-agent.conf: every key of upstream, its default and what it means.

Source: upstream pkg/config/agent/config.go, cmd/antrea-agent/options.go, build/charts/antrea/conf/antrea-agent.conf.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Final, Literal, TypeAlias

import msgspec

from antrea.config.agent_sections import (
    AntreaProxy,
    AuditLogging,
    Egress,
    ExternalNode,
    FlowExporter,
    HostNetworkAcceleration,
    IPsec,
    Memberlist,
    Multicast,
    Multicluster,
    NodePortLocal,
    SecondaryNetwork,
    WireGuardPort,
)
from antrea.config.connection import ClientConnection, TlsVersion
from antrea.config.shape import (
    Cidr,
    CidrList,
    CollectorAddress,
    Count,
    Duration,
    HostPort,
    InterfaceName,
    Port,
)
from antrea.config.tunnel import tunnel_port_number
from antrea.facts.fact import Fact

NodeType: TypeAlias = Literal["k8sNode", "externalNode"]
NODE_TYPE: Final = "k8sNode"
MACHINE_TYPE: Final = "externalNode"
"""Type of a machine outside the cluster."""


class AgentConfig(Fact, frozen=True, rename="camel"):
    """antrea-agent.conf, with defaults filled in; the fact "self" of this kind."""

    file: ClassVar[str] = "antrea-agent.conf"
    renamed: ClassVar[dict[str, str]] = {
        "enableIPSecTunnel": "trafficEncryptionMode",
        "nplPortRange": "nodePortLocal.portRange",
        "multicluster.enable": "featureGates",
        "enableTLSToFlowAggregator": "flowExporter.flowCollectorAddr",
    }
    """Keys that older releases read, and what replaced them."""

    fixed: ClassVar[tuple[str, ...]] = (
        "cniSocket",
        "ovsBridge",
        "ovsDatapathType",
        "ovsRunDir",
        "hostGateway",
        "hostProcPathPrefix",
        "trafficEncapMode",
        "apiPort",
    )
    """Keys on which the agent's own Pod or existing Pods depend: a change waits for a restart of the agent's Pod."""

    feature_gates: dict[str, bool] = msgspec.field(default_factory=dict)
    """Turns features on or off by the name of their gate; AllAlpha and AllBeta stand for a whole stage."""
    cni_socket: str = "/var/run/antrea/cni.sock"
    """Unix socket on which the CNI plugin reaches the agent."""
    client_connection: ClientConnection = ClientConnection()
    """How to reach kube-apiserver."""
    antrea_client_connection: ClientConnection = ClientConnection()
    """How to reach antrea-controller."""
    ovs_bridge: InterfaceName = "br-int"
    """Name of the bridge that Pods are attached to."""
    ovs_datapath_type: Literal["system", "netdev"] = "system"
    """Datapath of the bridge: system is the kernel's, netdev is OVS's own in user space (upstream has only system)."""
    ovs_run_dir: str = "/var/run/openvswitch"
    """Directory of OVS's sockets."""
    host_gateway: InterfaceName = "antrea-gw0"
    """Name of the interface between the Node and its Pods."""
    host_proc_path_prefix: str = "/host"
    """Directory under which the host's /proc is mounted; / when the agent is a plain process."""
    traffic_encap_mode: Literal["encap", "noEncap", "hybrid", "networkPolicyOnly"] = "encap"
    """Tunnel Pod traffic between Nodes: always, never, between subnets only, or leave Pod traffic to another CNI."""
    pod_cidrs: CidrList = msgspec.field(default="", name="podCIDRs")
    """Pod CIDRs of the cluster, comma-separated; only read in networkPolicyOnly mode."""
    no_snat: bool = msgspec.field(default=False, name="noSNAT")
    """Let Pods keep their address on the way out of the cluster; noEncap only (networkPolicyOnly implies it)."""
    snat_fully_random_ports: bool = False
    """Choose source ports of SNAT at random."""
    tunnel_type: Literal["geneve", "vxlan", "gre", "stt"] = "geneve"
    """Tunnel protocol; gre cannot be used where Nodes have IPv6 addresses only, and stt is refused."""
    tunnel_port: Annotated[int, msgspec.Meta(ge=0, le=65535)] = 0
    """Destination port of the tunnel; 0: 6081 (geneve), 4789 (vxlan); gre has none."""
    tunnel_csum: bool = False
    """Send UDP checksums in the outer header; for kernels before March 2021."""
    traffic_encryption_mode: Literal["none", "ipsec", "wireGuard"] = "none"
    """Encryption of traffic between Nodes; encap mode only."""
    wire_guard: WireGuardPort = WireGuardPort()
    """WireGuard between Nodes."""
    enable_bridging_mode: bool = False
    """Attach the transport interface to the bridge; needs AntreaIPAM, noEncap and noSNAT."""
    disable_tx_checksum_offload: bool = msgspec.field(default=False, name="disableTXChecksumOffload")
    """Compute checksums in software on Pod interfaces and the gateway."""
    default_mtu: Count = msgspec.field(default=0, name="defaultMTU")
    """MTU of Pod interfaces and the gateway; 0: that of the transport interface less the tunnel's overhead."""
    packet_in_rate: Annotated[int, msgspec.Meta(ge=1, extra={"unset": (0,)})] = 5000
    """Packets per second that each feature may send to the agent; the burst is twice that."""
    egress: Egress = Egress()
    """Egress IPs."""
    service_cidr: Cidr = msgspec.field(default="10.96.0.0/12", name="serviceCIDR")
    """IPv4 range of ClusterIPs; not read while AntreaProxy is on."""
    service_cidr_v6: Cidr = msgspec.field(default="", name="serviceCIDRv6")
    """IPv6 range of ClusterIPs; not read while AntreaProxy is on."""
    api_port: Port = 10350
    """Port of the agent's API."""
    cluster_port: Port = 10351
    """Port of the gossip between agents, TCP and UDP."""
    memberlist: Memberlist = Memberlist()
    """Gossip between agents."""
    enable_prometheus_metrics: bool = True
    """Serve /metrics on the agent's API."""
    flow_exporter: FlowExporter = FlowExporter()
    """Export of flow records to one static collector."""
    flow_collector_addr: CollectorAddress = ""
    """Deprecated: flowExporter.flowCollectorAddr."""
    flow_poll_interval: Duration = ""
    """Deprecated: flowExporter.flowPollInterval."""
    active_flow_export_timeout: Duration = ""
    """Deprecated: flowExporter.activeFlowExportTimeout."""
    idle_flow_export_timeout: Duration = ""
    """Deprecated: flowExporter.idleFlowExportTimeout."""
    node_port_local: NodePortLocal = NodePortLocal()
    """Ports of the Node that lead to one Pod."""
    kube_api_server_override: str = msgspec.field(default="", name="kubeAPIServerOverride")
    """Address of kube-apiserver that wins over kubeconfig and environment: host, host:port or URL."""
    dns_server_override: HostPort = msgspec.field(default="", name="dnsServerOverride")
    """DNS server that resolves names in policies, instead of the kube-dns Service: host[:port]."""
    fqdn_cache_min_ttl: Count = msgspec.field(default=0, name="fqdnCacheMinTTL")
    """Seconds that an answer for a name in a policy is kept at least."""
    fqdn_trusted_dns_servers: tuple[Cidr, ...] = msgspec.field(default=(), name="fqdnTrustedDNSServers")
    """Our own key: networks of DNS servers whose answers count for names in policies, beside kube-dns, dnsServerOverride, the Node's resolvers and the Node itself; 0.0.0.0/0 and ::/0: every server."""
    tls_cipher_suites: str = ""
    """Cipher suites of the agent's API up to TLS 1.2, comma-separated IANA names; empty: the library's."""
    tls_min_version: TlsVersion = ""
    """Lowest TLS version of the agent's API; empty: TLS 1.2."""
    transport_interface: InterfaceName = ""
    """Interface whose address tunnels and routes to other Nodes use; wins over transportInterfaceCIDRs and the Node IP."""
    transport_interface_cidrs: tuple[Cidr, ...] = msgspec.field(default=(), name="transportInterfaceCIDRs")
    """Networks of the interface whose address tunnels and routes to other Nodes use; wins over the Node IP."""
    multicast: Multicast = Multicast()
    """Multicast between Pods and with the network outside."""
    antrea_proxy: AntreaProxy = AntreaProxy()
    """Services in OVS."""
    ipsec: IPsec = IPsec()
    """IPsec between Nodes."""
    multicluster: Multicluster = Multicluster()
    """Traffic and policies across clusters."""
    policy_fail_open: bool = False
    """Our own key: let a Pod start after 2 s, or at once without a connection to antrea-controller, even if its policies are unknown; false: it starts once they are known."""
    network_policy_stats_interval: Duration = "60s"
    """Our own key: how often the agent looks at what policies matched and Egresses sent, and reports it to antrea-controller."""
    node_type: NodeType = NODE_TYPE
    """Type of the machine: a Node of the cluster or a machine outside it."""
    external_node: ExternalNode = ExternalNode()
    """The agent on a machine outside the cluster."""
    audit_logging: AuditLogging = AuditLogging()
    """Rotation of /var/log/antrea/networkpolicy/np.log."""
    secondary_network: SecondaryNetwork = SecondaryNetwork()
    """Further interfaces of Pods."""
    host_network_acceleration: HostNetworkAcceleration = HostNetworkAcceleration()
    """A faster way through the host's network."""
    host_network_mode: Literal["iptables", "nftables"] = "nftables"
    """Tool for rules in the host's network: always nftables (upstream's default is iptables)."""

    @property
    def has_tunnel(self) -> bool:
        """Whether there are tunnels between Nodes: packets to Pods of other Nodes go through them, in mode hybrid those to Nodes
        behind routers.
        """
        return self.traffic_encap_mode in ("encap", "hybrid")

    @property
    def tunnel_port_number(self) -> int:
        """UDP port that tunnels of other Nodes come in by; 0: there are no tunnels, or they have no port."""
        return tunnel_port_number(self.tunnel_type, self.tunnel_port) if self.has_tunnel else 0
