"""Pods that are there and do nothing, each on the node that the test names."""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING

from antrea.lab.images import AGNHOST

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from antrea.lab.cluster import Lab

POD = """
apiVersion: v1
kind: Pod
metadata: {name: NAME}
spec:
  nodeName: NODE
  terminationGracePeriodSeconds: 0
  tolerations: [{operator: Exists}]
  containers: [{name: main, image: IMAGE, imagePullPolicy: Never, args: [pause]}]
---
"""


@contextmanager
def quiet_pods(lab: Lab, places: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """Ready Pods by name and node; yields their addresses by name, and lets them go afterwards."""
    text = "".join(POD.replace("NAME", name).replace("NODE", where) for name, where in places.items())
    lab.api.apply(text.replace("IMAGE", AGNHOST))
    lab.api.kubectl("wait", "--for=condition=Ready", *(f"pod/{name}" for name in places), "--timeout=60s")
    found = [json.loads(lab.api.kubectl("get", "pod", name, "-o", "json")) for name in places]
    yield {pod["metadata"]["name"]: pod["status"]["podIP"] for pod in found}
    lab.api.kubectl("delete", "pod", *places, "--wait=false")
