"""kube-proxy removed by hand, as guides of Kubernetes and Antrea print it, and what `antctl kube-proxy takeover` does then."""

from __future__ import annotations

import json
import subprocess
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import pytest
import workstation
from config_map import ConfigMap, wait_value
from kube_proxy_daemon_set import run_kube_proxy
from own_lab import own_lab
from quiet_pod import SERVING, quiet_pods

from lab import cluster, control_plane, fault, node
from lab.process import wait_for
from lab.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab.cluster import Lab

pytestmark = [pytest.mark.wide, pytest.mark.timeout(900)]

NODES = ("node-1", "node-2", "node-3")
TAKEOVER = ("kube-proxy", "takeover")
FLUSH = "iptables-save | grep -v KUBE | iptables-restore; ip6tables-save | grep -v KUBE | ip6tables-restore"
KUBELET = {"KUBE-FIREWALL", "KUBE-KUBELET-CANARY", "KUBE-IPTABLES-HINT"}
CLEANUP = "/opt/kubernetes/kube-proxy --cleanup"
SERVICE = """
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {type: NodePort, selector: {web: "yes"}, ports: [{port: 80, targetPort: 8080}]}
"""
NAMED = "service.kubernetes.io/service-proxy-name"


class Web(NamedTuple):
    """A Service with one Endpoint."""

    lab: Lab
    ip: str
    port: int

    def is_served(self, machine: str) -> bool:
        """To processes of a Node by its ClusterIP, and to a host outside by the Node's NodePort."""
        address = self.lab.topology.machine(machine).address("eth0", 4)
        places = ((machine, self.ip, 80), ("outside", address, self.port))
        return all(answers(self.lab, *place) for place in places)

    def wait_served(self, what: str) -> None:
        for name in NODES:
            wait_for(f"{what}: the Service on {name}", partial(self.is_served, name), seconds=60)


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with own_lab("gone", Settings(nodes=3, kube_proxy="none")) as found:
        yield found


@pytest.fixture
def web(lab: Lab) -> Iterator[Web]:
    """Served by kube-proxy."""
    run_kube_proxy(lab, "iptables")
    with quiet_pods(lab, {"web": "node-2"}, SERVING):
        lab.api.kubectl("label", "pod", "web", "web=yes")
        lab.api.apply(SERVICE)
        spec = json.loads(lab.api.kubectl("get", "service", "web", "-o", "json"))["spec"]
        found = Web(lab, spec["clusterIP"], spec["ports"][0]["nodePort"])
        found.wait_served("kube-proxy")
        yield found
        lab.api.kubectl("delete", "service", "web")


@contextmanager
def proxy_all(lab: Lab) -> Iterator[None]:
    """By the keys that the guides set, and a restart."""
    config = ConfigMap(lab)
    config.change(
        antreaProxy={"proxyAll": True}, kubeAPIServerOverride=control_plane.server_url(lab.topology)
    )
    lab.api.kubectl("rollout", "restart", "-n", "kube-system", "deployment/antrea-controller")
    lab.api.kubectl("delete", "pods", "-n", "kube-system", "-l", "component=antrea-agent", seconds=120)
    lab.api.kubectl(
        "-n", "kube-system", "rollout", "status", "ds/antrea-agent", "--timeout=120s", seconds=130
    )
    wait_value(lab, "antreaProxy.proxyAll", True)
    yield
    config.write(config.text)


def delete_kube_proxy(lab: Lab) -> None:
    """By the words of the guides; nothing of it runs in the end."""
    for name in ("ds/kube-proxy", "cm/kube-proxy"):
        lab.api.kubectl("-n", "kube-system", "delete", name)
    pods = ("-n", "kube-system", "get", "pods", "-l", "k8s-app=kube-proxy", "-o", "name")
    wait_for("the end of kube-proxy", lambda: lab.api.kubectl(*pods) == "", seconds=60)


def answers(lab: Lab, machine: str, ip: str, port: int) -> bool:
    words = cluster.enter(lab, machine, ["curl", "-sS", "--max-time", "2", f"http://{ip}:{port}/hostname"])
    return subprocess.run(words, capture_output=True, text=True, check=False).stdout == "web"


