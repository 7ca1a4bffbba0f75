"""SupportBundleCollection in a cluster: bundles of both Nodes at an SFTP server outside, with rights that a user grants."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import outside_host
import pytest
import sftp_server
import traffic
import yaml
from admission_object import crd
from config_map import ConfigMap, wait_value

from antrea.errors import AntreaError
from antrea.lab import namespace
from antrea.lab.process import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from antrea.lab.cluster import Lab

GATE = "SupportBundleCollection"
COLLECTIONS = "/apis/crd.antrea.io/v1alpha1/supportbundlecollections"
SPACE = "bundles"
NODES = ["node-1", "node-2"]


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


@pytest.fixture
def space(lab: Lab) -> Iterator[None]:
    """A Namespace with the Secret, and the right of antrea-controller to read it, as the page has it."""
    lab.api.kubectl("create", "namespace", SPACE)
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
            lab.api.kubectl("-n", SPACE, "create", *made)
        yield
    finally:
        lab.api.kubectl("delete", "supportbundlecollections", "--all", "--wait=false")
        lab.api.kubectl("delete", "namespace", SPACE, "--wait=false")


def conditions(lab: Lab, name: str) -> list[tuple[str, str, str, str]]:
    status = lab.api.get(f"{COLLECTIONS}/{name}").get("status", {})
    return [
        (one["type"], one["status"], one.get("reason", ""), one.get("message", ""))
        for one in status.get("conditions", ())
    ]


def collect(lab: Lab, name: str, url: str, key: str) -> None:
    """As soon as the controller has the gate."""
    spec: dict[str, Any] = {
        "nodes": {},
        "fileServer": {"url": url, "hostPublicKey": key},
        "authentication": {
            "authType": "BasicAuthentication",
            "authSecret": {"name": "file-server", "namespace": SPACE},
        },
    }

    def accepted() -> bool:
        try:
            lab.api.apply(json.dumps(crd(GATE, name, spec, "v1alpha1")))
        except AntreaError:
            return False
        return True

    wait_for(f"{name} is accepted", accepted, seconds=90)


def test_bundles_of_both_nodes_arrive(lab: Lab, gate: None, space: None, tmp_path: Path) -> None:
    address = outside_host.address(lab, 4)
    argv = [sys.executable, sftp_server.__file__, str(tmp_path), address]
    inside = namespace.inside(namespace.path(lab.record, "outside"), argv)
    with traffic.running("outside", inside) as server:
        port, key = server.line().split()
        collect(lab, "all", f"sftp://{address}:{port}/upload", key)
        lab.api.kubectl("wait", "--for=condition=Completed", "sbc/all", "--timeout=120s")
    assert conditions(lab, "all") == [
        ("Started", "True", "", ""),
        ("BundleCollected", "True", "", ""),
        ("CollectionFailure", "False", "", ""),
        ("Completed", "True", "", ""),
    ]
    files = sorted(path.name for path in (tmp_path / "upload").iterdir())
    assert files == [f"{node}_all.tar.gz" for node in NODES]
