"""The same cluster with IPv6 alone and with both families, with nftables in kube-proxy, and without kube-proxy."""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING, Any

import msgspec
import outside_host
import pytest
from own_lab import own_lab

from antrea.errors import Unavailable
from lab import cluster, demo, node
from lab.cluster import Lab
from lab.process import wait_for
from lab.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator

DUAL = Settings(nodes=2, family="dual", kube_proxy="nftables")
IPV6 = Settings(nodes=2, family="ipv6", kube_proxy="iptables")
ALONE = Settings(nodes=1, kube_proxy="none")
POD_ADDRESSES = {"ipv6": ["fd00:10:244:"], "dual": ["10.244.", "fd00:10:244:"]}


class Shown(msgspec.Struct, frozen=True):
    """A lab, and what it said: while it came up, and as `antrea-lab demo`, which raises unless each ping and fetch succeeds."""

    lab: Lab
    progress: list[str]
    demo: list[str]


@contextlib.contextmanager
def showing(settings: Settings) -> Iterator[Shown]:
    progress: list[str] = []
    said: list[str] = []
    with own_lab(f"{settings.family}-{settings.kube_proxy}-", settings, progress.append) as lab:
        demo.show(lab, said.append)
        yield Shown(lab, progress, said)


@pytest.fixture(
    scope="module", params=[DUAL, pytest.param(IPV6, marks=pytest.mark.wide)], ids=["dual", "ipv6"]
)
def shown(request: pytest.FixtureRequest) -> Iterator[Shown]:
    with showing(request.param) as lab:
        yield lab


def test_pods_reach_each_other_by_every_address_and_by_name(shown: Shown) -> None:
    said = shown.demo
    pings = [line.rsplit(" ", 1)[1] for line in said if line.startswith("\n$") and " ping " in line]
    prefixes = POD_ADDRESSES[shown.lab.settings.family]
    assert [p.startswith(prefix) for p, prefix in zip(pings, prefixes, strict=True)] == [True] * len(pings)
    assert sum("3 received, 0% packet loss" in line for line in said) == len(pings)
    assert said.count("server") == len(pings) + 1


def test_every_node_reaches_a_pod_by_every_address(shown: Shown) -> None:
    pod: dict[str, Any] = json.loads(shown.lab.api.kubectl("get", "pod", "server", "-o", "json"))
    urls = [
        f"http://[{a['ip']}]:8080" if ":" in a["ip"] else f"http://{a['ip']}:8080"
        for a in pod["status"]["podIPs"]
    ]
    machines = [machine.name for machine in shown.lab.topology.nodes]
    answers = [
        node.execute(shown.lab.record, where, "curl", "-s", "-m", "5", f"{url}/hostname")
        for where in machines
        for url in urls
    ]
    assert answers == ["server"] * len(machines) * len(shown.lab.topology.versions)


def test_a_pod_leaves_the_cluster_with_its_nodes_address_in_every_family(shown: Shown) -> None:
    lab = shown.lab
    seen = {version: outside_host.source_of(lab, "client", version) for version in lab.topology.versions}
    assert seen == {version: lab.topology.machine("node-1").address("eth0", version) for version in seen}


CLOSED = """
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: closed}
spec: {podSelector: {matchLabels: {app: server}}, policyTypes: [Ingress]}
"""


def test_a_policy_holds_for_every_address_of_a_pod(shown: Shown) -> None:
    lab = shown.lab
    kubectl = lab.api.kubectl
    found = json.loads(kubectl("get", "pod", "server", "-o", "json"))["status"]["podIPs"]
    places = [f"[{a['ip']}]:8080" if ":" in a["ip"] else f"{a['ip']}:8080" for a in found]

    def closed() -> list[bool]:
        return [_closed(lab, place) for place in places]

    wait_for("an open way", lambda: not any(closed()), seconds=60)
    lab.api.apply(CLOSED)
    try:
        wait_for("the policy", lambda: all(closed()), seconds=60, step=0.05)
    finally:
        kubectl("delete", "networkpolicy", "closed")
    wait_for("its end", lambda: not any(closed()), seconds=60, step=0.05)


def _closed(lab: Lab, place: str) -> bool:
    with contextlib.suppress(Unavailable):
        lab.api.kubectl("exec", "client", "--", "/agnhost", "connect", "--timeout=1s", place)
        return False
    return True


@pytest.mark.wide
def test_without_kube_proxy_a_lab_comes_up_and_only_pods_reach_services() -> None:
    with showing(ALONE) as alone:
        assert cluster.not_ready(alone.lab, "/api/v1/pods") == []
        assert outside_host.source_of(alone.lab, "client", 4) == "172.30.0.11"
    last = alone.progress[-1].split("s  ", 1)[1]
    assert last.startswith(f"{cluster.NO_CLUSTER_IPS}; DNS answers at 10.244.0.")
    assert alone.demo.count("server") == 2
