"""Pods that stand where the test wants them, for as long as a block lasts."""

from __future__ import annotations

import json
import subprocess
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from agent_node import pod_namespace

from lab.images import AGNHOST
from lab.process import wait_for

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from lab.cluster import Lab

POD = """
apiVersion: v1
kind: Pod
metadata: {name: NAME}
spec:
  nodeName: NODE
  terminationGracePeriodSeconds: 0
  tolerations: [{operator: Exists}]
  containers: [{name: main, image: IMAGE, imagePullPolicy: Never, args: [ARGS]}]
---
"""
SERVING = "netexec, --http-port=8080"
"""Arguments of a Pod that answers HTTP."""


@contextmanager
def quiet_pods(lab: Lab, places: Mapping[str, str], args: str = "pause") -> Iterator[dict[str, str]]:
    """As `standing`, Pods by name and node; without `args` they do nothing."""
    text = "".join(POD.replace("NAME", name).replace("NODE", where) for name, where in places.items())
    with standing(lab, text.replace("ARGS", args), places) as found:
        yield found


@contextmanager
def standing(lab: Lab, text: str, names: Collection[str], kinds: str = "pod") -> Iterator[dict[str, str]]:
    """Ready Pods `names` of the manifest; yields their addresses by name, and lets all `kinds` of these names go."""
    lab.api.apply(text.replace("IMAGE", AGNHOST))
    pods = [f"pod/{name}" for name in names]
    lab.api.kubectl("wait", "--for=condition=Ready", *pods, "--timeout=180s", seconds=200)
    found = [json.loads(lab.api.kubectl("get", "pod", name, "-o", "json")) for name in names]
    for pod in found:
        if "netexec" in pod["spec"]["containers"][0].get("args", ()):
            wait_for(f"the server of {pod['metadata']['name']}", partial(_listens, lab, pod), seconds=60)
    yield {pod["metadata"]["name"]: pod["status"]["podIP"] for pod in found}
    lab.api.kubectl("delete", kinds, *names, "--wait=false")


def _listens(lab: Lab, pod: dict[str, Any]) -> bool:
    """Whether its server does: without a probe a Pod is Ready before."""
    inside = pod_namespace(lab, pod["spec"]["nodeName"], pod["status"]["podIP"])
    asked = [*inside, "curl", "-s", "-o", "/dev/null", "--max-time", "2", "http://127.0.0.1:8080/hostname"]
    return subprocess.run(asked, check=False).returncode == 0
