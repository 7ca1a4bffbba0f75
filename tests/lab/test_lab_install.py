"""docs/install.md: its commands, read from the page, do what it says with the chart, the manifest and the archive of `make image`."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from own_lab import own_lab

from antrea import IMAGE, VERSION
from lab import antrea, artifacts, cluster, images, node
from lab import control_plane as plane
from lab.process import wait_for
from lab.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab.cluster import Lab

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/install.md").read_text()
OURS, THEIRS = f"{IMAGE}:v{VERSION}", f"registry.example.com/team/antrea:v{VERSION}"


def commands(first: str) -> list[str]:
    """Indented commands of the page that begin so."""
    return re.findall(rf"^    ({re.escape(first)} .*)$", PAGE, re.MULTILINE)


def used(objects: list[dict[str, Any]]) -> set[str]:
    """Images of agents and controller."""
    pods = [one["spec"]["template"]["spec"] for one in objects if one["kind"] in ("DaemonSet", "Deployment")]
    lists = (pod.get(part, ()) for pod in pods for part in ("initContainers", "containers"))
    return {one["image"] for found in lists for one in found}


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `make image` leaves."""
    to = tmp_path_factory.mktemp("image") / "antrea.tar"
    subprocess.run([sys.executable, ROOT / "build/image.py", "--out", to], check=True, timeout=600)
    return to


@pytest.fixture
def ctr(tmp_path: Path) -> Iterator[list[str]]:
    """A containerd that has no image, and its ctr."""
    with images.containerd(tmp_path / "root") as words:
        yield words


def test_ctr_imports_the_archive_under_the_name_that_the_manifest_wants(
    archive: Path, ctr: list[str]
) -> None:
    (told,) = re.findall(r"`(ctr --namespace k8s\.io images import antrea\.tar)`", PAGE)
    address = ctr[ctr.index("--address") + 1]
    words = ["ctr", "--address", address, *shlex.split(told)[1:]]
    subprocess.run(words, check=True, cwd=archive.parent, timeout=300, stdout=subprocess.DEVNULL)
    listed = subprocess.run([*ctr, "images", "ls", "-q"], check=True, capture_output=True, text=True).stdout
    manifest = list(yaml.safe_load_all((ROOT / "build/yamls/antrea.yml").read_text()))
    assert used([one for one in manifest if one]) == {OURS} == set(listed.split())


def test_helm_renders_what_the_page_installs() -> None:
    helm, found = artifacts.helm(print), []
    for line in commands("helm install"):
        words = shlex.split(line)
        words[1] = "template"
        done = subprocess.run(
            [helm, *words[1:]], check=True, cwd=ROOT, capture_output=True, text=True, timeout=120
        )
        found.append(used([one for one in yaml.safe_load_all(done.stdout) if one]))
    assert found == [{OURS}, {THEIRS}]


def test_sed_makes_a_manifest_with_the_image_of_a_registry() -> None:
    (line,) = commands("sed")
    command, pipe, rest = line.partition(" | ")
    assert (pipe, rest) == (" | ", "kubectl apply -f -")
    done = subprocess.run(
        shlex.split(command), check=True, cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert used([one for one in yaml.safe_load_all(done.stdout) if one]) == {THEIRS}
    assert done.stdout.count(IMAGE) == 0


def test_every_target_and_option_of_the_page_is_there() -> None:
    made = subprocess.run(["make", "help"], check=True, cwd=ROOT, capture_output=True, text=True).stdout
    assert {line.split()[0] for line in made.splitlines()} >= set(
        re.findall(r"^    make (\w+)", PAGE, re.MULTILINE)
    )
    environment = {**os.environ, "COLUMNS": "200"}
    told = subprocess.run(
        [sys.executable, ROOT / "build/push.py", "--help"], check=True, capture_output=True, text=True, env=environment
    ).stdout  # fmt: skip
    options = re.findall(r"^\| `(--\w+)", PAGE, re.MULTILINE)
    assert len(options) == 3
    assert [one for one in options if f"  {one}" not in told] == []


VALUES = {"ovs": {"datapathType": "netdev"}, "transportInterface": "eth1"}
"""What a node of a lab needs: this machine's kernel has no OVS."""


def works(lab: Lab) -> None:
    """What the page asks at the end, and a node that its network has made Ready."""
    for line in commands("kubectl -n kube-system rollout"):
        lab.api.kubectl(*shlex.split(line)[1:], "--timeout=120s", seconds=150)
    wait_for("Ready nodes", lambda: not cluster.not_ready(lab, "/api/v1/nodes"), seconds=120)
    wait_for("Ready Pods", lambda: not cluster.not_ready(lab, "/api/v1/pods"), seconds=120)


@pytest.mark.wide
def test_nodes_that_have_nothing_get_a_network_by_what_the_page_says(archive: Path, tmp_path: Path) -> None:
    helm, values = artifacts.helm(print), tmp_path / "values.yaml"
    values.write_text(yaml.safe_dump(VALUES))
    with own_lab("install", Settings(nodes=1, cni="none")) as lab:
        assert cluster.not_ready(lab, "/api/v1/nodes") == ["node-1"]
        shutil.copy(archive, node.root(lab.record, "node-1") / "antrea.tar")
        (told,) = re.findall(r"`(ctr --namespace k8s\.io images import) antrea\.tar`", PAGE)
        node.execute(lab.record, "node-1", *shlex.split(told), "/antrea.tar")

        def with_helm(*words: str) -> None:
            inside = [str(helm), *words, "--kubeconfig", str(plane.kubeconfig(lab.record))]
            subprocess.run(cluster.enter(lab, "control", inside), check=True, cwd=ROOT, timeout=300)

        with_helm(*shlex.split(commands("helm install")[0])[1:], "--values", str(values))
        works(lab)
        with_helm("uninstall", "antrea", "--namespace", "kube-system", "--wait")
        lab.api.apply(antrea.manifest(lab, (ROOT / "build/yamls/antrea.yml").read_text()))
        works(lab)
