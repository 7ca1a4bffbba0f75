"""SupportBundleCollection in a cluster: bundles of both Nodes at an SFTP server outside, with rights that a user grants."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import uuid
from typing import TYPE_CHECKING, Any

import outside_host
import pytest
import sftp_server
import traffic
import workstation
import yaml
from admission_object import crd
from agent_node import wait_ready
from config_map import ConfigMap, wait_value

from antrea.apis.annotation import ACCEPT_ANY_HOST_KEY
from antrea.errors import AntreaError
from lab import namespace
from lab.process import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lab.cluster import Lab

GATE = "SupportBundleCollection"
COLLECTIONS = "/apis/crd.antrea.io/v1alpha1/supportbundlecollections"
NODES = ["node-1", "node-2"]
PORT = 2022
"""Of the server that comes up later."""


@pytest.fixture
def gate(lab: Lab) -> Iterator[None]:
    files = [ConfigMap(lab, f"antrea-{program}.conf") for program in ("agent", "controller")]
    try:
        for one in files:
            gates = yaml.safe_load(one.text).get("featureGates") or {}
            one.change(featureGates={**gates, GATE: True})
        wait_value(lab, "featureGates", {GATE: True})
        yield
    finally:
        for one in files:
            one.write(one.text)
    # programs that build themselves anew answer nobody for a moment, which the next test would meet
    wait_for("the gate to be off everywhere", lambda: off(lab), seconds=60)
    for name in NODES:
        wait_ready(lab, name)


def off(lab: Lab) -> bool:
    """In the agents and in the controller."""
    asked = subprocess.run(
        workstation.command(lab, "get", "featuregates"),
        capture_output=True, text=True, check=False, timeout=60, env=workstation.environment(),
    )  # fmt: skip
    rows = [row.split() for row in asked.stdout.splitlines()]
    return [row[1] for row in rows if row and row[0] == GATE] == ["Disabled", "Disabled"]


@pytest.fixture
def space(lab: Lab, gate: None) -> Iterator[str]:
    """A Namespace with the Secret, and the right of antrea-controller to read it, as the page has it."""
    name = f"bundles-{uuid.uuid4().hex[:8]}"
    lab.api.kubectl("create", "namespace", name)
    words = [
        f"--from-literal={key}={value}"
        for key, value in (("username", sftp_server.USER), ("password", sftp_server.PASSWORD))
    ]
    role, account = "read-file-server", "kube-system:antrea-controller"
    limits = ("--verb=get", "--resource=secrets", "--resource-name=file-server")
    try:
        for made in (
            ("secret", "generic", "file-server", *words),
            ("role", role, *limits),
            ("rolebinding", role, f"--role={role}", f"--serviceaccount={account}"),
        ):
            lab.api.kubectl("-n", name, "create", *made)
        yield name
    finally:
        lab.api.kubectl("delete", "supportbundlecollections", "--all", "--wait=false")
        lab.api.kubectl("delete", "namespace", name, "--wait=false")


def conditions(lab: Lab, name: str) -> list[tuple[str, str, str, str]]:
    status = lab.api.get(f"{COLLECTIONS}/{name}").get("status", {})
    return [
        (one["type"], one["status"], one.get("reason", ""), one.get("message", ""))
        for one in status.get("conditions", ())
    ]


def collect(lab: Lab, space: str, name: str, url: str, key: str = "") -> None:
    """As soon as the controller has the gate."""
    spec: dict[str, Any] = {
        "nodes": {},
        "fileServer": {"url": url, **({"hostPublicKey": key} if key else {})},
        "authentication": {
            "authType": "BasicAuthentication",
            "authSecret": {"name": "file-server", "namespace": space},
        },
    }

    def accepted() -> bool:
        try:
            found = crd(GATE, name, spec, "v1alpha1")
            if not key:
                found["metadata"]["annotations"] = {ACCEPT_ANY_HOST_KEY: "true"}
            lab.api.apply(json.dumps(found))
        except AntreaError:
            return False
        return True

    wait_for(f"{name} is accepted", accepted, seconds=90)


@contextlib.contextmanager
def serving(lab: Lab, folder: Path, port: int = 0) -> Iterator[list[str]]:
    """An SFTP server outside the cluster: its port and its key."""
    argv = [sys.executable, sftp_server.__file__, str(folder), outside_host.address(lab, 4), str(port)]
    with traffic.running("outside", namespace.inside(namespace.path(lab.record, "outside"), argv)) as server:
        yield server.line().split()


def complete(lab: Lab, name: str, folder: Path) -> None:
    """With a bundle of each Node, and no failure."""
    lab.api.kubectl("wait", "--for=condition=Completed", f"sbc/{name}", "--timeout=180s")
    assert conditions(lab, name) == [
        ("Started", "True", "", ""),
        ("BundleCollected", "True", "", ""),
        ("CollectionFailure", "False", "", ""),
        ("Completed", "True", "", ""),
    ]
    files = sorted(path.name for path in (folder / "upload").iterdir())
    assert files == [f"{node}_{name}.tar.gz" for node in NODES]


def test_bundles_of_both_nodes_arrive(lab: Lab, space: str, tmp_path: Path) -> None:
    with serving(lab, tmp_path) as (port, key):
        collect(lab, space, "all", f"sftp://{outside_host.address(lab, 4)}:{port}/upload", key)
        complete(lab, "all", tmp_path)


@pytest.mark.wide
def test_an_agent_and_the_controller_that_restart_meanwhile_go_on(
    lab: Lab, space: str, tmp_path: Path
) -> None:
    """The file server comes up after them: until then the agents' tries fail."""
    collect(lab, space, "later", f"{outside_host.address(lab, 4)}:{PORT}/upload")
    begun = ("Started", "True", "", "")
    wait_for("it has begun", lambda: begun in conditions(lab, "later"), seconds=90)
    of_node = "--field-selector=spec.nodeName=node-1"
    for component, *more in (("antrea-agent", of_node), ("antrea-controller",)):
        words = ("-n", "kube-system", "delete", "pod", "-l", f"component={component}", "--wait=false")
        lab.api.kubectl(*words, "--grace-period=1", *more)
    with serving(lab, tmp_path, PORT):
        complete(lab, "later", tmp_path)
    for name in NODES:
        wait_ready(lab, name)
