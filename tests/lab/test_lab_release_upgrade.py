"""docs/upgrade.md: Helm brings an earlier state of the project to this one and back, with traffic, objects and files of the Nodes."""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
import yaml
from agent_node import in_agent, pod_namespace, wait_ready
from own_lab import own_lab
from quiet_pod import SERVING, quiet_pods

from antrea import IMAGE, VERSION
from image_build import oci
from lab import artifacts, cluster, image_recipe, node
from lab import control_plane as plane
from lab.process import wait_for
from lab.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from image_build.oci import Image
    from lab.cluster import Lab

pytestmark = [pytest.mark.wide, pytest.mark.timeout(3600)]

ROOT = Path(__file__).parents[2]
EARLIER = "1a938761"
"""A commit 400 before this test, of two days earlier: there is no release yet whose image could be taken."""
INTERVAL = 0.02
"""Seconds between two pings."""
VALUES: dict[str, Any] = {
    "ovs": {"datapathType": "netdev"},
    "transportInterface": "eth1",
    "controller": {"replicas": 2},
}
"""What a node of a lab needs, as this machine's kernel has no OVS; and two controllers."""
OBJECTS = """
apiVersion: crd.antrea.io/v1beta1
kind: ClusterNetworkPolicy
metadata: {name: closed}
spec:
  priority: 5
  appliedTo: [{podSelector: {}, namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: default}}}]
  ingress:
  - action: Drop
    from: [{podSelector: {matchLabels: {role: denied}}}]
    ports: [{protocol: TCP, port: 8080}]
---
apiVersion: crd.antrea.io/v1beta1
kind: ExternalIPPool
metadata: {name: upgrades}
spec: {ipRanges: [{start: 10.97.0.1, end: 10.97.0.9}], nodeSelector: {matchLabels: {upgrades: nowhere}}}
---
apiVersion: crd.antrea.io/v1beta1
kind: Egress
metadata: {name: kept}
spec: {appliedTo: {podSelector: {matchLabels: {none: none}}}, externalIPPool: upgrades}
"""
WRITTEN = (
    '{"apiVersion":"crd.antrea.io/v1beta1","kind":"Tier","metadata":{"name":"tried"},"spec":{"priority":77}}'
)
"""An object that a webhook has to validate."""


@pytest.fixture(scope="module")
def earlier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of the earlier state."""
    done = subprocess.run(["git", "-C", ROOT, "archive", EARLIER], check=False, capture_output=True)
    if done.returncode:
        pytest.skip(f"commit {EARLIER} is not in this clone")
    tree = tmp_path_factory.mktemp("earlier")
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as tar:
        tar.extractall(tree, filter="data")
    return tree


def image_of(tree: Path) -> Image:
    """The image that the earlier state builds of itself, under a tag of its own."""
    command = [sys.executable, "build/image.py", "--describe"]
    environment = {**os.environ, "PYTHONPATH": str(tree)}
    done = subprocess.run(command, cwd=tree, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    return msgspec.structs.replace(oci.decode(done.stdout), names=(f"{IMAGE}:earlier",))


@pytest.fixture(scope="module")
def lab(earlier: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Nodes with both images, and the earlier state installed."""
    archive = tmp_path_factory.mktemp("images") / "images.tar"
    oci.save([image_of(earlier), image_recipe.product(print)], archive)
    with own_lab("upgrade", Settings(nodes=2, cni="none")) as found:
        for machine in found.topology.nodes:
            shutil.copy(archive, node.root(found.record, machine.name) / "images.tar")
            words = ("ctr", "--namespace", "k8s.io", "images", "import", "/images.tar")
            node.execute(found.record, machine.name, *words, seconds=300)
        helm(found, "install", str(earlier / "build/charts/antrea"), "earlier")
        settled(found)
        yield found


def called(lab: Lab, *words: str, stdin: str = "") -> str:
    """What Helm answers."""
    kubeconfig = str(plane.kubeconfig(lab.record))
    command = [str(artifacts.helm(print)), *words, "--namespace", "kube-system", "--kubeconfig", kubeconfig]
    inside = cluster.enter(lab, "control", command)
    return subprocess.run(
        inside, input=stdin, text=True, check=True, timeout=300, stdout=subprocess.PIPE
    ).stdout


