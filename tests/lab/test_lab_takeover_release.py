"""docs/take-over.md beside a Helm release: `antctl` does not edit what Helm applies unless it is told to, and what is set in the release stays."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING

import pytest
import workstation
import yaml
from config_map import ConfigMap, wait_value
from helm_release import CHART, bring_images, bring_release, helm, settle
from kube_proxy_daemon_set import run_kube_proxy
from own_lab import own_lab

from image_build import oci
from lab import control_plane, image_recipe
from lab.process import wait_for
from lab.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lab.cluster import Lab

pytestmark = [pytest.mark.wide, pytest.mark.timeout(1800)]

TAKEOVER = ("kube-proxy", "takeover")
OWNED = "ConfigMap kube-system/antrea-config is applied by Helm release antrea, which would undo the change"
WARNED = "antrea-agent.conf of ConfigMap antrea-config has other values than Helm release antrea"


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """One Node with kube-proxy, and Antrea as a Helm release."""
    archive = tmp_path_factory.mktemp("image") / "image.tar"
    oci.save([image_recipe.product(print)], archive)
    with own_lab("takerel", Settings(nodes=1, cni="none", kube_proxy="none")) as found:
        bring_images(found, archive)
        run_kube_proxy(found, "nftables")
        bring_release(found, "install")
        settle(found)
        yield found


def server(lab: Lab) -> str:
    return control_plane.server_url(lab.topology)


def has_kube_proxy(lab: Lab) -> bool:
    return bool(lab.api.kubectl("-n", "kube-system", "get", "pods", "-l", "k8s-app=kube-proxy", "-o", "name"))


def affinity(lab: Lab) -> str:
    words = ("get", "daemonset", "kube-proxy", "-o", "jsonpath={.spec.template.spec.affinity}")
    return lab.api.kubectl("-n", "kube-system", *words)


def upgrade(lab: Lab, *values: str) -> None:
    """The command that antctl and the page name."""
    helm(lab, "upgrade", "antrea", str(CHART), "--reuse-values", *values)


def kept(lab: Lab, *, proxy_all: bool) -> bool:
    """Whether the release renders this value."""
    shown = yaml.safe_load(helm(lab, "get", "values", "antrea", "--all", "--output", "yaml"))
    return bool(shown["antreaProxy"]["proxyAll"] == proxy_all)


def doctor_warns(lab: Lab) -> bool:
    """Whether the doctor finds that the next upgrade undoes the live configuration."""
    command = workstation.command(lab, "doctor", "-o", "json")
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=300, env=workstation.environment()
    )
    rows = [row["finding"] for row in json.loads(done.stdout) if row["check"] == "release"]
    return any(text.startswith(WARNED) and "antreaProxy.proxyAll" in text for text in rows)


def test_a_release_is_changed_first_and_the_take_over_stays(lab: Lab, tmp_path: Path) -> None:
    before = ConfigMap(lab).text
    refused = workstation.run(lab, *TAKEOVER, "--apply", "--api-server", server(lab), code=1)
    assert "nothing was changed" in refused.stderr
    assert OWNED in refused.stderr
    assert "--force-conflicts" in refused.stderr
    assert (ConfigMap(lab).text, affinity(lab), has_kube_proxy(lab)) == (before, "", True)

    file = tmp_path / "take-over.yaml"
    plan = (*TAKEOVER, "--plan", "--api-server", server(lab), "--values", str(file))
    assert OWNED in workstation.run(lab, *plan, code=1).stdout
    assert yaml.safe_load(file.read_text()) == {
        "antreaProxy": {"proxyAll": True},
        "kubeAPIServerOverride": server(lab),
    }
    upgrade(lab, "-f", str(file))
    settle(lab)
    wait_value(lab, "antreaProxy.proxyAll", True)
    applied = workstation.run(lab, *TAKEOVER, "--apply", seconds=500).stdout
    assert "Node node-1: kube-proxy and its rules are gone, Services are served." in applied
    upgrade(lab)
    settle(lab)
    assert (has_kube_proxy(lab), kept(lab, proxy_all=True)) == (False, True)
    wait_value(lab, "antreaProxy.proxyAll", True)
    assert " served" in workstation.run(lab, *TAKEOVER, "--verify").stdout

    back = tmp_path / "back.yaml"
    workstation.run(lab, *TAKEOVER, "--rollback", "--values", str(back), seconds=500)
    # what was set before the take-over was applied is what the rollback gives back
    assert yaml.safe_load(back.read_text())["antreaProxy"] == {"proxyAll": True}
    assert has_kube_proxy(lab)


def test_a_forced_edit_is_named_by_the_doctor_until_the_release_has_its_values(
    lab: Lab, tmp_path: Path
) -> None:
    bring_release(lab, "upgrade")
    settle(lab)
    wait_value(lab, "antreaProxy.proxyAll", False)
    file = tmp_path / "take-over.yaml"
    words = ("--apply", "--force-conflicts", "--api-server", server(lab), "--values", str(file))
    applied = workstation.run(lab, *TAKEOVER, *words, seconds=500).stdout
    assert "ConfigMap kube-system/antrea-config is changed." in applied
    assert "Values of the chart, without which an upgrade of a Helm release undoes this" in applied
    assert (has_kube_proxy(lab), kept(lab, proxy_all=False)) == (False, True)
    wait_for("the doctor's warning", lambda: doctor_warns(lab), seconds=60)
    upgrade(lab, "-f", str(file))
    settle(lab)
    wait_value(lab, "antreaProxy.proxyAll", True)
    assert not doctor_warns(lab)
    assert " served" in workstation.run(lab, *TAKEOVER, "--verify").stdout
