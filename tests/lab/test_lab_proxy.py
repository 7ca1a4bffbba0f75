"""AntreaProxy in a cluster with kube-proxy: Pods reach ClusterIPs through OVS, and each takes over from the other."""

from __future__ import annotations

import subprocess
from ipaddress import ip_address
from typing import TYPE_CHECKING

import pytest
from agent_node import antctl, pod_namespace
from config_map import ConfigMap, wait_value
from conversation import Conversation
from quiet_pod import quiet_pods

from lab.process import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab.cluster import Lab

SERVICES = """
apiVersion: v1
kind: Service
metadata: {name: proxied}
spec: {selector: {proxied: "yes"}, ports: [{port: 80, targetPort: 8080}]}
---
apiVersion: v1
kind: Service
metadata: {name: empty}
spec: {selector: {proxied: nobody}, ports: [{port: 80, targetPort: 8080}]}
"""
ENABLE = "antreaProxy.enable"


@pytest.fixture
def config(lab: Lab) -> Iterator[ConfigMap]:
    mine = ConfigMap(lab)
    try:
        yield mine
    finally:
        mine.write(mine.text)
        wait_value(lab, ENABLE, True)


@pytest.fixture
def served(lab: Lab) -> Iterator[dict[str, str]]:
    """A client on node-1, servers on node-1 and node-2."""
    with (
        quiet_pods(lab, {"asks": "node-1"}) as clients,
        quiet_pods(lab, {"serves-1": "node-1", "serves-2": "node-2"}, "netexec, --http-port=8080") as servers,
    ):
        lab.api.kubectl("label", "pod", "serves-1", "serves-2", "proxied=yes")
        lab.api.apply(SERVICES)
        yield clients | servers
        lab.api.kubectl("delete", "service", "proxied", "empty", "--wait=false")


def groups(lab: Lab, name: str) -> str:
    """What the switch of a node chooses Endpoints from."""
    return antctl(lab, name, "get", "ovsflows", "-G", "all")


def hexadecimal(ip: str) -> str:
    """An address as the actions of a bucket have it."""
    return f"{int(ip_address(ip)):#x}->reg3"


def fetch(inside: list[str], ip: str) -> str:
    run = subprocess.run(
        [*inside, "curl", "-sS", "--max-time", "3", f"http://{ip}/hostname"],
        capture_output=True,
        text=True,
        check=False,
    )
    return run.stdout or run.stderr


def test_services_move_to_kube_proxy_and_back_and_connections_that_stand_go_on(
    lab: Lab, config: ConfigMap, served: dict[str, str]
) -> None:
    if lab.settings.kube_proxy == "none":
        pytest.skip("no kube-proxy takes over")
    inside = pod_namespace(lab, "node-1", served["asks"])
    ip, empty = (
        lab.api.kubectl("get", "service", name, "-o", "jsonpath={.spec.clusterIP}")
        for name in ("proxied", "empty")
    )
    both = {"serves-1", "serves-2"}
    wait_for("both Endpoints to serve", lambda: {fetch(inside, ip) for _ in range(32)} == both, seconds=30)
    assert hexadecimal(served["serves-2"]) in groups(lab, "node-1")
    assert fetch(inside, empty).startswith("curl: (7)")  # at once, not after its 3 s
    with Conversation(inside, ip) as of_antrea_proxy:
        first = of_antrea_proxy.ask()
        config.change(antreaProxy={"enable": False})
        wait_value(lab, ENABLE, False)
        assert of_antrea_proxy.ask() == first
        assert hexadecimal(served["serves-2"]) not in groups(lab, "node-1")
        wait_for("kube-proxy to serve", lambda: "serves-" in fetch(inside, ip), seconds=30)
        with Conversation(inside, ip) as of_kube_proxy:
            second = of_kube_proxy.ask()
            config.write(config.text)
            wait_value(lab, ENABLE, True)
            assert of_kube_proxy.ask() == second
        assert of_antrea_proxy.ask() == first
    assert fetch(inside, ip) in both
