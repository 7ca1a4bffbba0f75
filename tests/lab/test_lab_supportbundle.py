"""Support bundles of a real cluster: of an agent and the controller in their Pods, of all from a workstation."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from agent_node import antctl, in_agent
from test_lab_antctl import wait_controller

from lab import cluster
from lab import control_plane as plane
from lab.process import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab.cluster import Lab

PLANTED = "planted-by-the-lab-test"
LOG = "/var/log/antrea/antrea-agent.planted"
AGENT = {
    *(
        "agentinfo",
        "address",
        "antrea-agent.conf",
        "bundleinfo",
        "conditions",
        "config",
        "featuregates",
        "iptables",
        "memberlist",
    ),
    *(
        "flows",
        "groups",
        "link",
        "memory",
        "meters",
        "neighbour",
        "nftables",
        "ovs-coverage",
        "ovs-interfaces",
    ),
    *("ovs-port-stats", "ovs-vsctl-show", "ovsports", "podinterfaces", "route", "route-table-all", "route6"),
    *("networkpolicies", "addressgroups", "appliedtogroups", "fqdncache", "serviceexternalips"),
    *("ip6tables", "rule", "rule6", "stacks", "tables"),
}


def contents(path: Path) -> dict[str, str]:
    with tarfile.open(path) as archive:
        return {e.name: archive.extractfile(e).read().decode() for e in archive}  # type: ignore[union-attr]


def remote(lab: Lab, *words: str) -> subprocess.CompletedProcess[str]:
    """antctl where only the kubeconfig tells it of the cluster."""
    command = [
        sys.executable,
        "-P",
        "-m",
        "antrea.antctl.main",
        "-k",
        str(plane.kubeconfig(lab.record)),
        *words,
    ]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("KUBE")}
    return subprocess.run(
        cluster.enter(lab, "control", command),
        capture_output=True, text=True, check=False, timeout=300, env=environment,
    )  # fmt: skip


@pytest.fixture
def planted(lab: Lab) -> Iterator[Lab]:
    """A log of node-1's agent with secrets in it."""
    line = f'I1101 00:00:00.000000 1 a.py:1] "Login" user="anna" password="{PLANTED}"\n'
    script = (
        f"printf '%s\\n' '{line}-----BEGIN PRIVATE KEY-----\n{PLANTED}\n-----END PRIVATE KEY-----' > {LOG}"
    )
    in_agent(lab, "node-1", "sh", "-c", script)
    try:
        yield lab
    finally:
        in_agent(lab, "node-1", "rm", LOG)


def test_bundles_of_a_cluster_have_logs_and_state_and_no_secrets(planted: Lab, tmp_path: Path) -> None:
    lab = planted
    wait_controller(lab)
    done = remote(lab, "supportbundle", "-d", str(tmp_path / "out"))
    assert done.returncode == 0, done.stderr
    happened = ("-n", "kube-system", "get", "events", "--sort-by=.lastTimestamp")
    saved = f"Saved 3 of 3 support bundles under {tmp_path}/out\n"
    assert done.stdout == saved, f"{done.stdout}{done.stderr}{lab.api.kubectl(*happened)}"
    found = {path.name: contents(path) for path in (tmp_path / "out").glob("*.tar.gz")}
    assert found.keys() == {"agent_node-1.tar.gz", "agent_node-2.tar.gz", "controller.tar.gz"}
    for name in ("node-1", "node-2"):
        bundle = found[f"agent_{name}.tar.gz"]
        logs = {path.rpartition("/")[0] for path in bundle if path.startswith("logs/")}
        assert {path for path in bundle if not path.startswith("logs/")} == AGENT
        assert logs == {"logs/agent", "logs/ovs"}
        assert f"name: {name}" in bundle["agentinfo"]
        assert "table=" in bundle["flows"]
        assert "antrea-gw0" in bundle["ovsports"]
        assert "antrea-gw0" in bundle["ovs-vsctl-show"]
        assert "table inet antrea" in bundle["nftables"]
        assert any("Serving API" in text for path, text in bundle.items() if path.startswith("logs/agent"))
    controller = found["controller.tar.gz"]
    assert "name: antrea-controller" in controller["controllerinfo"]
    assert "addressgroups" in controller
    assert "AntreaPolicy" in controller["featuregates"]
    assert "bundleinfo" in controller
    assert controller["bundleinfo"] == "everything was collected\n"
    assert "antrea-config" in (tmp_path / "out/clusterinfo").read_text()
    planted_log = found["agent_node-1.tar.gz"][f"logs/agent/{Path(LOG).name}"]
    assert planted_log.splitlines()[0].endswith('password="<redacted>"')
    everything = [*(text for bundle in found.values() for text in bundle.values())]
    everything.append((tmp_path / "out/clusterinfo").read_text())
    for secret in (
        PLANTED,
        in_agent(lab, "node-1", "cat", "/var/run/antrea/apiserver/loopback-client-token"),
        "PRIVATE KEY-----\n",
    ):
        assert not any(secret.strip() in text for text in everything)


def test_a_bundle_in_the_agents_pod_stays_there(lab: Lab) -> None:
    first, second, third = antctl(lab, "node-1", "supportbundle").splitlines()
    (path,) = in_agent(lab, "node-1", "sh", "-c", "ls /tmp/bundle_*.tar.gz").split()
    assert first == "Created bundle under /tmp"
    assert second.startswith("Fetch it with: kubectl cp -n kube-system -c antrea-agent antrea-agent-")
    assert second.endswith(f":{path} {Path(path).name}")
    assert third.startswith("Expire time: ")


def status(lab: Lab, path: str, *words: str) -> str:
    """HTTP status of the agent on node-1 for who asks like that, from the control plane's network."""
    shown = lab.api.kubectl("get", "node", "node-1", "-o", "json")
    (address, *_) = [
        row["address"] for row in json.loads(shown)["status"]["addresses"] if row["type"] == "InternalIP"
    ]
    host = f"[{address}]" if ":" in address else address
    command = [
        "curl",
        "-sk",
        "-m",
        "10",
        "-o",
        "/dev/null",
        "-w",
        "%{http_code}",
        *words,
        f"https://{host}:10350{path}",
    ]
    return subprocess.run(
        cluster.enter(lab, "control", command), capture_output=True, text=True, check=True
    ).stdout


def test_the_agents_api_asks_kube_apiserver_who_may(lab: Lab) -> None:
    name = "scraper-of-agents"
    lab.api.kubectl("create", "serviceaccount", name, "-n", "default")
    lab.api.kubectl("create", "clusterrole", name, "--verb=get", "--non-resource-url=/metrics")
    lab.api.kubectl(
        "create", "clusterrolebinding", name, f"--clusterrole={name}", f"--serviceaccount=default:{name}"
    )
    try:
        token = lab.api.kubectl("create", "token", name, "-n", "default").strip()
        bearer = ("-H", f"Authorization: Bearer {token}")
        # what kube-apiserver itself has not heard of at once
        wait_for("the right", lambda: status(lab, "/metrics", *bearer) == "200", seconds=60)
        assert status(lab, "/podinterfaces", *bearer) == "403"
    finally:
        lab.api.kubectl("delete", "clusterrolebinding,clusterrole", name)
        lab.api.kubectl("delete", "serviceaccount", name, "-n", "default")
    assert status(lab, "/metrics") == "403"
    assert status(lab, "/metrics", "-H", "Authorization: Bearer nobody-s") == "401"
    files = plane.pki(lab.record)
    admin = ("--cert", str(files / "admin.crt"), "--key", str(files / "admin.key"))
    assert status(lab, "/podinterfaces", *admin) == "200"
