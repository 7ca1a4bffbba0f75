"""examples/three-tier in a lab, as a person applies it, and those outside of the cluster who vote."""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from agent_node import antctl

from lab import cluster
from lab.process import wait_for

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from lab.cluster import Lab

EXAMPLE = Path(__file__).parents[2] / "examples/three-tier"
IP = "172.30.0.220"
CLIENTS = ("gateway", "outside")
"""On the subnet of the Nodes, and behind the router."""
IMAGE = "python:3-alpine"


@contextlib.contextmanager
def poll(lab: Lab, ingress: Collection[str], on: str = "") -> Iterator[None]:
    """With these Nodes for the address, and all Pods on the Node `on`; empty: wherever the scheduler puts them."""
    words = ("-o", "jsonpath={.spec.template.spec.containers[0].image}")
    image = lab.api.kubectl("-n", "kube-system", "get", "daemonset", "antrea-agent", *words)
    text = lab.api.kubectl("kustomize", str(EXAMPLE))
    assert text.count(IMAGE) == 3
    text = text.replace(IMAGE, f"{image}\n        imagePullPolicy: Never")
    if on:
        text = re.sub(r"( +)terminationGracePeriodSeconds: 1", rf"\g<0>\n\1nodeName: {on}", text)
    lab.api.kubectl("label", "nodes", *ingress, "network-role=ingress-node", "--overwrite")
    lab.api.apply(text)
    try:
        for tier in ("db", "app", "ui"):
            lab.api.kubectl(
                "-n", "poll", "rollout", "status", f"deployment/poll-{tier}", "--timeout=180s", seconds=200
            )
        for machine in CLIENTS:
            wait_for(f"the page for {machine}", partial(page, lab, machine), seconds=60)
        yield
    finally:
        lab.api.kubectl("delete", "namespace", "poll", seconds=120)
        lab.api.kubectl("delete", "externalippool", "service-external-ip-pool")
        lab.api.kubectl("label", "nodes", *ingress, "network-role-")


def fetch(lab: Lab, machine: str, path: str, *words: str) -> str:
    """What it gets from the address; empty: nothing in two seconds, or no success."""
    asked = ["curl", "-sf", "--max-time", "2", *words, f"http://{IP}{path}"]
    inside = cluster.enter(lab, machine, asked)
    return subprocess.run(inside, capture_output=True, text=True, check=False).stdout


def page(lab: Lab, machine: str) -> str:
    """The name of the Pod that made it; empty: there is none."""
    found = re.search(r"served by (\S+)<", fetch(lab, machine, "/"))
    return found[1] if found else ""


def vote(lab: Lab, machine: str, colour: str) -> None:
    assert fetch(lab, machine, f"/votes/{colour}", "-X", "POST") == "counted\n"


def votes(lab: Lab, machine: str) -> dict[str, int]:
    found: dict[str, int] = json.loads(fetch(lab, machine, "/votes"))
    return found


def owner(lab: Lab, where: str) -> str:
    """As the agent of a Node finds it; empty: none."""
    rows = [row.split() for row in antctl(lab, where, "get", "serviceexternalip").splitlines()[1:]]
    return next((row[4] for row in rows if row[:2] == ["poll", "poll-ui"] and row[4] != "<NONE>"), "")
