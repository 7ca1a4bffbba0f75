"""A real API server with Nodes and Pods as kubelets would write them, for benchmarks; nothing else runs in its cluster."""

from __future__ import annotations

import base64
import contextlib
import http.client
import itertools
import json
import ssl
import sys
import time
from typing import TYPE_CHECKING, Any

import msgspec

from lab import artifacts, certificates

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

HOST, PORT = "127.0.0.1", 6443
ETCD = "http://127.0.0.1:2379"
NODE_IP = "172.30.0.{}"
POD_CIDR = "10.244.{}.0/24"
IN_ONE = 100
"""Objects in one transaction of etcd, which takes 128."""
NODE_IMAGES = 50
"""As many as kubelet reports, --node-status-max-images."""


class KubeApi:
    """etcd and kube-apiserver in the network namespace of whoever makes it, and a client that may do everything."""

    def __init__(self, directory: Path, start: Callable[..., subprocess.Popen[bytes]]) -> None:
        directory.mkdir()
        self.kubeconfig = directory / "kubeconfig"
        ca = certificates.authority(directory, "ca", "kubernetes")
        certificates.service_account_keys(directory)
        certificates.issue(ca, "server", "kube-apiserver", sans=(HOST, "localhost"))
        admin = certificates.issue(ca, "admin", "admin", groups=("system:masters",))
        certificates.kubeconfig(self.kubeconfig, f"https://{HOST}:{PORT}", directory / "ca.crt", admin)
        self._tls = ssl.create_default_context(cafile=str(directory / "ca.crt"))
        self._tls.load_cert_chain(admin.certificate, admin.key)
        self._connection = http.client.HTTPSConnection(HOST, PORT, timeout=30, context=self._tls)
        self._directory, self._start = directory, start
        programs = artifacts.binaries(lambda _: None)
        with (directory / "log").open("wb") as log:
            start(str(programs.etcd), *_etcd(directory), stdout=log, stderr=log)
        self._server = str(programs.kube_apiserver)
        self.start_server()

    def start_server(self) -> None:
        """Start kube-apiserver, and wait until it is ready."""
        with (self._directory / "log").open("ab") as log:
            self._serving = self._start(self._server, *_apiserver(self._directory), stdout=log, stderr=log)
        deadline = time.monotonic() + 120
        while not self._ready():
            if time.monotonic() > deadline:
                sys.exit((self._directory / "log").read_text()[-2000:])
            time.sleep(0.2)

    def end_server(self) -> None:
        """End kube-apiserver alone; etcd goes on."""
        self._serving.kill()
        self._serving.wait()

    def close(self) -> None:
        """End the client's connection."""
        self._connection.close()

    def request(self, method: str, path: str, body: object = None, content: str = "application/json") -> Any:
        """Return the answer of one request, which has to succeed."""
        data = None if body is None else msgspec.json.encode(body)
        try:
            self._connection.request(method, path, data, {"Content-Type": content})
        except OSError:
            # the server ends a connection that is idle for three minutes
            self._connection.close()
            self._connection.request(method, path, data, {"Content-Type": content})
        answer = self._connection.getresponse()
        text = answer.read()
        if answer.status >= 300:
            sys.exit(f"{method} {path}: {answer.status} {text.decode()}")
        return msgspec.json.decode(text)

    def add_account(self, namespace: str, name: str) -> Path:
        """The kubeconfig of a new ServiceAccount that may do everything, with a token that a controller can judge."""
        accounts = f"/api/v1/namespaces/{namespace}/serviceaccounts"
        self.request("POST", accounts, {"metadata": {"name": name}})
        subject = {"kind": "ServiceAccount", "namespace": namespace, "name": name}
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
        binding = {"metadata": {"name": name}, "subjects": [subject], "roleRef": role}
        self.request("POST", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", binding)
        issued = self.request("POST", f"{accounts}/{name}/token", {"spec": {"expirationSeconds": 86400}})
        config = msgspec.yaml.decode(self.kubeconfig.read_bytes())
        config["users"][0]["user"] = {"token": issued["status"]["token"]}
        path = self.kubeconfig.with_name(name)
        path.touch(mode=0o600)
        path.write_bytes(msgspec.yaml.encode(config))
        return path

    def watch(self, path: str) -> Iterator[dict[str, Any]]:
        """Events of a watch, by a connection of its own, until the server ends it."""
        connection = http.client.HTTPSConnection(HOST, PORT, context=self._tls)
        connection.request("GET", path)
        answer = connection.getresponse()
        if answer.status != 200:
            sys.exit(f"GET {path}: {answer.status} {answer.read().decode()}")
        while line := answer.readline():
            yield json.loads(line)

    def add_node(self, number: int) -> None:
        self.request("POST", "/api/v1/nodes", node(number))

    def add_pod(self, name: str, node_name: str, ip: str = "") -> None:
        """A Pod that runs on this Node."""
        self.request("POST", "/api/v1/namespaces/default/pods", pod(name, node_name))
        if ip:
            status = {"status": {"phase": "Running", "podIP": ip, "podIPs": [{"ip": ip}]}}
            path = f"/api/v1/namespaces/default/pods/{name}/status"
            self.request("PATCH", path, status, "application/merge-patch+json")

    def delete_pod(self, name: str) -> None:
        """Without waiting for a kubelet, of which there is none."""
        self.request("DELETE", f"/api/v1/namespaces/default/pods/{name}", {"gracePeriodSeconds": 0})

    def _ready(self) -> bool:
        try:
            self._connection.request("GET", "/readyz")
            answer = self._connection.getresponse()
            return answer.read() == b"ok"
        except (OSError, http.client.HTTPException):
            self._connection.close()
            return False


def store(objects: Iterable[tuple[str, dict[str, Any]]]) -> tuple[int, float]:
    """Write objects, by their keys, into etcd past the API server; return how many, and how many MB."""
    sizes: list[int] = []

    def puts() -> Iterator[dict[str, Any]]:
        for key, found in objects:
            value = msgspec.json.encode(found)
            sizes.append(len(value))
            yield {"requestPut": {"key": _registered(key), "value": base64.b64encode(value).decode()}}

    _transact(puts())
    return len(sizes), sum(sizes) / 1e6


def unstore(keys: Iterable[str]) -> None:
    """Delete objects in etcd past the API server, and what etcd had of before, so that no watch can go on from there."""
    _transact({"requestDeleteRange": {"key": _registered(key)}} for key in keys)
    revision = _etcd_request("/v3/kv/range", {"key": _registered("")})["header"]["revision"]
    _etcd_request("/v3/kv/compaction", {"revision": revision, "physical": True})


def _registered(key: str) -> str:
    return base64.b64encode(f"/registry/{key}".encode()).decode()


def _transact(changes: Iterator[dict[str, Any]]) -> None:
    while part := list(itertools.islice(changes, IN_ONE)):
        _etcd_request("/v3/kv/txn", {"success": part})


def _etcd_request(path: str, body: dict[str, Any]) -> Any:
    with contextlib.closing(http.client.HTTPConnection(ETCD.removeprefix("http://"), timeout=60)) as client:
        client.request("POST", path, msgspec.json.encode(body))
        answer = client.getresponse()
        text = answer.read()
    if answer.status != 200:
        sys.exit(f"etcd: {answer.status} {text.decode()}")
    return msgspec.json.decode(text)


def node(number: int) -> dict[str, Any]:
    """node-<number> with what a kubelet of a working Node reports, about 12 KB."""
    name = f"node-{number}"
    now = "2026-01-01T00:00:00Z"
    labels = {"beta.kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux", "kubernetes.io/hostname": name}
    labels |= {f"example.com/label-{n}": f"value-{n}" for n in range(10)}
    size = {"cpu": "8", "memory": "32Gi", "pods": "110", "ephemeral-storage": "100Gi", "hugepages-2Mi": "0"}
    conditions = ("Ready", "MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable")
    digest = "0123456789abcdef" * 4
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": labels,
            "annotations": {"node.alpha.kubernetes.io/ttl": "0", "volumes.example.com/attached": "x" * 200},
        },
        "spec": {"podCIDR": POD_CIDR.format(number), "podCIDRs": [POD_CIDR.format(number)]},
        "status": {
            "addresses": [
                {"type": "InternalIP", "address": NODE_IP.format(number)},
                {"type": "Hostname", "address": name},
            ],
            "capacity": size,
            "allocatable": size,
            "conditions": [
                {
                    "type": kind,
                    "status": "True" if kind == "Ready" else "False",
                    "reason": f"Kubelet{kind}",
                    "message": f"kubelet says how it is with {kind}",
                    "lastHeartbeatTime": now,
                    "lastTransitionTime": now,
                }
                for kind in conditions
            ],
            "images": [
                {
                    "names": [f"example.com/i{n}@sha256:{digest}", f"example.com/i{n}:v1"],
                    "sizeBytes": 10**8 + n,
                }
                for n in range(NODE_IMAGES)
            ],
        },
    }


