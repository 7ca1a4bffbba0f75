"""The control plane: etcd, kube-apiserver, kube-controller-manager and kube-scheduler in a network namespace."""

from __future__ import annotations

import json
from ipaddress import ip_interface
from typing import TYPE_CHECKING

from lab import certificates, cgroup, namespace
from lab.process import launch, tail, wait_for
from lab.topology import PODS, SERVICES, Network, Topology

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from lab.api import Api
    from lab.artifacts import Binaries
    from lab.record import Record

DOMAIN = "cluster.local"
AUDITED = ("antrea-agent", "antrea-controller")
"""ServiceAccounts whose every request to the API server is written down, so that tests compare them with their rights."""


def first_address(network: Network, host: int, topology: Topology) -> str:
    """Host number `host` of the network, in the cluster's first IP family."""
    return str(ip_interface(network.pick(host, topology.family)[0]).ip)


def pki(record: Record) -> Path:
    """Return the directory with the certificates and keys of the control plane."""
    return record.directory / "pki"


def kubeconfig(record: Record, user: str = "admin") -> Path:
    """Return the path of the kubeconfig of a user."""
    return record.directory / "kubeconfig" / f"{user}.conf"


def endpoint(topology: Topology) -> str:
    """The address of the API server, in the cluster's first IP family."""
    return topology.control_plane.address("eth0", topology.versions[0])


def server_url(topology: Topology) -> str:
    """Return the URL of the API server, by its address."""
    address = endpoint(topology)
    return f"https://[{address}]:6443" if ":" in address else f"https://{address}:6443"


def make_certificates(record: Record, topology: Topology) -> None:
    """Everything that the control plane and all nodes present to each other."""
    directory = pki(record)
    directory.mkdir()
    kubeconfig(record).parent.mkdir()
    ca = certificates.authority(directory, "ca", "kubernetes")
    front = certificates.authority(directory, "front-proxy-ca", "front-proxy-ca")
    certificates.service_account_keys(directory)
    names = ("kubernetes", "kubernetes.default", "kubernetes.default.svc", f"kubernetes.default.svc.{DOMAIN}")
    addresses = [topology.control_plane.address("eth0", v) for v in topology.versions]
    services = [str(ip_interface(a).ip) for a in SERVICES.pick(1, topology.family)]
    sans = (*addresses, *services, "127.0.0.1", "localhost", *names)
    certificates.issue(ca, "apiserver", "kube-apiserver", sans=sans)
    certificates.issue(front, "front-proxy-client", "front-proxy-client")
    masters = ("system:masters",)
    certificates.issue(ca, "apiserver-kubelet-client", "kube-apiserver-kubelet-client", groups=masters)
    users: list[tuple[str, str, tuple[str, ...]]] = [
        ("admin", "kubernetes-admin", masters),
        ("controller-manager", "system:kube-controller-manager", ()),
        ("scheduler", "system:kube-scheduler", ()),
        ("kube-proxy", "system:kube-proxy", ()),
    ]
    users += [(n.name, f"system:node:{n.name}", ("system:nodes",)) for n in topology.nodes]
    for stem, user, groups in users:
        pair = certificates.issue(ca, stem, user, groups=groups)
        certificates.kubeconfig(kubeconfig(record, stem), server_url(topology), directory / "ca.crt", pair)
    for node in topology.nodes:
        # the kubelet's server certificate, so that `kubectl logs` and `exec` are verified without approving requests
        node_addresses = tuple(node.address("eth0", v) for v in topology.versions)
        certificates.issue(
            ca, f"{node.name}-server", node.name, sans=(node.name, *node_addresses, "127.0.0.1")
        )


def audit_log(record: Record) -> Path:
    """One JSON line per request of our programs. Source: https://kubernetes.io/docs/tasks/debug/debug-cluster/audit/"""
    return record.directory / "logs" / "audit.jsonl"


def _audit_policy(record: Record) -> Path:
    users = [f"system:serviceaccount:kube-system:{account}" for account in AUDITED]
    policy = {
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived"],
        "rules": [{"level": "Metadata", "users": users}, {"level": "None"}],
    }
    path = record.directory / "audit-policy.json"
    path.write_text(json.dumps(policy))
    return path


def start(
    record: Record, topology: Topology, binaries: Binaries, api: Api, *, allocate_node_cidrs: bool = True
) -> None:
    """Start all four; returns when the API server is ready and the other two have been started."""
    start_server(record, topology, binaries, api)
    start_controller_manager(
        record, topology, binaries, PODS.prefixes(topology.family) if allocate_node_cidrs else ()
    )
    scheduler = [*_as_user(record, "scheduler"), "--bind-address=127.0.0.1"]
    _daemon(record, topology, binaries.kube_scheduler, scheduler)


