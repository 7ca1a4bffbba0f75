"""Cluster DNS: CoreDNS behind the Service `kube-dns`, and the question whether it answers."""

from __future__ import annotations

import json
import socket
import struct
from pathlib import Path
from typing import TYPE_CHECKING

from lab import namespace
from lab.control_plane import DOMAIN, endpoint, first_address
from lab.images import COREDNS
from lab.node_files import DNS_HOST
from lab.topology import SERVICES, Topology

if TYPE_CHECKING:
    from lab.api import Api
    from lab.record import Record

MANIFEST = Path(__file__).with_name("coredns.yaml")
QUESTION = f"kubernetes.default.svc.{DOMAIN}"
TYPES = {4: 1, 6: 28}  # A and AAAA (RFC 1035, RFC 3596)


def address(topology: Topology) -> str:
    """Return the cluster IP of the DNS Service, in the first IP family of the cluster."""
    return first_address(SERVICES, DNS_HOST, topology)


def manifest(topology: Topology, *, cluster_ips: bool) -> str:
    """Where ClusterIPs are not served CoreDNS is given the API server's own address, as our programs are."""
    given = {} if cluster_ips else {"HOST": endpoint(topology), "PORT": "6443"}
    environment = [{"name": f"KUBERNETES_SERVICE_{name}", "value": value} for name, value in given.items()]
    text = MANIFEST.read_text().replace("IMAGE", COREDNS).replace("ENVIRONMENT", json.dumps(environment))
    return text.replace("ADDRESS", f'"{address(topology)}"')


def query(name: str, kind: int) -> bytes:
    """A DNS question (RFC 1035, section 4.1) with the id 1."""
    labels = b"".join(bytes([len(label)]) + label.encode() for label in name.split("."))
    return struct.pack("!6H", 1, 0x0100, 1, 0, 0, 0) + labels + b"\0" + struct.pack("!2H", kind, 1)


def pod_address(api: Api) -> str:
    """CoreDNS's own address; empty while there is none."""
    pods = api.items("/api/v1/namespaces/kube-system/pods?labelSelector=k8s-app%3Dkube-dns")
    return next((pod["status"].get("podIP", "") for pod in pods), "")


def answers(record: Record, topology: Topology, node: str, server: str = "") -> bool:
    """Does the cluster's DNS know the API's Service, asked from that node at `server`, else at its own Service's address?"""
    version = topology.versions[0]
    family = socket.AF_INET if version == 4 else socket.AF_INET6
    with namespace.entered(namespace.path(record, node)):
        listener = socket.socket(family, socket.SOCK_DGRAM)
    with listener:
        listener.settimeout(1)
        try:
            listener.connect((server or address(topology), 53))
            listener.send(query(QUESTION, TYPES[version]))
            reply = listener.recv(512)
        except OSError:
            return False
    _, flags, _, count, *_ = struct.unpack("!6H", reply[:12])
    return bool(flags & 0xF == 0 and count > 0)
