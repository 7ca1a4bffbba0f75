"""Runs in the virtual machine: a lab's node on cgroup version 2, where the real kubelet, without an API server, runs a Pod."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import msgspec
import pytest

from antrea.errors import Unavailable
from lab import artifacts, cgroup, cluster, control_plane, image_recipe, images, node, node_files, underlay
from lab.process import launch, tail, wait_for
from lab.record import Record
from lab.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.wide
POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "still", "namespace": "default", "uid": "11111111-2222-3333-4444-555555555555"},
    "spec": {
        "hostNetwork": True,
        "containers": [
            {
                "name": "main",
                "image": images.PAUSE,
                "imagePullPolicy": "Never",
                "resources": {"limits": {"memory": "50Mi", "cpu": "500m"}},
            }
        ],
    },
}


@pytest.fixture
def record() -> Iterator[Record]:
    record = Record(f"vm{os.getpid()}")
    settings = Settings(nodes=1, cni="reference")
    topology = settings.topology()
    try:
        with record.locked():
            control_plane.make_certificates(record, topology)
            underlay.create(record, topology)
            seed = images.prepare(print, [image_recipe.pause()])
            supplies = node.Supplies(artifacts.binaries(print), seed)
            node.prepare(record, topology, topology.machine("node-1"), settings=settings, supplies=supplies)
            node.power_on(record, "node-1")
        yield record
    finally:
        cluster.down(record)


def write(record: Record, path: str, text: str) -> None:
    node.execute(record, "node-1", "sh", "-c", f"mkdir -p $(dirname {path}); cat > {path}", stdin=text)


def running(record: Record) -> list[str]:
    return node.execute(record, "node-1", "ps", "-A", "-o", "comm=").split()


def test_a_node_runs_a_pod_below_its_own_cgroup_on_version_2(record: Record) -> None:
    alone = node_files.kubelet(Settings(nodes=1).topology()) | {
        "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
        "authorization": {"mode": "AlwaysAllow"},
        "staticPodPath": "/etc/kubernetes/pods",
    }
    write(record, "/etc/kubernetes/alone.yaml", node_files.yaml(alone).decode())
    write(record, "/etc/kubernetes/pods/still.json", msgspec.json.encode(POD).decode())
    kubelet = [
        f"{node_files.BINARIES}/kubelet",
        "--config=/etc/kubernetes/alone.yaml",
        "--hostname-override=node-1",
    ]
    with record.locked():
        launch(record, "kubelet", node.inside(record, "node-1", kubelet))
    try:
        wait_for("sandbox and container", lambda: running(record).count("pause") == 2, seconds=240, step=2)
    except Unavailable as error:
        error.add_note(tail(record.directory / "logs/kubelet.log"))
        raise

    own = cgroup.ROOT / cgroup.top_name(record) / "node-1"
    assert [h.version for h in cgroup.mounted()] == [2]
    assert (own / "cgroup.procs").read_text() == ""
    assert str(50 << 20) in {f.read_text().strip() for f in own.glob("kubepods/**/memory.max")}
