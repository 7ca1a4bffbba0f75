"""NodePortLocal in a cluster: a Pod's annotation says at which port of its Node it is reached, and so it is."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
from config_map import ConfigMap, wait_value
from quiet_pod import SERVING, quiet_pods

from lab import cluster
from lab.process import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab.cluster import Lab

KEY = "nodeportlocal.antrea.io"
SERVICE = f"""
apiVersion: v1
kind: Service
metadata: {{name: ported, annotations: {{{KEY}/enabled: "true"}}}}
spec: {{selector: {{ported: "yes"}}, ports: [{{port: 80, targetPort: 8080}}]}}
"""


@pytest.fixture
def ported(lab: Lab) -> Iterator[Lab]:
    """Pod `ported` on node-2 is behind an annotated Service."""
    config = ConfigMap(lab)
    config.change(nodePortLocal={"enable": True, "portRange": "61000-61010"})
    try:
        wait_value(lab, "nodePortLocal.portRange", "61000-61010")
        with quiet_pods(lab, {"ported": "node-2"}, SERVING):
            lab.api.kubectl("label", "pod", "ported", "ported=yes")
            lab.api.apply(SERVICE)
            yield lab
            lab.api.kubectl("delete", "service", "ported", "--ignore-not-found", "--wait=false")
    finally:
        config.write(config.text)
        wait_value(lab, "nodePortLocal.portRange", "61000-62000")


def mappings(lab: Lab) -> list[dict[str, Any]]:
    meta = json.loads(lab.api.kubectl("get", "pod", "ported", "-o", "json"))["metadata"]
    found: list[dict[str, Any]] = json.loads(meta.get("annotations", {}).get(KEY, "[]"))
    return found


def fetch(lab: Lab, machine: str, place: str) -> str:
    inside = cluster.enter(lab, machine, ["curl", "-sS", "--max-time", "3", f"http://{place}/hostname"])
    run = subprocess.run(inside, capture_output=True, text=True, check=False)
    return run.stdout or run.stderr


def test_a_pod_is_reached_at_the_port_that_its_annotation_names(ported: Lab) -> None:
    lab, there = ported, ported.topology.machine("node-2").address("eth0", 4)
    wait_for("its annotation", lambda: mappings(lab), seconds=60, step=0.1)
    (found,) = mappings(lab)
    port = found.pop("nodePort")
    assert found == {"podPort": 8080, "nodeIP": there, "protocol": "tcp", "ipFamily": "IPv4"}
    assert 61000 <= port <= 61010
    for machine in ("outside", "node-1", "node-2"):
        assert fetch(lab, machine, f"{there}:{port}") == "ported", machine
    lab.api.kubectl("annotate", "service", "ported", f"{KEY}/enabled-")
    wait_for("no annotation", lambda: not mappings(lab), seconds=60, step=0.1)
    wait_for(
        "no port", lambda: "refused" in fetch(lab, "outside", f"{there}:{port}").lower() or
        "Failed to connect" in fetch(lab, "outside", f"{there}:{port}"), seconds=60,
    )  # fmt: skip
