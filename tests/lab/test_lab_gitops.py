"""docs/gitops.md: the chart applied again and again, as Argo CD and Flux do, changes nothing, and what programs add stays."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import rendered_chart
import yaml
from agent_node import wait_ready
from config_map import ConfigMap, wait_value
from own_lab import own_lab

from lab.process import wait_for
from lab.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lab.cluster import Lab

pytestmark = pytest.mark.wide

PAGE = (Path(__file__).parents[2] / "docs/gitops.md").read_text()
VALUES = {"ovs": {"datapathType": "netdev"}, "transportInterface": "eth1"}
"""What a node of a lab needs: this machine's kernel has no OVS."""
MANAGER = "gitops"
SERVER_SIDE = ("--server-side", "--force-conflicts", f"--field-manager={MANAGER}")
WAYS = {"server-side": SERVER_SIDE, "client-side": ()}
ROUNDS = 5
WITH_STATUS = ("APIService", "DaemonSet", "Deployment")
"""Kinds whose resourceVersion grows with their status."""


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with own_lab("gitops", Settings(nodes=2)) as found:
        yield found


@pytest.fixture(scope="module")
def manifest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the tools apply."""
    done = rendered_chart.template(VALUES, "--include-crds")
    assert done.returncode == 0, done.stderr
    path = tmp_path_factory.mktemp("gitops") / "antrea.yaml"
    path.write_text(done.stdout)
    return path


def items(lab: Lab, manifest: Path) -> list[dict[str, Any]]:
    """The objects of the manifest as they are now."""
    shown = lab.api.kubectl("get", "-f", str(manifest), "-o", "json", "--show-managed-fields")
    return list(json.loads(shown)["items"])


def versions(lab: Lab, manifest: Path) -> dict[str, object]:
    """Generations and versions of the objects, and the Pods with their restarts."""
    seen: dict[str, object] = {}
    for item in items(lab, manifest):
        meta = item["metadata"]
        version = "" if item["kind"] in WITH_STATUS else meta["resourceVersion"]
        seen[f"{item['kind']}/{meta['name']}"] = (meta.get("generation"), version)
    pods = json.loads(lab.api.kubectl("-n", "kube-system", "get", "pods", "-l", "app=antrea", "-o", "json"))
    for pod in pods["items"]:
        restarts = [status["restartCount"] for status in pod["status"]["containerStatuses"]]
        seen[pod["metadata"]["name"]] = (pod["metadata"]["uid"], restarts)
    return seen


def has_difference(lab: Lab, manifest: Path, way: Sequence[str]) -> bool:
    """Whether the tools would call the cluster out of sync."""
    command = lab.api.command(["diff", *way, "-f", str(manifest)])
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode in (0, 1), done.stderr
    return done.returncode == 1


def settle(lab: Lab) -> None:
    """Wait until all programs are ready and the controller has published its authority."""
    for program in ("daemonset/antrea-agent", "deployment/antrea-controller"):
        lab.api.kubectl("-n", "kube-system", "rollout", "status", program, "--timeout=120s", seconds=150)
    for machine in lab.topology.nodes:
        wait_ready(lab, machine.name)


@pytest.mark.parametrize("way", WAYS)
def test_a_manifest_that_is_applied_again_and_again_changes_nothing(
    lab: Lab, manifest: Path, way: str
) -> None:
    words = ("apply", *WAYS[way], "-f", str(manifest))
    lab.api.kubectl(*words)
    settle(lab)
    before = versions(lab, manifest)
    for _ in range(ROUNDS):
        lab.api.kubectl(*words)
        assert not has_difference(lab, manifest, WAYS[way])
    settle(lab)
    assert versions(lab, manifest) == before


def paths(fields: dict[str, Any], prefix: str = "") -> Iterator[str]:
    """Paths of managed fields; an element of a list is `[]`."""
    for key, value in fields.items():
        if key == ".":
            continue
        name = (
            f"{prefix}[]" if key.startswith(("k:", "v:")) else f"{prefix}.{key.removeprefix('f:')}".strip(".")
        )
        if value and set(value) != {"."}:
            yield from paths(value, name)
        else:
            yield name


def test_programs_add_the_fields_that_the_page_lists(lab: Lab, manifest: Path) -> None:
    """By the field manager of the controller; others are kubectl, the tool, and Kubernetes itself."""
    added = {
        (item["kind"], path)
        for item in items(lab, manifest)
        for entry in item["metadata"]["managedFields"]
        if entry["manager"] == "antrea"
        for path in paths(entry["fieldsV1"])
    }
    listed = re.findall(r"^\| (\w+) \| `([\w.\[\]]+)` \| antrea-controller", PAGE, re.MULTILINE)
    assert added == set(listed)


def test_a_new_authority_stays_when_the_manifest_is_applied_again(lab: Lab, manifest: Path) -> None:
    def bundles() -> set[str]:
        shown = lab.api.kubectl("get", "apiservices", "-l", "app=antrea", "-o", "json")
        return {item["spec"].get("caBundle", "") for item in json.loads(shown)["items"]}

    before = bundles()
    assert len(before) == 1
    lab.api.kubectl("-n", "kube-system", "delete", "secret", "antrea-controller-tls")
    lab.api.kubectl("-n", "kube-system", "rollout", "restart", "deployment/antrea-controller")
    wait_for("another authority", lambda: len(bundles()) == 1 and bundles() != before, seconds=120)
    published = bundles()
    for way in WAYS.values():
        lab.api.kubectl("apply", *way, "-f", str(manifest))
        assert not has_difference(lab, manifest, way)
    assert bundles() == published


def test_an_edit_of_the_configmap_is_a_difference_and_is_undone(lab: Lab, manifest: Path) -> None:
    config = ConfigMap(lab)
    config.change(defaultMTU=1300)
    wait_value(lab, "defaultMTU", 1300)
    assert all(has_difference(lab, manifest, way) for way in WAYS.values())
    lab.api.kubectl("apply", *SERVER_SIDE, "-f", str(manifest))
    wait_value(lab, "defaultMTU", 0)
    assert yaml.safe_load(ConfigMap(lab).text)["defaultMTU"] == 0
    assert not has_difference(lab, manifest, SERVER_SIDE)