def pod(name: str, node_name: str) -> dict[str, Any]:
    """A Pod of a Deployment, with probes, resources and volumes."""
    probe = {"httpGet": {"path": "/healthz", "port": 8080}, "periodSeconds": 10}
    container = {
        "name": "web",
        "image": "example.com/web:v1",
        "command": ["/web", "--listen=:8080", "--log=info"],
        "env": [{"name": f"SETTING_{n}", "value": f"value {n}"} for n in range(10)],
        "ports": [{"containerPort": 8080}],
        "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}, "limits": {"memory": "64Mi"}},
        "readinessProbe": probe,
        "livenessProbe": probe,
        "volumeMounts": [{"name": "config", "mountPath": "/etc/web"}],
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": "web", "pod-template-hash": "5d4f8c7b9"}},
        "spec": {
            "nodeName": node_name,
            "containers": [container],
            "volumes": [{"name": "config", "configMap": {"name": "web"}}],
            "automountServiceAccountToken": False,
        },
    }


def _etcd(directory: Path) -> list[str]:
    return [
        f"--data-dir={directory / 'etcd'}",
        f"--listen-client-urls={ETCD}",
        f"--advertise-client-urls={ETCD}",
        "--log-level=warn",
        "--unsafe-no-fsync",
    ]


def _apiserver(files: Path) -> list[str]:
    return [
        f"--etcd-servers={ETCD}",
        f"--bind-address={HOST}",
        f"--advertise-address={NODE_IP.format(1)}",
        f"--secure-port={PORT}",
        f"--client-ca-file={files}/ca.crt",
        f"--tls-cert-file={files}/server.crt",
        f"--tls-private-key-file={files}/server.key",
        f"--service-account-key-file={files}/sa.pub",
        f"--service-account-signing-key-file={files}/sa.key",
        "--service-account-issuer=https://kubernetes.default.svc",
        "--service-cluster-ip-range=10.96.0.0/16",
        "--authorization-mode=RBAC",
        "--profiling=false",
        # no controller makes ServiceAccounts here
        "--disable-admission-plugins=ServiceAccount",
    ]