def helm(lab: Lab, action: str, chart: str, tag: str) -> None:
    """Install or upgrade the release with an image."""
    called(lab, action, "antrea", chart, "--values", "-", stdin=json.dumps({**VALUES, "image": {"tag": tag}}))


def settled(lab: Lab) -> None:
    """Wait for all programs of the release, and for Ready Nodes."""
    for program in ("daemonset/antrea-agent", "deployment/antrea-controller"):
        words = ("-n", "kube-system", "rollout", "status", program, "--timeout=600s")
        lab.api.kubectl(*words, seconds=620)
    for machine in lab.topology.nodes:
        wait_ready(lab, machine.name)
    wait_for("Ready nodes", lambda: not cluster.not_ready(lab, "/api/v1/nodes"), seconds=120)


@pytest.fixture(scope="module")
def pods(lab: Lab) -> Iterator[dict[str, str]]:
    """Two Pods on each Node, by name; the objects beside them."""
    lab.api.apply(OBJECTS)
    path = "/apis/crd.antrea.io/v1beta1/egresses/kept"
    wait_for("an address of the Egress", lambda: "egressIP" in lab.api.get(path)["spec"], seconds=60)
    places = {f"{name}-{machine.name}": machine.name for machine in lab.topology.nodes for name in ("a", "b")}
    with quiet_pods(lab, places, SERVING) as found:
        lab.api.kubectl("label", "pod", "b-node-1", "role=denied")
        wait_for("the policy", lambda: enforced(lab, found), seconds=60)
        yield found


class Pings:
    """Pings between two Pods, with what was lost of them."""

    def __init__(self, lab: Lab, addresses: dict[str, str], source: str, target: str, place: Path) -> None:
        inside = pod_namespace(lab, source.partition("-")[2], addresses[source])
        self.name, self._file = f"{source} to {target}", place / f"{source}-{target}"
        words = [*inside, "ping", "-n", "-i", str(INTERVAL), addresses[target]]
        with self._file.open("w") as out:
            self._process = subprocess.Popen(words, stdout=out)

    def end(self) -> tuple[int, float]:
        """How many were lost, and the longest time without an answer in seconds."""
        self._process.send_signal(signal.SIGINT)
        self._process.wait(60)
        text = self._file.read_text()
        found = re.search(r"(\d+) packets transmitted, (\d+) received", text)
        assert found, text[-300:]
        numbers = [0, *map(int, re.findall(r"icmp_seq=(\d+) ", text))]
        gaps = [after - before - 1 for before, after in itertools.pairwise(numbers)]
        return int(found[1]) - int(found[2]), max(gaps) * INTERVAL


@contextlib.contextmanager
def measured(
    lab: Lab, pods: dict[str, str], what: str, place: Path
) -> Iterator[dict[str, tuple[int, float]]]:
    """Pings between Nodes and on each, and writes that a webhook validates, until the block ends; yields losses by pair."""
    pairs = [("a-node-1", "a-node-2"), ("a-node-1", "b-node-1"), ("a-node-2", "b-node-2")]
    place.mkdir()
    running = [Pings(lab, pods, *pair, place) for pair in pairs]
    ended, refused = threading.Event(), list[str]()
    writer = threading.Thread(target=write, args=(lab, ended, refused))
    writer.start()
    losses: dict[str, tuple[int, float]] = {}
    try:
        yield losses
    finally:
        ended.set()
        writer.join(120)
        losses |= {pings.name: pings.end() for pings in running}
    for name, (lost, silence) in losses.items():
        print(f"figure: {what}_lost_{name.replace(' ', '_')} {lost} packets, longest {silence:.2f} s")
    print(f"figure: {what}_refused_writes {len(refused)} {sorted(set(refused))[:3]}")


def write(lab: Lab, ended: threading.Event, refused: list[str]) -> None:
    """Create an object again and again without storing it."""
    words = lab.api.command(["create", "--dry-run=server", "-f", "-"])
    while not ended.wait(0.5):
        done = subprocess.run(words, input=WRITTEN, capture_output=True, text=True, check=False, timeout=60)
        if done.returncode:
            refused.append(done.stderr.strip()[-200:])


