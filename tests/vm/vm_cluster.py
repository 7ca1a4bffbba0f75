"""The cluster of the vm tier: its Nodes, Pods and Egresses; the real API server and our controller run beside QEMU, where they are fast.

The machine inside hands connections to their address on to QEMU's user network, which ends at the loopback of the namespace
that they and QEMU run in.
"""

from __future__ import annotations

import json
import os
import socket
import struct
import sys
import threading
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import yaml
from vm_shape import (
    API_SERVER,
    CHOSEN,
    COLLECTOR_PORT,
    CONTROLLER_PORT,
    INSTRUCTIONS,
    KUBECTL_PORT,
    MACHINES,
    POOLS,
    PROCESSOR_PORT,
    RESTART_PORT,
    SCTP_PORTS,
    TOKEN,
    TOPOLOGY,
)

import antrea
from antrea.errors import Unavailable
from lab import artifacts, control_plane, namespace
from lab.antrea import MANIFEST
from lab.api import Api
from lab.process import end, launch, wait_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from lab.record import Record

AGENT, CONTROLLER = "antrea-agent", "antrea-controller"
CRD = "crd.antrea.io/v1beta1"
ACCOUNTS = ("ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding")


def serve(record: Record, *gates: str) -> Path:
    """Start it, with these gates of the controller on; returns the file of the network namespace it is in. The caller holds the record."""
    home = namespace.create(record, TOPOLOGY.control_plane.name)
    namespace.script(record, home, ["ip link set lo up", f"ip address add {API_SERVER}/32 dev lo"])
    control_plane.make_certificates(record, TOPOLOGY)
    binaries = artifacts.binaries(print)
    api = Api(record, TOPOLOGY, binaries.kubectl)
    control_plane.start_server(record, TOPOLOGY, binaries, api)
    wait_for("namespaces", lambda: len(api.items("/api/v1/namespaces")) >= 4, seconds=20)
    api.apply(yaml.safe_dump_all(_manifest("CustomResourceDefinition")))
    api.apply(yaml.safe_dump_all([*_manifest(*ACCOUNTS), *_nodes(), *_pods(), _endpoint()]))
    (record.directory / TOKEN).write_text(_token(api, AGENT))
    _prepare_controller(record, api, gates)
    start_controller(record, home, CONTROLLER)
    api.kubectl("wait", "--for=condition=Established", "customresourcedefinition", "--all", "--timeout=30s")
    api.apply(yaml.safe_dump_all([*_egresses(), _policy(), _collector()]))
    return home


def _prepare_controller(record: Record, api: Api, gates: Sequence[str]) -> None:
    """What it reads as it starts; it has its own ServiceAccount."""
    directory = record.directory / CONTROLLER
    directory.mkdir()
    kubeconfig = yaml.safe_load(control_plane.kubeconfig(record).read_text())
    kubeconfig["users"][0]["user"] = {"token": _token(api, CONTROLLER)}
    config = {
        "apiPort": CONTROLLER_PORT,
        "clientConnection": {"kubeconfig": str(directory / "kubeconfig")},
        "featureGates": dict.fromkeys(gates, True),
    }
    (directory / "kubeconfig").write_text(yaml.safe_dump(kubeconfig))
    (directory / "config").write_text(json.dumps(config))


def start_controller(record: Record, home: Path, name: str) -> None:
    """The program that our image has, as a process of this name. The caller holds the record."""
    directory = record.directory / CONTROLLER
    words = [sys.executable, "-P", "-m", "antrea.controller.main", f"--config={directory / 'config'}"]
    words += [f"--token-file={directory / 'token'}", f"--certificate-dir={directory / 'certificates'}"]
    about = {"POD_NAME": name, "POD_NAMESPACE": "kube-system", "NODE_NAME": "node-1"}
    tree = {"PYTHONPATH": str(Path(antrea.__path__[0]).parent)}
    launch(record, name, namespace.inside(home, words), env=about | tree)


@contextmanager
def waiting_on(record: Record, home: Path) -> Iterator[None]:
    """While its block lasts, whoever connects to RESTART_PORT, KUBECTL_PORT and PROCESSOR_PORT gets what these are for."""
    kubectl = Api(record, TOPOLOGY, artifacts.binaries(print).kubectl).kubectl
    with (
        _answering(home, RESTART_PORT, partial(_restart, record, home)),
        _answering(home, KUBECTL_PORT, partial(_run_kubectl, kubectl)),
        _answering(home, PROCESSOR_PORT, partial(_tell_what_was_taken, record.directory / INSTRUCTIONS)),
    ):
        yield


@contextmanager
def _answering(home: Path, port: int, serve: Callable[[socket.socket], None]) -> Iterator[None]:
    """`serve` runs in a thread, until the listener is shut down."""
    with namespace.entered(home):
        listener = socket.create_server(("127.0.0.1", port))
    thread = threading.Thread(target=serve, args=(listener,), name=f"port {port}")
    thread.start()
    try:
        yield
    finally:
        listener.shutdown(socket.SHUT_RDWR)  # ends accept
        thread.join()
        listener.close()


def _accepted(listener: socket.socket) -> Iterator[socket.socket]:
    while True:
        try:
            asked, _ = listener.accept()
        except OSError:
            return
        with asked:
            yield asked


def _restart(record: Record, home: Path, listener: socket.socket) -> None:
    """Kill the controller and start another one, once for each connection."""
    name = CONTROLLER
    for number, asked in enumerate(_accepted(listener), 2):
        with record.locked():
            end([record.processes()[name]])
            name = f"{CONTROLLER}-{number}"
            start_controller(record, home, name)
            asked.sendall(b"started\n")


