"""Healthy labs of different configurations, in which the doctor finds nothing: a finding would be a false one."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
from agent_node import wait_ready
from config_map import ConfigMap, wait_value
from doctor_fault import Faulty
from own_lab import own_lab
from rendered_chart import CHART, helm

from lab import cluster
from lab import control_plane as plane
from lab.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab.cluster import Lab

pytestmark = [pytest.mark.wide, pytest.mark.timeout(900)]

CHANGED: tuple[dict[str, Any], ...] = (
    {"featureGates": {"Egress": False}},
    {"featureGates": {"AntreaProxy": False}},
    {"featureGates": {"NodePortLocal": True}, "nodePortLocal": {"enable": True}},
    {"featureGates": {"PacketCapture": True}},
    {"featureGates": {"NodeLatencyMonitor": True}},
    {"featureGates": {"ServiceExternalIP": False}},
    {"featureGates": {"TrafficControl": True}},
    {"featureGates": {"FlowExporter": True}},
    {"featureGates": {"AntreaPolicy": False}},
    {"featureGates": {"NodeNetworkPolicy": True, "EgressTrafficShaping": True}},
    {"featureGates": {"LoadBalancerModeDSR": True}, "antreaProxy": {"defaultLoadBalancerMode": "dsr"}},
    {"featureGates": {"SupportBundleCollection": True, "Traceflow": False}},
    {"featureGates": {"NetworkPolicyStats": False, "EgressSeparateSubnet": False}},
    {"antreaProxy": {"proxyLoadBalancerIPs": False, "skipServices": ["kube-system/kube-dns"]}},
    {"policyFailOpen": True, "networkPolicyStatsInterval": "2s"},
    {"defaultMTU": 1400},
)
"""Values of antrea-agent.conf that take effect without a restart."""
STARTED = {
    "dual-proxy-all": Settings(nodes=2, family="dual", kube_proxy="none", proxy_all=True),
    "ipv6": Settings(nodes=2, family="ipv6"),
    "no-encap-nftables": Settings(nodes=2, kube_proxy="nftables", agent={"trafficEncapMode": "noEncap"}),
}
"""Labs for what does not change in a running one."""
RELEASE = ("antrea", "--namespace", "kube-system")
VALUES = ("--set", "ovs.datapathType=netdev,transportInterface=eth1")
"""What a node of a lab needs: this machine's kernel has no OVS."""


@pytest.fixture(scope="module")
def healthy() -> Iterator[Lab]:
    with own_lab("healthy", Settings(nodes=2)) as found:
        yield found


@pytest.mark.parametrize("values", CHANGED, ids=str)
def test_nothing_is_found_after_a_change_of_the_configuration(healthy: Lab, values: dict[str, Any]) -> None:
    faulty = Faulty(healthy)
    try:
        faulty.configure(**values)
        faulty.wait_effect(values)
        assert faulty.findings() == []
    finally:
        faulty.restore()
        faulty.wait_effect({})


@pytest.mark.parametrize("name", STARTED)
def test_nothing_is_found_in_a_new_lab(name: str) -> None:
    with own_lab(f"h-{name[:4]}", STARTED[name]) as found:
        faulty = Faulty(found)
        faulty.wait_effect({})
        assert faulty.findings() == []


def upgrade(lab: Lab, *words: str) -> None:
    """Upgrade the release, and wait until all programs are those of its values."""
    command = [str(helm()), "upgrade", "--install", "--take-ownership", *RELEASE, str(CHART), *VALUES, *words]
    inside = cluster.enter(lab, "control", [*command, "--kubeconfig", str(plane.kubeconfig(lab.record))])
    environment = {**os.environ, "HELM_DRIVER": "secret"}
    subprocess.run(inside, check=True, timeout=300, env=environment, stdout=subprocess.DEVNULL)
    for program in ("daemonset/antrea-agent", "deployment/antrea-controller"):
        lab.api.kubectl("-n", "kube-system", "rollout", "status", program, "--timeout=180s", seconds=200)
    for machine in lab.topology.nodes:
        wait_ready(lab, machine.name)


def test_nothing_is_found_in_a_lab_of_a_release_but_an_edit_of_its_configuration() -> None:
    """The release of Helm, then with two controllers; the repairs of its configuration are Helm's."""
    with own_lab("h-helm", Settings(nodes=2)) as lab:
        faulty = Faulty(lab)
        upgrade(lab)
        faulty.wait_effect({})
        assert faulty.findings() == []
        upgrade(lab, "--set", "controller.replicas=2,agent.antreaAgent.extraEnv.A=b")
        faulty.wait_effect({})
        assert faulty.findings() == []
        ConfigMap(lab).change(defaultMTU=1400)
        wait_value(lab, "defaultMTU", 1400)
        (row,) = faulty.wait(bool, "the edit is not found")
        assert (row["check"], row["severity"]) == ("release", "warning")
        assert "defaultMTU (1400, rendered 0)" in row["finding"]
        upgrade(lab, "--set", "defaultMTU=1400,controller.replicas=2,agent.antreaAgent.extraEnv.A=b")
        assert faulty.findings() == []
