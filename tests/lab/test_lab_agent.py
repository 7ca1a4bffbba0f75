"""Our agent in a real cluster: what crosses it, what leaves it, what survives its end, and what antctl says."""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import sys
from functools import partial
from typing import TYPE_CHECKING

import pytest
import traffic
from agent_node import antctl, fresh_agent, pod_namespace, restart_agent, wait_ready
from outside_host import source_of
from quiet_pod import standing

from antrea.errors import Unavailable
from lab import namespace, node
from lab.process import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab.cluster import Lab

POD = """
apiVersion: v1
kind: Pod
metadata: {name: NAME, labels: {app: NAME}, annotations: {kubernetes.io/ingress-bandwidth: 200M}}
spec:
  nodeName: NODE
  terminationGracePeriodSeconds: 0
  containers:
  - {name: main, image: IMAGE, imagePullPolicy: Never, args: [netexec, --http-port=8080],
     ports: [{containerPort: 8080, hostPort: PORT}], readinessProbe: {httpGet: {path: /healthz, port: 8080}, periodSeconds: 1}}
---
apiVersion: v1
kind: Service
metadata: {name: NAME}
spec: {selector: {app: NAME}, ports: [{port: 80, targetPort: 8080}]}
---
"""


@pytest.fixture(scope="module")
def pods(lab: Lab) -> Iterator[dict[str, str]]:
    """A Pod with a probe, a hostPort, a limit and a Service of its own on each node; addresses by name."""
    names = [f"app-{machine.name}" for machine in lab.topology.nodes]
    texts = [
        POD.replace("NAME", name).replace("NODE", machine.name).replace("PORT", str(8180 + number))
        for number, (name, machine) in enumerate(zip(names, lab.topology.nodes, strict=True))
    ]
    with standing(lab, "".join(texts), names, "pod,svc") as found:
        yield found


def fetch(lab: Lab, where: str, url: str) -> str:
    """The answer to curl on a node."""
    return node.execute(lab.record, where, "curl", "-s", "-m", "5", url)


def test_a_node_reaches_its_own_pods_and_those_of_other_nodes(lab: Lab, pods: dict[str, str]) -> None:
    answers = {name: fetch(lab, "node-1", f"http://{ip}:8080/hostname") for name, ip in pods.items()}
    assert answers == {name: name for name in pods}


def test_a_pod_reaches_the_kubelet_of_every_node(lab: Lab, pods: dict[str, str]) -> None:
    for address in ("172.30.0.11", "172.30.0.12"):
        words = (
            "curl",
            "-sk",
            "-m",
            "5",
            "-o",
            "/dev/null",
            "-w",
            "%{http_code}",
            f"https://{address}:10250/",
        )
        assert lab.api.kubectl("exec", "app-node-1", "--", *words) == "404"


def test_a_pod_leaves_the_cluster_with_its_nodes_address(lab: Lab, pods: dict[str, str]) -> None:
    assert source_of(lab, "app-node-1", 4) == "172.30.0.11"


def test_a_host_port_leads_to_its_pod_from_outside(lab: Lab, pods: dict[str, str]) -> None:
    outside = namespace.path(lab.record, "outside")
    words = namespace.inside(outside, ["curl", "-s", "-m", "5", "http://172.30.0.12:8181/hostname"])
    assert subprocess.run(words, capture_output=True, text=True, check=True).stdout == "app-node-2"