def state(lab: Lab, pods: dict[str, str]) -> dict[str, object]:
    """What an upgrade has to keep: addresses and restarts of Pods, objects with their addresses, reservations on the Nodes."""
    found = {item["metadata"]["name"]: item for item in lab.api.items("/api/v1/namespaces/default/pods")}
    seen: dict[str, object] = {
        name: (found[name]["status"]["podIP"], found[name]["status"]["containerStatuses"][0]["restartCount"])
        for name in pods
    }
    seen["egress"] = lab.api.get("/apis/crd.antrea.io/v1beta1/egresses/kept")["spec"]["egressIP"]
    policy = lab.api.get("/apis/crd.antrea.io/v1beta1/clusternetworkpolicies/closed")
    seen["policy"] = (policy["metadata"]["uid"], policy["spec"]["ingress"])
    for machine in lab.topology.nodes:
        listed = in_agent(lab, machine.name, "ls", "/var/lib/cni/networks/antrea")
        seen[machine.name] = sorted(name for name in listed.split() if name[0].isdigit())
    return seen


def enforced(lab: Lab, pods: dict[str, str]) -> bool:
    """Whether the policy denies the Pod that it names, and no other."""

    def answered(client: str) -> bool:
        inside = pod_namespace(lab, "node-1", pods[client])
        url = f"http://{pods['a-node-2']}:8080/hostname"
        asked = [*inside, "curl", "-s", "-o", "/dev/null", "--max-time", "3", url]
        return subprocess.run(asked, check=False).returncode == 0

    return answered("a-node-1") and not answered("b-node-1")


def running_images(lab: Lab) -> set[str]:
    pods = lab.api.items("/api/v1/namespaces/kube-system/pods?labelSelector=app%3Dantrea")
    return {one["image"].rpartition(":")[2] for pod in pods for one in pod["spec"]["containers"]}


def test_an_upgrade_and_a_rollback_keep_pods_objects_and_files(
    lab: Lab, pods: dict[str, str], tmp_path: Path
) -> None:
    before = state(lab, pods)
    assert (running_images(lab), enforced(lab, pods)) == ({"earlier"}, True)
    with measured(lab, pods, "upgrade", tmp_path / "upgrade") as upgrade:
        lab.api.apply((ROOT / "build/yamls/antrea-crds.yml").read_text())
        helm(lab, "upgrade", str(ROOT / "build/charts/antrea"), f"v{VERSION}")
        settled(lab)
    assert running_images(lab) == {f"v{VERSION}"}
    assert state(lab, pods) == before
    wait_for("the policy", lambda: enforced(lab, pods), seconds=60)
    with measured(lab, pods, "rollback", tmp_path / "rollback") as rollback:
        called(lab, "rollback", "antrea", "1")
        settled(lab)
    assert running_images(lab) == {"earlier"}
    assert state(lab, pods) == before
    wait_for("the policy", lambda: enforced(lab, pods), seconds=60)
    # the userspace datapath ends with its Pod: each Node is without packets while its agent is replaced
    assert max(silence for _, silence in (*upgrade.values(), *rollback.values())) < 120


def waiting(lab: Lab) -> set[str]:
    """Nodes whose agent waits for its image."""
    pods = lab.api.items("/api/v1/namespaces/kube-system/pods?labelSelector=component%3Dantrea-agent")
    states = {
        pod["spec"]["nodeName"]: [
            one.get("state", {}).get("waiting", {}).get("reason", "")
            for part in ("initContainerStatuses", "containerStatuses")
            for one in pod["status"].get(part, ())
        ]
        for pod in pods
    }
    broken = ("ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull")
    return {where for where, reasons in states.items() if set(reasons) & set(broken)}


def test_a_broken_image_stops_at_the_first_node_and_is_rolled_back(
    lab: Lab, pods: dict[str, str], tmp_path: Path
) -> None:
    history = called(lab, "history", "antrea", "--output", "yaml")
    last = max(int(row["revision"]) for row in yaml.safe_load(history))
    before = state(lab, pods)
    with measured(lab, pods, "broken", tmp_path / "broken") as losses:
        helm(lab, "upgrade", str(ROOT / "build/charts/antrea"), "absent")
        wait_for("an agent without its image", lambda: waiting(lab), seconds=180)
        (broken,) = waiting(lab)
        called(lab, "rollback", "antrea", str(last))
        settled(lab)
    assert state(lab, pods) == before
    (kept,) = {machine.name for machine in lab.topology.nodes} - {broken}
    # the agent there was not replaced, and neither was its switch
    assert losses[f"a-{kept} to b-{kept}"][0] == 0
    wait_for("the policy", lambda: enforced(lab, pods), seconds=60)
