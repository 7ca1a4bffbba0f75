"""The cluster of the vm tier: its Nodes and Pods, and a real API server that runs beside QEMU, where it is fast.

The machine inside hands connections to the API server's address on to QEMU's user network, which ends at the loopback of
the namespace that QEMU and the API server run in.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import yaml
from vm_shape import API_SERVER, MACHINES, TOKEN, TOPOLOGY

from antrea.lab import artifacts, control_plane, namespace
from antrea.lab.antrea import MANIFEST
from antrea.lab.api import Api
from antrea.lab.process import wait_for

if TYPE_CHECKING:
    from pathlib import Path

    from antrea.lab.record import Record

AGENT = "antrea-agent"


def serve(record: Record) -> Path:
    """Start it; returns the file of the network namespace it is in. The caller holds the record."""
    home = namespace.create(record, TOPOLOGY.control_plane.name)
    namespace.script(record, home, ["ip link set lo up", f"ip address add {API_SERVER}/32 dev lo"])
    control_plane.make_certificates(record, TOPOLOGY)
    binaries = artifacts.binaries(print)
    api = Api(record, TOPOLOGY, binaries.kubectl)
    control_plane.start_server(record, TOPOLOGY, binaries, api)
    wait_for("namespaces", lambda: len(api.items("/api/v1/namespaces")) >= 4, seconds=20)
    api.apply(yaml.safe_dump_all([*_rights(), *_nodes(), *_pods()]))
    token = api.kubectl("create", "token", AGENT, "--namespace=kube-system")
    (record.directory / TOKEN).write_text(token.strip())
    return home


def _rights() -> list[dict[str, Any]]:
    """The agent's account with exactly what our manifest allows it; and the account that Pods have."""
    manifest = [o for o in yaml.safe_load_all(MANIFEST.read_text()) if o]
    kinds = ("ServiceAccount", "ClusterRole", "ClusterRoleBinding")
    own = [o for o in manifest if o["kind"] in kinds and o["metadata"]["name"] == AGENT]
    return [*own, _object("ServiceAccount", "default", {})]


def _nodes() -> list[dict[str, Any]]:
    return [
        _object(
            "Node",
            machine.name,
            {
                "spec": {"podCIDR": machine.pod_cidrs[0], "podCIDRs": list(machine.pod_cidrs)},
                "status": {"addresses": [{"type": "InternalIP", "address": a} for a in machine.addresses]},
            },
        )
        for machine in MACHINES
    ]


def _pods() -> list[dict[str, Any]]:
    container = {"name": "main", "image": "none"}
    return [
        _object("Pod", pod, {"spec": {"nodeName": machine.name, "containers": [container]}})
        for machine in MACHINES
        for pod in machine.pods
    ]


def _object(kind: str, name: str, rest: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": name}, **rest}