def start_controller_manager(
    record: Record, topology: Topology, binaries: Binaries, cluster_cidrs: Sequence[str]
) -> None:
    """Start kube-controller-manager, which gives nodes their Pod CIDRs out of `cluster_cidrs`, unless that is empty."""
    manager = _controller_manager(record, topology, cluster_cidrs)
    _daemon(record, topology, binaries.kube_controller_manager, manager)


def start_server(record: Record, topology: Topology, binaries: Binaries, api: Api) -> None:
    """Start etcd and the API server alone; returns when the API server is ready."""
    _daemon(record, topology, binaries.etcd, _etcd(record))
    _daemon(record, topology, binaries.kube_apiserver, _apiserver(record, topology))
    try:
        wait_for("the API server", api.ready, seconds=120)
    except Exception as error:
        error.add_note(tail(record.directory / "logs" / "kube-apiserver.log"))
        raise


def _daemon(record: Record, topology: Topology, binary: Path, arguments: list[str]) -> None:
    name = topology.control_plane.name
    cgroups = cgroup.create(record, name) if cgroup.is_limited(record) else ()
    machine = namespace.path(record, name)
    launch(record, binary.name, namespace.inside(machine, [binary, *arguments]), cgroups=cgroups)


def _etcd(record: Record) -> list[str]:
    client, peer = "http://127.0.0.1:2379", "http://127.0.0.1:2380"
    return [
        f"--data-dir={record.directory / 'etcd'}",
        "--name=lab",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=lab={peer}",
        "--log-level=warn",
        "--unsafe-no-fsync",  # a lab: speed before durability
    ]


def _apiserver(record: Record, topology: Topology) -> list[str]:
    files = pki(record)
    return [
        "--etcd-servers=http://127.0.0.1:2379",
        f"--advertise-address={endpoint(topology)}",
        "--bind-address=::" if topology.family != "ipv4" else "--bind-address=0.0.0.0",
        "--secure-port=6443",
        f"--client-ca-file={files}/ca.crt",
        f"--tls-cert-file={files}/apiserver.crt",
        f"--tls-private-key-file={files}/apiserver.key",
        f"--kubelet-certificate-authority={files}/ca.crt",
        f"--kubelet-client-certificate={files}/apiserver-kubelet-client.crt",
        f"--kubelet-client-key={files}/apiserver-kubelet-client.key",
        "--kubelet-preferred-address-types=InternalIP",
        f"--service-account-key-file={files}/sa.pub",
        f"--service-account-signing-key-file={files}/sa.key",
        f"--service-account-issuer=https://kubernetes.default.svc.{DOMAIN}",
        f"--service-cluster-ip-range={','.join(SERVICES.prefixes(topology.family))}",
        f"--audit-policy-file={_audit_policy(record)}",
        f"--audit-log-path={audit_log(record)}",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        "--allow-privileged=true",
        "--profiling=false",
        f"--requestheader-client-ca-file={files}/front-proxy-ca.crt",
        "--requestheader-allowed-names=front-proxy-client",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-username-headers=X-Remote-User",
        f"--proxy-client-cert-file={files}/front-proxy-client.crt",
        f"--proxy-client-key-file={files}/front-proxy-client.key",
        # no kube-proxy beside it: dial the endpoints of APIServices and webhooks, not their ClusterIP
        "--enable-aggregator-routing=true",
    ]


def _as_user(record: Record, user: str) -> list[str]:
    config = kubeconfig(record, user)
    same = ("kubeconfig", "authentication-kubeconfig", "authorization-kubeconfig")
    return [*(f"--{flag}={config}" for flag in same), "--leader-elect=false", "--profiling=false"]


def _controller_manager(record: Record, topology: Topology, cluster_cidrs: Sequence[str]) -> list[str]:
    files = pki(record)
    return [
        *_as_user(record, "controller-manager"),
        "--bind-address=127.0.0.1",
        f"--allocate-node-cidrs={str(bool(cluster_cidrs)).lower()}",
        f"--cluster-cidr={','.join(cluster_cidrs)}",
        f"--service-cluster-ip-range={','.join(SERVICES.prefixes(topology.family))}",
        f"--cluster-signing-cert-file={files}/ca.crt",
        f"--cluster-signing-key-file={files}/ca.key",
        f"--root-ca-file={files}/ca.crt",
        f"--service-account-private-key-file={files}/sa.key",
        "--use-service-account-credentials=true",
        # with the default of 20 requests per second its start alone takes 5 s
        "--kube-api-qps=300",
        "--kube-api-burst=600",
        # a node that loses power is noticed in seconds, as tests want to see
        "--node-monitor-period=2s",
        "--node-monitor-grace-period=16s",
    ]
