"""Certificates come and go while kubectl asks, and every question is decided."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING

import pytest
from admission_object import decided
from controller_process import ControllerProcess, prepare, withdraw

from antrea.outside.tls import authority
from lab.process import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lab.cluster import Lab

NAMES = ("antrea", "antrea.kube-system.svc")
SECRET = "antrea-controller-tls"


@pytest.fixture
def ours(control_plane: Lab, tmp_path: Path) -> Iterator[ControllerProcess]:
    """One that nobody shares: the next test has its own port."""
    prepare(control_plane)
    running = ControllerProcess(control_plane, tmp_path)
    try:
        running.wait()
        yield running
    finally:
        running.stop()
        withdraw(control_plane)


def ca_published(lab: Lab) -> str:
    """The CA of the ConfigMap, if all who call us hold the same; else nothing."""
    config_map = json.loads(lab.api.kubectl("-n", "kube-system", "get", "cm", "antrea-ca", "-o", "json"))
    pem: str = config_map["data"]["ca.crt"]
    shown = lab.api.kubectl(
        "get", "validatingwebhookconfigurations,mutatingwebhookconfigurations,crd,apiservices",
        "-l", "served-by=antrea-controller", "-o", "json",
    )  # fmt: skip
    bundles = set()
    for item in json.loads(shown)["items"]:
        if item["kind"] == "APIService":
            bundles.add(item["spec"].get("caBundle", ""))
            continue
        hooks = item.get("webhooks") or [item["spec"]["conversion"]["webhook"]]
        bundles |= {hook["clientConfig"].get("caBundle", "") for hook in hooks}
    return pem if bundles == {base64.b64encode(pem.encode()).decode()} else ""


def test_a_deleted_secret_is_made_anew_and_webhooks_go_on(ours: ControllerProcess) -> None:
    api = ours.lab.api
    before = wait_for("the CA everywhere", lambda: ca_published(ours.lab), seconds=60)
    api.kubectl("-n", "kube-system", "delete", "secret", SECRET)

    # from here on every single question must be decided, also while certificates change
    def rotated() -> bool:
        assert decided(ours.lab)
        return (now := ca_published(ours.lab)) not in ("", before) and now.count("BEGIN CERTIFICATE") == 2

    wait_for("a new CA everywhere", rotated, seconds=60, step=0.2)
    made = json.loads(api.kubectl("-n", "kube-system", "get", "secret", SECRET, "-o", "json"))
    assert base64.b64decode(made["data"]["tls.crt"]).decode() == ca_published(ours.lab)
    assert decided(ours.lab)
    assert ours.process.poll() is None


@pytest.mark.wide
def test_a_ca_that_somebody_wrote_over_ours_is_put_right(ours: ControllerProcess) -> None:
    name = "validatingwebhookconfiguration/crdvalidator.antrea.io"
    before = wait_for("the CA everywhere", lambda: ca_published(ours.lab), seconds=60)
    ours.lab.api.kubectl(
        "patch", name, "--type=json",
        "-p", '[{"op": "remove", "path": "/webhooks/0/clientConfig/caBundle"}]',
    )  # fmt: skip
    assert wait_for("the CA everywhere again", lambda: ca_published(ours.lab), seconds=60) == before


def write_files(directory: Path) -> str:
    """What a user provides: certificate, key and CA; returns the CA."""
    pair = authority.make(NAMES, ("127.0.0.1",))
    leaf, mark, ca = pair.certificate_pem.partition("-----END CERTIFICATE-----\n")
    for name, text in (("ca.crt", ca), ("tls.crt", leaf + mark), ("tls.key", pair.key_pem)):
        fresh = directory / f".{name}"
        fresh.write_text(text)
        fresh.replace(directory / name)
    return ca


@pytest.mark.wide
def test_files_of_the_user_are_served_and_followed(control_plane: Lab, tmp_path: Path) -> None:
    prepare(control_plane)
    files = tmp_path / "certificates"
    files.mkdir()
    running = ControllerProcess(control_plane, tmp_path, selfSignedCert=False)
    try:
        first = write_files(files)
        wait_for("our webhooks to decide", lambda: decided(control_plane), seconds=60)
        assert wait_for("its CA everywhere", lambda: ca_published(control_plane), seconds=60) == first
        second = write_files(files)
        wait_for("the new CA everywhere", lambda: ca_published(control_plane) == second, seconds=60)
        wait_for("our webhooks to decide", lambda: decided(control_plane), seconds=60)
        assert running.process.poll() is None
    finally:
        running.stop()
        withdraw(control_plane)
