"""Prometheus of Debian in the control plane's network of a lab, with the configuration and the rights of examples/prometheus."""

from __future__ import annotations

import contextlib
import json
import subprocess
import urllib.parse
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from prometheus_rules import RULES

from antrea.errors import Unavailable
from lab import cluster
from lab.process import run, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab.cluster import Lab

EXAMPLES = Path(__file__).parents[2] / "examples/prometheus"
ADDRESS = "127.0.0.1:9090"
"""In the control plane's network, which no other lab is in."""
SECONDS = "2s"
"""Between two scrapes, and two evaluations of rules, so that the test need not wait for the usual ones."""
PODS = "/api/v1/namespaces/kube-system/pods"


class Prometheus:
    """Answers of its HTTP API (https://prometheus.io/docs/prometheus/latest/querying/api/)."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab

    def get(self, path: str, **query: str) -> Any:
        """The data of an answer. Raises Unavailable where it has none."""
        url = f"http://{ADDRESS}/api/v1/{path}?{urllib.parse.urlencode(query)}"
        words = cluster.enter(self._lab, "control", ["curl", "-sS", "--max-time", "20", url])
        answer = json.loads(run(words))
        if answer["status"] != "success":
            raise Unavailable(f"{path} {query}: {answer['error']}")
        return answer["data"]

    def targets(self) -> list[dict[str, Any]]:
        """Targets that are scraped."""
        found: list[dict[str, Any]] = self.get("targets", state="active")["activeTargets"]
        return found

    def is_up(self, job: str, count: int) -> bool:
        """Whether a job has so many targets, and all were scraped."""
        health = [one["health"] for one in self.targets() if one["labels"]["job"] == job]
        return health == ["up"] * count

    def values(self, expression: str) -> list[dict[str, Any]]:
        """Samples of an instant query."""
        found: list[dict[str, Any]] = self.get("query", query=expression)["result"]
        return found


def discovered(lab: Lab, token: str) -> list[dict[str, Any]]:
    """What the discovery of Pods finds with this token, in the format of files: a target for each port of a container.

    Debian builds Prometheus without the discovery of Kubernetes. Labels: role `pod` of kubernetes_sd_config in
    https://prometheus.io/docs/prometheus/latest/configuration/configuration/
    """
    shown = run([*lab.api.command(["--token", token, "get", "--raw", PODS])])
    return [
        {
            "targets": [f"{pod['status']['podIP']}:{port['containerPort']}"],
            "labels": {
                "__meta_kubernetes_pod_label_component": pod["metadata"]["labels"].get("component", ""),
                "__meta_kubernetes_pod_container_port_name": port.get("name", ""),
                "__meta_kubernetes_pod_node_name": pod["spec"]["nodeName"],
            },
        }
        for pod in json.loads(shown)["items"]
        for container in pod["spec"]["containers"]
        for port in container.get("ports", ())
    ]


def _configure(lab: Lab, folder: Path) -> Path:
    """Write the example's configuration with the paths of this folder."""
    lab.api.apply((EXAMPLES / "rbac.yaml").read_text())
    token = lab.api.kubectl("-n", "monitoring", "create", "token", "prometheus").strip()
    (folder / "token").write_text(token)
    words = ("-n", "kube-system", "get", "configmap", "antrea-ca", "-o", r"jsonpath={.data.ca\.crt}")
    (folder / "ca.crt").write_text(lab.api.kubectl(*words))
    (folder / "pods.json").write_text(json.dumps(discovered(lab, token)))
    config = yaml.safe_load((EXAMPLES / "prometheus.yaml").read_text())
    config["global"] = {"scrape_interval": SECONDS, "evaluation_interval": SECONDS}
    config["rule_files"] = [str(RULES)]
    for job in config["scrape_configs"]:
        job["authorization"]["credentials_file"] = str(folder / "token")
        if "ca_file" in job["tls_config"]:
            job["tls_config"]["ca_file"] = str(folder / "ca.crt")
        del job["kubernetes_sd_configs"]
        job["file_sd_configs"] = [{"files": [str(folder / "pods.json")]}]
    path = folder / "prometheus.yaml"
    path.write_text(yaml.safe_dump(config))
    return path


@contextlib.contextmanager
def running(lab: Lab, folder: Path) -> Iterator[Prometheus]:
    """While the block lasts; ready when the block begins."""
    config = _configure(lab, folder)
    options = [f"--config.file={config}", f"--storage.tsdb.path={folder / 'tsdb'}"]
    command = cluster.enter(lab, "control", ["prometheus", *options, f"--web.listen-address={ADDRESS}"])
    with (folder / "log").open("wb") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        try:
            wait_for("Prometheus", partial(_answers, lab, process), seconds=60)
            yield Prometheus(lab)
        finally:
            process.terminate()
            process.wait(30)
            print((folder / "log").read_text()[-2000:])
            lab.api.kubectl("delete", "-f", str(EXAMPLES / "rbac.yaml"), "--wait=false")


def _answers(lab: Lab, process: subprocess.Popen[bytes]) -> bool:
    assert process.poll() is None
    words = ["curl", "-sf", "--max-time", "5", f"http://{ADDRESS}/-/ready"]
    return (
        subprocess.run(cluster.enter(lab, "control", words), check=False, capture_output=True).returncode == 0
    )
