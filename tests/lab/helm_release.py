"""Antrea as a release of Helm in a lab whose Nodes have nothing of a network at first."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from agent_node import wait_ready

from antrea import VERSION
from lab import artifacts, cluster, node
from lab import control_plane as plane
from lab.process import wait_for

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lab.cluster import Lab

CHART = Path(__file__).parents[2] / "build/charts/antrea"
VALUES: dict[str, Any] = {"ovs": {"datapathType": "netdev"}, "transportInterface": "eth1"}
"""What a node of a lab needs, as this machine's kernel has no OVS."""


def bring_images(lab: Lab, archive: Path) -> None:
    """Import the images of an archive on all Nodes."""
    for machine in lab.topology.nodes:
        shutil.copy(archive, node.root(lab.record, machine.name) / "images.tar")
        words = ("ctr", "--namespace", "k8s.io", "images", "import", "/images.tar")
        node.execute(lab.record, machine.name, *words, seconds=300)


def helm(lab: Lab, *words: str, stdin: str = "") -> str:
    """Return what Helm prints. Raises CalledProcessError."""
    kubeconfig = str(plane.kubeconfig(lab.record))
    command = [str(artifacts.helm(print)), *words, "--namespace", "kube-system", "--kubeconfig", kubeconfig]
    inside = cluster.enter(lab, "control", command)
    return subprocess.run(
        inside, input=stdin, text=True, check=True, timeout=300, stdout=subprocess.PIPE
    ).stdout


def bring_release(
    lab: Lab,
    action: str,
    values: Mapping[str, Any] = MappingProxyType({}),
    *,
    chart: Path = CHART,
    tag: str = f"v{VERSION}",
) -> None:
    """`install` or `upgrade` the release `antrea` with an image and these values on top of VALUES."""
    values = {**VALUES, **values, "image": {"tag": tag}}
    helm(lab, action, "antrea", str(chart), "--values", "-", stdin=json.dumps(values))


def settle(lab: Lab) -> None:
    """Wait for all programs of the release, and for Ready Nodes."""
    for program in ("daemonset/antrea-agent", "deployment/antrea-controller"):
        words = ("-n", "kube-system", "rollout", "status", program, "--timeout=600s")
        lab.api.kubectl(*words, seconds=620)
    for machine in lab.topology.nodes:
        wait_ready(lab, machine.name)
    wait_for("Ready nodes", lambda: not cluster.not_ready(lab, "/api/v1/nodes"), seconds=120)
