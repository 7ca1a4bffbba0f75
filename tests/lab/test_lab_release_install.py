"""docs/release.md: a published release is installed from its registry alone, the chart by Helm and the image by the runtime of a Node."""

from __future__ import annotations

import contextlib
import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from build_program import load_build_program
from loopback_registry import registry
from own_lab import own_lab

from lab import artifacts, cluster, namespace
from lab import control_plane as plane
from lab.process import wait_for
from lab.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab.cluster import Lab

pytestmark = [pytest.mark.wide, pytest.mark.timeout(1800)]

ROOT = Path(__file__).parents[2]
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


@pytest.fixture
def published(tmp_path: Path) -> tuple[str, Path]:
    """The command that publish prints, and the storage of the registry that then has the release of this tree."""
    sys.path.insert(0, str(ROOT / "build"))
    release, folder = load_build_program("release"), tmp_path / "release"
    folder.mkdir()
    helm = str(artifacts.helm(print))
    release.images(ROOT, folder, ["antrea"], ["amd64"])
    release.chart(ROOT, folder, helm)
    (folder / release.DESCRIPTION).write_text(json.dumps(release.description("0" * 40, folder)))
    (folder / release.SUMS).write_text(release.sums(folder))
    with registry(tmp_path) as host:
        command = [sys.executable, str(ROOT / "build/publish.py"), f"{host}/team", "--plain", "--helm", helm]
        done = subprocess.run(
            [*command, "--release", str(folder)], check=True, stdout=subprocess.PIPE, text=True, timeout=300
        )
    return done.stdout.replace(host, f"localhost:{PORT}"), tmp_path / "storage"


def test_a_published_release_is_installed_from_its_registry(
    published: tuple[str, Path], tmp_path: Path
) -> None:
    told, storage = published
    with own_lab("published", Settings(nodes=1, cni="none")) as lab, contextlib.ExitStack() as last:
        for machine in ("control", "node-1"):
            last.enter_context(served(lab, machine, storage, tmp_path))
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
        pods = lab.api.items("/api/v1/namespaces/kube-system/pods?labelSelector=app%3Dantrea")
        images = {one["image"].rpartition(":")[0] for pod in pods for one in pod["spec"]["containers"]}
        assert images == {f"localhost:{PORT}/team/antrea"}
