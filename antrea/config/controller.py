"""antrea-controller.conf: every key of upstream, its default and what it means.

Source: upstream pkg/config/controller/config.go, build/charts/antrea/conf/antrea-controller.conf.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

import msgspec

from antrea.config.connection import ClientConnection, TlsVersion
from antrea.config.shape import Cidr, Port
from antrea.facts.fact import Fact


class NodeIPAM(msgspec.Struct, frozen=True, rename="camel"):
    """The keys under `nodeIPAM`."""

    enable_node_ipam: bool = msgspec.field(default=False, name="enableNodeIPAM")
    """Give Nodes their Pod CIDRs, instead of kube-controller-manager."""
    cluster_cidrs: tuple[Cidr, ...] = msgspec.field(default=(), name="clusterCIDRs")
    """Pod CIDRs of the cluster, at most one per family."""
    service_cidr: Cidr = msgspec.field(default="", name="serviceCIDR")
    """IPv4 range of ClusterIPs, to be left out where it lies inside clusterCIDRs."""
    service_cidr_v6: Cidr = msgspec.field(default="", name="serviceCIDRv6")
    """IPv6 range of ClusterIPs, to be left out where it lies inside clusterCIDRs."""
    node_cidr_mask_size_ipv4: Annotated[int, msgspec.Meta(ge=16, le=30, extra={"unset": (0,)})] = (
        msgspec.field(default=24, name="nodeCIDRMaskSizeIPv4")
    )
    """Prefix length of a Node's IPv4 Pod CIDR."""
    node_cidr_mask_size_ipv6: Annotated[int, msgspec.Meta(ge=64, le=126, extra={"unset": (0,)})] = (
        msgspec.field(default=64, name="nodeCIDRMaskSizeIPv6")
    )
    """Prefix length of a Node's IPv6 Pod CIDR."""


class IPsecCSRSigner(msgspec.Struct, frozen=True, rename="camel"):
    """The keys under `ipsecCSRSigner`."""

    auto_approve: bool = True
    """Approve certificate requests of agents that prove their identity."""
    self_signed_ca: bool = msgspec.field(default=True, name="selfSignedCA")
    """Make the CA ourselves; false: Secret antrea-ipsec-ca holds it."""


class ControllerMulticluster(msgspec.Struct, frozen=True, rename="camel"):
    """The keys under `multicluster`."""

    enable_stretched_network_policy: bool = False
    """Let policies select peers and Services of other clusters."""
    namespace: str = ""
    """Namespace of the multi-cluster controller; empty: ours."""


class ControllerConfig(Fact, frozen=True, rename="camel"):
    """antrea-controller.conf, with defaults filled in; the fact "self" of this kind."""

    file: ClassVar[str] = "antrea-controller.conf"
    renamed: ClassVar[dict[str, str]] = {"legacyCRDMirroring": "featureGates"}
    """Keys that older releases read, and what replaced them."""

    fixed: ClassVar[tuple[str, ...]] = ("apiPort",)
    """Keys that the Pod's own description depends on: a change waits for a restart of the Pod."""

    feature_gates: dict[str, bool] = msgspec.field(default_factory=dict)
    """Turns features on or off by the name of their gate; AllAlpha and AllBeta stand for a whole stage."""
    client_connection: ClientConnection = ClientConnection()
    """How to reach kube-apiserver."""
    api_port: Port = 10349
    """Port of the controller's API."""
    enable_prometheus_metrics: bool = True
    """Serve /metrics on the controller's API."""
    self_signed_cert: bool = True
    """Make the serving certificate ourselves; false: Secret antrea-controller-tls holds ca.crt, tls.crt and tls.key."""
    tls_cipher_suites: str = ""
    """Cipher suites of the controller's API up to TLS 1.2, comma-separated IANA names; empty: the library's."""
    tls_min_version: TlsVersion = ""
    """Lowest TLS version of the controller's API; empty: TLS 1.2."""
    client_ca_file: str = msgspec.field(default="", name="clientCAFile")
    """PEM file with the CAs of client certificates to accept, besides the cluster's."""
    kube_api_server_override: str = msgspec.field(default="", name="kubeAPIServerOverride")
    """Address of kube-apiserver that wins over kubeconfig and environment: host, host:port or URL."""
    node_ipam: NodeIPAM = msgspec.field(default=NodeIPAM(), name="nodeIPAM")
    """Pod CIDRs of Nodes."""
    ipsec_csr_signer: IPsecCSRSigner = msgspec.field(default=IPsecCSRSigner(), name="ipsecCSRSigner")
    """Certificates of IPsec between Nodes."""
    multicluster: ControllerMulticluster = ControllerMulticluster()
    """Policies across clusters."""
