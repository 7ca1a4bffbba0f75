"""Settings and objects that Kubernetes' network specs require of a cluster and that a lab does not have by default."""

from __future__ import annotations

from typing import TYPE_CHECKING

from image_build.oci import Image, one_layer
from image_build.rootfs import Tree
from lab import artifacts, flow_visibility

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from image_build.step import Progress
    from lab.cluster import Lab

ZONE = "topology.kubernetes.io/zone"
ZONES = 3
"""Zones that the specs on traffic distribution require; specs with several Nodes in each zone require two."""
OUT_OF_WINDOW_IMAGE = "registry.k8s.io/e2e-test-images/regression-issue-74839:1.2"


def serve(lab: Lab, tell: Progress) -> None:
    """Give each Node a zone, and the image of one spec. May be repeated. Raises Unavailable."""
    image = out_of_window_image(artifacts.out_of_window(tell))
    for node, zone in zones([machine.name for machine in lab.topology.nodes]).items():
        lab.api.kubectl("label", "--overwrite", "node", node, f"{ZONE}={zone}")
        flow_visibility.import_images(lab, node, [image])


def zones(nodes: Sequence[str]) -> dict[str, str]:
    """The zone of each of these Nodes, in turn."""
    return {node: f"zone-{number % ZONES + 1}" for number, node in enumerate(nodes)}


def out_of_window_image(program: Path) -> Image:
    """The server of the spec on packets that conntrack finds invalid."""
    tree = Tree()
    tree.file("regression-issue-74839", program, 0o755)
    return one_layer(OUT_OF_WINDOW_IMAGE, tree, ("/regression-issue-74839",))
