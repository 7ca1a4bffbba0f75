"""A release in a registry, and a lab of one Node that is installed from there by the command that `make publish` prints."""

from __future__ import annotations

import contextlib
import json
import shlex
import subprocess
from typing import TYPE_CHECKING

from own_lab import own_lab

from lab import artifacts, cluster, namespace
from lab import control_plane as plane
from lab.process import wait_for
from lab.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lab.cluster import Lab

PORT = 5000
VALUES = {"ovs": {"datapathType": "netdev"}, "transportInterface": "eth1"}
"""What a node of a lab needs: this machine's kernel has no OVS."""


@contextlib.contextmanager
def served(lab: Lab, machine: str, storage: Path, folder: Path) -> Iterator[None]:
    """The same registry on the loopback interface of a machine of the lab."""
    config = folder / f"{machine}.json"
    config.write_text(
        json.dumps(
            {
                "version": 0.1,
                "storage": {"filesystem": {"rootdirectory": str(storage)}},
                "http": {"addr": f"127.0.0.1:{PORT}"},
            }
        )
    )
    place = namespace.path(lab.record, machine)
    asked = namespace.inside(place, ["curl", "-sf", "--max-time", "2", f"http://127.0.0.1:{PORT}/v2/"])
    with (folder / f"{machine}.log").open("wb") as log:
        command = namespace.inside(place, ["docker-registry", "serve", config])
        with subprocess.Popen(command, stdout=log, stderr=log) as process:
            try:
                wait_for(
                    "the registry",
                    lambda: subprocess.run(asked, check=False, capture_output=True).returncode == 0,
                    seconds=60,
                )
                yield
            finally:
                process.terminate()


@contextlib.contextmanager
def installed(told: str, storage: Path, folder: Path) -> Iterator[Lab]:
    """A lab whose Node is Ready after the command `told` that names `localhost:PORT`, where a registry has `storage`."""
    with own_lab("published", Settings(nodes=1, cni="none")) as lab, contextlib.ExitStack() as last:
        for machine in ("control", "node-1"):
            last.enter_context(served(lab, machine, storage, folder))
        words = shlex.split(told)
        assert words[0] == "helm"
        command = [str(artifacts.helm(print)), *words[1:], "--values", "-"]
        command += ["--kubeconfig", str(plane.kubeconfig(lab.record))]
        inside = cluster.enter(lab, "control", command)
        subprocess.run(inside, input=json.dumps(VALUES), text=True, check=True, timeout=300)
        for program in ("daemonset/antrea-agent", "deployment/antrea-controller"):
            rollout = ("-n", "kube-system", "rollout", "status", program, "--timeout=300s")
            lab.api.kubectl(*rollout, seconds=320)
        wait_for("a Ready node", lambda: not cluster.not_ready(lab, "/api/v1/nodes"), seconds=120)
        yield lab


def images(lab: Lab) -> set[str]:
    """Names of the images that the programs of the release run, without their tags."""
    pods = lab.api.items("/api/v1/namespaces/kube-system/pods?labelSelector=app%3Dantrea")
    return {one["image"].rpartition(":")[0] for pod in pods for one in pod["spec"]["containers"]}