def _run_kubectl(kubectl: Callable[..., str], listener: socket.socket) -> None:
    """A line of JSON with arguments and input is answered with one of output and error."""
    for asked in _accepted(listener):
        with asked.makefile("rwb") as line:
            words, stdin = json.loads(line.readline())
            try:
                answer = [kubectl(*words, stdin=stdin, seconds=500), ""]
            except Unavailable as error:
                answer = ["", str(error)]
            line.write(json.dumps(answer).encode() + b"\n")


def _tell_what_was_taken(counts: Path, listener: socket.socket) -> None:
    """Seconds of the processor and instructions, once for each line."""
    for asked in _accepted(listener):
        with asked.makefile() as lines:
            for _ in lines:
                ticks = sum(map(_emulator_ticks, Path("/proc").glob("[0-9]*/stat")))
                instructions = sum(number for (number,) in struct.iter_unpack("Q", counts.read_bytes()))
                asked.sendall(f"{ticks / os.sysconf('SC_CLK_TCK')} {instructions}\n".encode())


def _emulator_ticks(stat: Path) -> int:
    """Time of the processor, in user mode and in the kernel, of an emulator that this process has started; 0 of all others."""
    with suppress(OSError):  # it has ended
        name, _, rest = stat.read_text().rpartition(")")
        fields = rest.split()
        if "(qemu-system" in name and int(fields[1]) == os.getpid():
            return int(fields[11]) + int(fields[12])
    return 0


def _token(api: Api, account: str) -> str:
    return api.kubectl("create", "token", account, "--namespace=kube-system").strip()


def _manifest(*kinds: str) -> list[dict[str, Any]]:
    """What of these kinds our manifest has; and the account that Pods have."""
    found = [o for o in yaml.safe_load_all(MANIFEST.read_text()) if o and o["kind"] in kinds]
    return [*found, _object("ServiceAccount", "default", {})] if "ServiceAccount" in kinds else found


def _nodes() -> list[dict[str, Any]]:
    return [
        _object(
            "Node",
            machine.name,
            {
                "spec": {"podCIDR": machine.pod_cidrs[0], "podCIDRs": list(machine.pod_cidrs)},
                "status": {"addresses": [{"type": "InternalIP", "address": a} for a in machine.addresses]},
            },
            {"egress": machine.egress},
        )
        for machine in MACHINES
    ]


def _pods() -> list[dict[str, Any]]:
    container = {"name": "main", "image": "none"}
    return [
        _object(
            "Pod",
            pod,
            {"spec": {"nodeName": machine.name, "containers": [container]}},
            dict.fromkeys(CHOSEN.get(pod, {}).values(), "selects") | {"name": pod},
        )
        for machine in MACHINES
        for pod in machine.pods
    ]


def _endpoint() -> dict[str, Any]:
    """Where agents find the controller."""
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": CONTROLLER,
            "namespace": "kube-system",
            "labels": {"kubernetes.io/service-name": "antrea"},
        },
        "addressType": "IPv4",
        "ports": [{"name": "", "port": CONTROLLER_PORT, "protocol": "TCP"}],
        "endpoints": [{"addresses": [API_SERVER], "conditions": {"ready": True}}],
    }


def _egresses() -> list[dict[str, Any]]:
    pools: list[dict[str, Any]] = [
        {
            "apiVersion": CRD,
            "kind": "ExternalIPPool",
            "metadata": {"name": pool.name},
            "spec": {
                "ipRanges": [{"start": pool.first, "end": pool.first}],
                "nodeSelector": {"matchLabels": {"egress": "gateway"}},
                **({"subnetInfo": pool.subnet} if pool.subnet else {}),
            },
        }
        for pool in POOLS
    ]
    return pools + [
        {
            "apiVersion": CRD,
            "kind": "Egress",
            "metadata": {"name": pool.name},
            "spec": {
                "appliedTo": {"podSelector": {"matchLabels": {pool.name: "selects"}}},
                "externalIPPool": pool.name,
            },
        }
        for pool in POOLS
    ]


def _policy() -> dict[str, Any]:
    """Says nothing of anything but SCTP to one port of `server`. By block: no kubelet says which addresses Pods have."""
    ports = [{"protocol": "SCTP", "port": SCTP_PORTS["judged"]}]
    there = [{"ipBlock": {"cidr": cidr}} for cidr in MACHINES[0].pod_cidrs]
    rules = [
        {"name": "node-1", "action": "Allow", "from": there, "ports": ports},
        {"name": "others", "action": "Drop", "ports": ports},
    ]
    server = [{"podSelector": {"matchLabels": {"name": "server"}}}]
    spec = {"priority": 5, "tier": "application", "appliedTo": server, "ingress": rules}
    return {"apiVersion": CRD, "kind": "ClusterNetworkPolicy", "metadata": {"name": "sctp"}, "spec": spec}


def _collector() -> dict[str, Any]:
    """Of flow records, on each Node."""
    spec = {
        "address": f"127.0.0.1:{COLLECTOR_PORT}",
        "protocol": {"ipfix": {"transport": "tcp"}},
        "activeFlowExportTimeoutSeconds": 1,
        "idleFlowExportTimeoutSeconds": 1,
    }
    kind = {"apiVersion": "crd.antrea.io/v1alpha1", "kind": "FlowExporterDestination"}
    return {**kind, "metadata": {"name": "here"}, "spec": spec}


def _object(
    kind: str, name: str, rest: dict[str, Any], labels: Mapping[str, str] = MappingProxyType({})
) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": name, "labels": dict(labels)}, **rest}