def test_what_a_pod_receives_is_limited_by_the_bandwidth_plugin(lab: Lab, pods: dict[str, str]) -> None:
    (row,) = json.loads(antctl(lab, "node-1", "get", "podinterface", "app-node-1", "-o", "json"))
    device = row["interfaceName"]
    shown = json.loads(node.execute(lab.record, "node-1", "tc", "-json", "qdisc", "show", "dev", device))
    assert [(one["kind"], one["options"]["rate"]) for one in shown] == [("tbf", 200_000_000 // 8)]


def test_a_pod_reaches_services_also_the_one_that_leads_back_to_it(lab: Lab, pods: dict[str, str]) -> None:
    for name in pods:

        def answer(name: str = name) -> str:
            words = ("curl", "-s", "-m", "2", f"http://{name}.default.svc.cluster.local/hostname")
            with contextlib.suppress(Unavailable):
                return lab.api.kubectl("exec", "app-node-1", "--", *words)
            return ""

        assert wait_for(f"an answer from Service {name}", answer, seconds=60) == name


def test_a_pod_cannot_send_with_an_address_of_another(lab: Lab, pods: dict[str, str]) -> None:
    gateway, other = (
        pods["app-node-1"].rsplit(".", 1)[0] + ".1",
        pods["app-node-1"].rsplit(".", 1)[0] + ".250",
    )
    inside = pod_namespace(lab, "node-1", pods["app-node-1"])
    subprocess.run([*inside, "ip", "addr", "add", f"{other}/24", "dev", "eth0"], check=True)
    try:
        ping = [*inside, "ping", "-c", "1"]
        honest = subprocess.run([*ping, "-W", "30", gateway], capture_output=True, check=False).returncode
        spoofed = subprocess.run(
            [*ping, "-W", "1", "-I", other, gateway], capture_output=True, check=False
        ).returncode
    finally:
        subprocess.run([*inside, "ip", "addr", "del", f"{other}/24", "dev", "eth0"], check=True)
    assert (honest, spoofed) == (0, 1)


def test_antctl_in_the_agents_container_speaks_as_upstreams(lab: Lab, pods: dict[str, str]) -> None:
    assert antctl(lab, "node-1", "version").splitlines()[0].startswith("agentVersion: ")
    gates = antctl(lab, "node-1", "get", "featuregates").splitlines()
    assert (gates[0], gates[1].split()) == (
        "Antrea Agent Feature Gates",
        ["FEATUREGATE", "STATUS", "VERSION"],
    )
    interfaces = antctl(lab, "node-1", "get", "podinterface", "app-node-1", "-n", "default").splitlines()
    assert interfaces[0].split() == [
        *("NAMESPACE", "NAME", "INTERFACE-NAME", "IP", "MAC", "PORT-UUID", "OF-PORT", "CONTAINER-ID"),
    ]
    row = interfaces[1].split()
    assert (row[0], row[1], row[3]) == ("default", "app-node-1", pods["app-node-1"])
    assert re.fullmatch(r"app-node-[0-9a-f]{6}", row[2].replace("--", "-"))
    flows = antctl(lab, "node-1", "get", "ovsflows", "-T", "SpoofGuard")
    assert f"nw_src={pods['app-node-1']}" in flows


POLICY = """
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: sent, namespace: default}
spec:
  podSelector: {matchLabels: {app: app-node-1}}
  ingress: [{from: [{podSelector: {matchLabels: {app: app-node-2}}}]}]
"""


def test_antctl_shows_what_the_controller_sent_to_the_node_of_a_policys_pods(
    lab: Lab, pods: dict[str, str]
) -> None:
    def sent(where: str) -> bool:
        return "K8sNetworkPolicy:default/sent" in antctl(lab, where, "get", "networkpolicy")

    lab.api.apply(POLICY)
    try:
        wait_for("the policy on its Node", lambda: sent("node-1"), seconds=60, step=0.5)
        assert not sent("node-2")
        for kind, member in (("addressgroup", pods["app-node-2"]), ("appliedtogroup", "default/app-node-1")):
            told = partial(antctl, lab, "node-1", "get", kind)  # each comes over a watch of its own
            wait_for(f"its {kind}", lambda told=told, member=member: member in told(), seconds=60, step=0.5)  # type: ignore[misc]
    finally:
        lab.api.kubectl("delete", "networkpolicy", "sent")
    wait_for("its end", lambda: not sent("node-1"), seconds=60, step=0.5)


@pytest.mark.parametrize("time", [1, *(pytest.param(n, marks=pytest.mark.wide) for n in range(2, 11))])
def test_nothing_is_lost_when_the_agent_is_killed_and_comes_back(
    lab: Lab, pods: dict[str, str], time: int
) -> None:
    if time > 1:  # kubelet waits longer and longer before it starts a container of one Pod again
        fresh_agent(lab, "node-1")
    address = pods["app-node-2"]
    serve = [*pod_namespace(lab, "node-2", address), sys.executable, traffic.__file__, "serve", address]
    send = [
        *pod_namespace(lab, "node-1", pods["app-node-1"]),
        sys.executable,
        traffic.__file__,
        "send",
        address,
    ]
    with traffic.running("server", serve) as server:
        server.says("listening")
        with traffic.running("client", send) as client:
            client.says("connected")
            restart_agent(lab, "node-1")
            wait_ready(lab, "node-1")
            sent, received = client.result("end\n"), server.result()
    assert sent["sent"] > 10, "hundreds a second, while it was killed and until it was ready"
    assert (received["datagrams"], sent["echoed"]) == (sent["sent"], sent["sent"])
