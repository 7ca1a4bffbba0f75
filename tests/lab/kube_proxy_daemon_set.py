"""kube-proxy as a DaemonSet, as kubeadm has it, in a lab that was started without."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from lab import control_plane
from lab.antrea import MANIFEST

if TYPE_CHECKING:
    from lab.cluster import Lab

DAEMON_SET = Path(__file__).with_name("kube_proxy_daemon_set.yaml")


def run_kube_proxy(lab: Lab, mode: str) -> None:
    """On all Nodes, until it is ready there."""
    image = next(
        line.split("image:")[1].strip().strip('"')
        for line in MANIFEST.read_text().splitlines()
        if line.strip().startswith("image:")
    )
    text = DAEMON_SET.read_text().replace("MODE", mode).replace("IMAGE", image)
    lab.api.apply(text.replace("SERVER", control_plane.server_url(lab.topology)))
    lab.api.kubectl("-n", "kube-system", "rollout", "status", "ds/kube-proxy", "--timeout=120s")
