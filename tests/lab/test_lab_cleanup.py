"""Antrea is uninstalled in a lab, and `antctl cleanup` removes what it leaves while the Nodes keep answering.

A failure shows what was left, by place.
"""

from __future__ import annotations

import json
import re
import subprocess
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
import workstation
import yaml
from own_lab import own_lab

from lab import antrea, cluster, node
from lab.process import wait_for
from lab.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab.cluster import Lab

NODES = ("node-1", "node-2")
KEPT_BY_AN_UNINSTALLATION = ("CustomResourceDefinition", "APIService", "ValidatingWebhookConfiguration")
"""Kinds of the manifest that are not deleted here: what a person may forget."""
LOOK = r"""
ip -o link | sed -n 's/^[0-9]*: \([^:@]*\).*/device \1/p' | grep -vxE 'device (lo|eth0|eth1)'
nft list tables | grep antrea
ip rule | grep -vE 'lookup (local|main|default)'
ip -6 rule | grep -vE 'lookup (local|main|default)'
ip route show table all | grep -E 'antrea|br-phy|proto (0x)?(6[4-9]|7[0-9]|4[0-9a-f])( |$)'
ls -d /etc/cni/net.d/*antrea* /opt/cni/bin/antrea /var/run/antrea /var/lib/antrea 2>/dev/null
ip -o -4 addr show dev eth1 | grep -q inet || echo 'eth1 has no address'
true
"""
CLUSTER_LEFT = (
    "/api/v1/namespaces/kube-system/secrets",
    "/api/v1/namespaces/kube-system/configmaps",
    "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases",
    "/apis/crd.antrea.io/v1beta1/antreaagentinfos",
    "/apis/crd.antrea.io/v1beta1/antreacontrollerinfos",
    "/apis/apiregistration.k8s.io/v1/apiservices",
    "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations",
    "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations",
)


@pytest.fixture(scope="module")
def own() -> Iterator[Lab]:
    with own_lab("cleanup", Settings(nodes=2)) as lab:
        yield lab


def left(lab: Lab, names: tuple[str, ...] = NODES) -> dict[str, list[str]]:
    """What is left of Antrea, by Node and kind of object; empty: nothing."""
    found = {name: node.execute(lab.record, name, "sh", "-c", LOOK).splitlines() for name in names}
    for path in CLUSTER_LEFT:
        items = [item["metadata"]["name"] for item in lab.api.items(path)]
        # kube-apiserver itself has an APIService for each version of the CRDs, which stay
        found[path] = [name for name in items if re.search(r"(?<!crd\.)antrea|^node-\d$", name)]
    annotated = lab.api.items("/api/v1/nodes")
    found["annotations"] = [
        key
        for item in annotated
        for key in item["metadata"].get("annotations", {})
        if key.partition("/")[0].endswith("antrea.io")
    ]
    return {place: lines for place, lines in found.items() if lines}


def install(lab: Lab) -> None:
    """Install Antrea again; Pods of before, whose interfaces are gone, have to be created anew."""
    antrea.install(lab)
    lab.api.kubectl("-n", "kube-system", "delete", "pod", "-l", "k8s-app=kube-dns", "--wait=false")
    wait_for("Ready nodes", lambda: not cluster.not_ready(lab, "/api/v1/nodes"), seconds=120)
    wait_for("Ready Pods", lambda: not cluster.not_ready(lab, "/api/v1/pods"), seconds=120)


def uninstall(lab: Lab) -> None:
    """Delete what the manifest has, except what may be forgotten, and wait for nothing."""
    manifest = [item for item in yaml.safe_load_all(antrea.MANIFEST.read_text()) if item]
    objects = [item for item in manifest if item["kind"] not in KEPT_BY_AN_UNINSTALLATION]
    lab.api.kubectl(
        "delete", "--ignore-not-found", "--wait=false", "-f", "-", stdin=yaml.safe_dump_all(objects)
    )


def ping(lab: Lab, name: str) -> subprocess.Popen[str]:
    """Every 50 ms from the control plane to the address that kubelet has."""
    address = lab.topology.machine(name).address("eth0", 4)
    words = cluster.enter(lab, "control", ["ping", "-n", "-i", "0.05", address])
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def lost(process: subprocess.Popen[str]) -> int:
    """End it, and count the requests that were not answered."""
    process.send_signal(2)
    output, _ = process.communicate(timeout=30)
    numbers = re.search(r"(\d+) packets transmitted, (\d+) received", output)
    assert numbers, output
    assert int(numbers[2]) > 0, output
    # the last one may not have been answered yet
    return max(0, int(numbers[1]) - int(numbers[2]) - 1)


def cleanup(lab: Lab, *words: str, code: int = 0) -> list[dict[str, Any]]:
    """Run the command; its rows."""
    done = workstation.run(lab, "cleanup", "-o", "json", *words, code=code)
    rows: list[dict[str, Any]] = json.loads(done.stdout)
    return rows


def test_cleanup_refuses_while_antrea_is_installed_then_leaves_nothing(own: Lab) -> None:
    refused = workstation.run(own, "cleanup", "--all", code=1)
    assert (
        "nothing was removed: Antrea is installed: DaemonSet kube-system/antrea-agent exists."
        in refused.stderr
    )
    there = left(own)
    assert {*NODES, "annotations", *CLUSTER_LEFT[:2]} <= set(there), there
    pings = [ping(own, name) for name in NODES]
    try:
        with ThreadPoolExecutor(1) as pool:
            cleaned = pool.submit(cleanup, own, "--all", "--wait-for-uninstall")
            uninstall(own)
            rows = cleaned.result()
    finally:
        unanswered = [lost(process) for process in pings]
    assert [(row["name"], row["error"], row["kept"]) for row in rows] == [
        (name, "", []) for name in (*NODES, "(cluster)")
    ], rows
    assert left(own) == {}, rows
    assert unanswered == [0, 0]
    for name in NODES:
        card = own.topology.machine(name).address("eth1", 4)
        done = subprocess.run(
            cluster.enter(own, "gateway", ["ping", "-n", "-c1", "-W2", card]), check=False, timeout=30
        )
        assert done.returncode == 0, f"{name} does not answer at {card}, the address of its transport card"
    assert own.api.items("/apis/apiextensions.k8s.io/v1/customresourcedefinitions"), (
        "CRDs went without a flag"
    )


@pytest.mark.wide
def test_a_hung_node_costs_its_deadline_is_cleaned_later_and_antrea_can_be_installed_again(own: Lab) -> None:
    install(own)
    uninstall(own)
    agents = "/api/v1/namespaces/kube-system/pods?labelSelector=component%3Dantrea-agent"
    wait_for("the end of agents", lambda: not own.api.get(agents)["items"], seconds=60)
    node.freeze(own.record, "node-2")
    try:
        rows = cleanup(own, "--all", "--crds", "--node-timeout", "15s", code=1)
    finally:
        node.thaw(own.record, "node-2")
    errors = {row["name"]: row["error"] for row in rows}
    assert errors.pop("node-2").startswith("not done within 15 s: "), rows
    assert set(errors.values()) == {""}, rows
    assert set(left(own)) == {"node-2"}
    assert [row["error"] for row in cleanup(own, "--node", "node-2")] == [""]
    assert left(own) == {}
    definitions = own.api.items("/apis/apiextensions.k8s.io/v1/customresourcedefinitions")
    assert [
        item["metadata"]["name"] for item in definitions if item["spec"]["group"] == "crd.antrea.io"
    ] == []
    install(own)