def chains(lab: Lab, name: str) -> set[str]:
    """kube-proxy's; those of kubelet have other names."""
    lines = node.execute(lab.record, name, "iptables-save").splitlines()
    return {line.split()[0][1:] for line in lines if line.startswith(":KUBE-")} - KUBELET


def test_a_service_for_another_proxy_is_served_by_that_one_alone(lab: Lab, web: Web) -> None:
    with quiet_pods(lab, {"asks": "node-1"}):
        inside = node.inside_pod(lab.record, "node-1", pod_address(lab, "asks"))

        def is_answered() -> bool:
            words = [*inside, "curl", "-s", "--max-time", "2", f"http://{web.ip}/hostname"]
            return subprocess.run(words, capture_output=True, text=True, check=False).stdout == "web"

        wait_for("the Service in a Pod", is_answered, seconds=60)
        lab.api.kubectl("label", "service", "web", f"{NAMED}=mesh")
        wait_for("nobody serves it to Pods", lambda: not is_answered(), seconds=60)
        wait_for("nobody serves it to Nodes", lambda: not web.is_served("node-1"), seconds=60)
        config = ConfigMap(lab)
        config.change(antreaProxy={"serviceProxyName": "mesh"})
        wait_for("it in a Pod by serviceProxyName", is_answered, seconds=60)
        told = workstation.run(lab, "explain", "--from", "default/asks", "--to", web.ip, "--port", "80/tcp")
        assert "AntreaProxy chooses one of the ready Endpoints of Service default/web" in told.stdout
        lab.api.kubectl("label", "service", "web", f"{NAMED}-")
        web.wait_served("kube-proxy without the label")
        wait_for("it in a Pod by kube-proxy", is_answered, seconds=60)
        config.write(config.text)


def pod_address(lab: Lab, name: str) -> str:
    return lab.api.kubectl("get", "pod", name, "-o", "jsonpath={.status.podIP}").strip()


def test_rules_that_are_left_go_in_each_way_that_guides_name(lab: Lab, web: Web) -> None:
    """By a flush on one Node, by kube-proxy itself on another one, and by a boot of the third."""
    with proxy_all(lab):
        delete_kube_proxy(lab)
        web.wait_served("beside rules that are left")
        assert all(chains(lab, name) for name in NODES)
        node.execute(lab.record, "node-1", "sh", "-c", FLUSH)
        node.execute(lab.record, "node-2", "sh", "-c", CLEANUP)
        told = workstation.run(lab, *TAKEOVER, "--verify", code=1).stdout.splitlines()
        assert [line.split()[2] == "0" for line in told[1:]] == [True, True, False], told
        assert [chains(lab, name) for name in NODES[:2]] == [set(), set()]
        fault.inject(lab, "node-3", "power-off")
        fault.inject(lab, "node-3", "power-on")
        web.wait_served("without kube-proxy and its rules")

        def is_free() -> bool:
            words = workstation.command(lab, *TAKEOVER, "--verify")
            return subprocess.run(words, env=workstation.environment(), capture_output=True, check=False).returncode == 0  # fmt: skip

        wait_for("no Node with anything of kube-proxy", is_free, seconds=120)
        assert chains(lab, "node-3") == set()


def test_the_take_over_removes_what_a_deleted_kube_proxy_has_left(lab: Lab, web: Web) -> None:
    delete_kube_proxy(lab)
    plan = workstation.run(lab, *TAKEOVER, "--plan", "--api-server", control_plane.server_url(lab.topology))
    assert "kube-proxy's mode: unknown" in plan.stdout
    assert plan.stdout.count("chains of kube-proxy and the rules that lead to them go") == len(NODES)
    before = ConfigMap(lab), ConfigMap(lab, "antrea-controller.conf")
    applied = workstation.run(
        lab, *TAKEOVER, "--apply", "--api-server", control_plane.server_url(lab.topology), seconds=500
    )
    assert applied.stdout.count("Services are served") == len(NODES)
    web.wait_served("by AntreaProxy alone")
    assert workstation.run(lab, *TAKEOVER, "--verify").stdout.count(" served") == len(NODES)
    assert [chains(lab, name) for name in NODES] == [set(), set(), set()]
    refused = workstation.run(lab, *TAKEOVER, "--rollback", code=1)
    assert "no take-over was applied" in refused.stderr
    for one in before:
        one.write(one.text)
