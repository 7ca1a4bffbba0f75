"""docs/platforms.md: the chart accepts the values of the page, and makes of them what the page says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from rendered_chart import objects

PAGE = (Path(__file__).parents[2] / "docs/platforms.md").read_text()
BLOCKS = re.findall(r"^```yaml\n# ([^\n]+)\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
OTHERS = {"configuration of kind", "patch of the machine configuration"}
"""Blocks that are no values of the chart."""
VALUES: dict[str, dict[str, Any]] = {
    name: yaml.safe_load(text) for name, text in BLOCKS if name not in OTHERS
}


def agent(values: dict[str, Any]) -> dict[str, Any]:
    pod: dict[str, Any] = objects(values)["DaemonSet", "antrea-agent"]["spec"]["template"]["spec"]
    return pod


def test_the_page_has_values_for_each_platform() -> None:
    assert set(VALUES) == {
        "kubeadm without kube-proxy",
        "k3s without kube-proxy",
        "kind on a kernel without openvswitch",
        "Talos without kube-proxy",
    }


@pytest.mark.parametrize("name", [name for name in VALUES if "kube-proxy" in name])
def test_without_kube_proxy_programs_are_told_where_kube_apiserver_is(name: str) -> None:
    conf = objects(VALUES[name])["ConfigMap", "antrea-config"]["data"]
    for file in ("antrea-agent.conf", "antrea-controller.conf"):
        assert yaml.safe_load(conf[file])["kubeAPIServerOverride"] == VALUES[name]["kubeAPIServerOverride"]
    assert yaml.safe_load(conf["antrea-agent.conf"])["antreaProxy"]["proxyAll"] is True


def test_plugins_go_to_the_folder_that_k3s_reads() -> None:
    volumes = {volume["name"]: volume for volume in agent(VALUES["k3s without kube-proxy"])["volumes"]}
    assert volumes["host-cni-bin"]["hostPath"]["path"] == "/var/lib/rancher/k3s/data/cni"


def test_no_container_asks_for_the_right_to_load_modules_on_talos() -> None:
    def added(values: dict[str, Any]) -> list[str]:
        [install] = agent(values)["initContainers"]
        return list(install["securityContext"]["capabilities"]["add"])

    values = VALUES["Talos without kube-proxy"]
    pod = agent(values)
    assert (added({}), added(values)) == (["SYS_MODULE", "DAC_OVERRIDE"], ["DAC_OVERRIDE"])
    assert "SYS_MODULE" not in str(pod)
    assert "host-lib-modules" not in {volume["name"] for volume in pod["volumes"]}


def test_kind_gets_the_datapath_that_needs_no_module() -> None:
    values = VALUES["kind on a kernel without openvswitch"]
    conf = objects(values)["ConfigMap", "antrea-config"]["data"]["antrea-agent.conf"]
    assert yaml.safe_load(conf)["ovsDatapathType"] == "netdev"
