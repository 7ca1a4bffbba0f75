"""What happens to a Node of a cluster without kube-proxy, in both families: its kubelet and containerd end under load, its object is
deleted and made anew; and Services at its own addresses, and with affinity to Endpoints that leave."""

from __future__ import annotations

import contextlib
import json
import subprocess
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from agent_node import in_agent, kill, pid_of, pod_namespace, wait_ready
from own_lab import own_lab
from quiet_pod import POD, SERVING, quiet_pods

from antrea.errors import Unavailable
from lab import node
from lab.images import AGNHOST
from lab.process import wait_for
from lab.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab.cluster import Lab

pytestmark = pytest.mark.wide
DUAL = Settings(nodes=2, family="dual", dev=True, kube_proxy="none", proxy_all=True)
NAMES = ("node-1", "node-2")
PODS = 12
SERVICE = """
apiVersion: v1
kind: Service
metadata: {name: NAME}
spec: {SPEC}
---
"""
SLICE = """
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: NAME-a, labels: {kubernetes.io/service-name: NAME}}
addressType: IPv4
ports: [{name: w, port: 8080}]
endpoints: [ENDPOINTS]
---
"""


@pytest.fixture(scope="module")
def dual() -> Iterator[Lab]:
    with own_lab("nr", DUAL) as lab:
        yield lab


@pytest.fixture(scope="module")
def servers(dual: Lab) -> Iterator[dict[str, str]]:
    """A Pod with a server on each Node; addresses by Node."""
    with quiet_pods(dual, {f"server-{name}": name for name in NAMES}, SERVING) as found:
        yield {name: found[f"server-{name}"] for name in NAMES}


def addresses(lab: Lab, kind: str, name: str) -> list[str]:
    """Of a Pod, or the InternalIPs of a Node; IPv4 first."""
    status = json.loads(lab.api.kubectl("get", kind, name, "-o", "json"))["status"]
    if kind == "pod":
        return [one["ip"] for one in status.get("podIPs", [])]
    return [one["address"] for one in status["addresses"] if one["type"] == "InternalIP"]


def fetched(words: list[str], url: str) -> str:
    """What a server said; the code of curl if it did not."""
    done = subprocess.run(
        [*words, "curl", "-gs", "--max-time", "3", url], capture_output=True, text=True, check=False
    )
    return done.stdout.strip() if done.returncode == 0 else f"curl {done.returncode}"


def url(ip: str, port: int = 8080) -> str:
    return f"http://[{ip}]:{port}/hostname" if ":" in ip else f"http://{ip}:{port}/hostname"


def soon(lab: Lab, words: list[str], where: str, wanted: str) -> None:
    wait_for(f"{wanted} from {where}", lambda: fetched(words, where) == wanted, seconds=60)
    assert lab.record


def state(lab: Lab, where: str) -> tuple[int, int, int]:
    """How many OVS ports, veths and reserved addresses the Node has."""
    ports = in_agent(lab, where, "ovs-vsctl", "list-ports", "br-int").split()
    links = node.execute(lab.record, where, "sh", "-c", "ip -o link show type veth | wc -l")
    held = node.execute(
        lab.record,
        where,
        "sh",
        "-c",
        "ls /var/run/antrea/cni/networks/antrea | grep -c '[0-9a-f][.:]' || true",
    )
    return len(ports), int(links), int(held)


def test_external_ips_of_a_node_are_served_to_all_who_ask(dual: Lab, servers: dict[str, str]) -> None:
    own = addresses(dual, "node", "node-2")
    dual.api.kubectl("label", "pod", "server-node-1", "app=own")
    spec = f"externalIPs: {json.dumps(own)}, ipFamilyPolicy: PreferDualStack, selector: {{app: own}}, ports: [{{port: 8888, targetPort: 8080}}]"
    dual.api.apply(SERVICE.replace("NAME", "nodeext").replace("SPEC", spec))
    taken = spec.replace("8888", "10250")
    dual.api.apply(SERVICE.replace("NAME", "takes").replace("SPEC", taken))
    ways = {
        "node-1": node.inside(dual.record, "node-1", []),
        "node-2": node.inside(dual.record, "node-2", []),
        "a Pod of node-1": pod_namespace(dual, "node-1", servers["node-1"]),
        "a Pod of node-2": pod_namespace(dual, "node-2", servers["node-2"]),
    }
    for words in ways.values():
        for ip in own:
            soon(dual, words, url(ip, 8888), "server-node-1")
    for words in ways.values():
        for ip in own:  # kubelet's own port stays its own
            host = f"[{ip}]" if ":" in ip else ip
            asked = [*words, "curl", "-gsk", "--max-time", "3", f"https://{host}:10250/healthz"]
            done = subprocess.run(asked, capture_output=True, text=True, check=False)
            assert done.stdout in ("ok", "Unauthorized"), done

    def told() -> list[str]:
        found = json.loads(
            dual.api.kubectl("get", "events", "--field-selector=reason=ExternalIPConflict", "-o", "json")
        )
        return [one["message"] for one in found["items"] if one["involvedObject"]["name"] == "takes"]

    wait_for("the Events", lambda: len(told()) == len(own), seconds=60)
    assert all("10250/TCP of Node node-2 is for kubelet" in one for one in told())
    dual.api.kubectl("delete", "service", "nodeext", "takes")


def test_a_client_leaves_an_endpoint_that_left_its_service(dual: Lab, servers: dict[str, str]) -> None:
    first, second = servers["node-2"], servers["node-1"]
    port = "ports: [{name: w, port: 80, targetPort: 8080}]"
    sticky = SERVICE.replace("NAME", "sa1").replace("SPEC", f"sessionAffinity: ClientIP, {port}")
    other = SERVICE.replace("NAME", "sb1").replace("SPEC", port)

    def slice_of(name: str, *ends: tuple[str, str]) -> str:
        rows = ", ".join(f"{{addresses: [{ip}], nodeName: {where}}}" for ip, where in ends)
        return SLICE.replace("NAME", name).replace("ENDPOINTS", rows)

    dual.api.apply(sticky + other + slice_of("sa1", (first, "node-2")) + slice_of("sb1", (first, "node-2")))
    ip = json.loads(dual.api.kubectl("get", "service", "sa1", "-o", "json"))["spec"]["clusterIP"]
    client = pod_namespace(dual, "node-1", servers["node-1"])
    soon(dual, client, url(ip, 80), "server-node-2")
    dual.api.apply(slice_of("sa1", (first, "node-2"), (second, "node-1")))
    assert {fetched(client, url(ip, 80)) for _ in range(8)} == {"server-node-2"}
    dual.api.apply(slice_of("sa1", (second, "node-1")))
    soon(dual, client, url(ip, 80), "server-node-1")
    assert {fetched(client, url(ip, 80)) for _ in range(8)} == {"server-node-1"}
    dual.api.apply(slice_of("sa1"))
    soon(dual, client, url(ip, 80), "curl 7")
    dual.api.kubectl("delete", "service", "sa1", "sb1")


def test_pods_get_their_network_while_kubelet_and_containerd_end(dual: Lab, servers: dict[str, str]) -> None:
    before = state(dual, "node-2")
    names = [f"load-{number}" for number in range(PODS)]

    def ended(program: str) -> None:
        old = int(wait_for(program, lambda: pid_of(dual, "node-2", program), seconds=60))
        kill(old)
        wait_for(f"the next {program}", lambda: pid_of(dual, "node-2", program) not in (0, old), seconds=60)

    def going() -> int:
        phases = dual.api.kubectl(
            "get", "pods", "-o", 'jsonpath={range .items[*]}{.metadata.name} {.status.podIP}{"\\n"}{end}'
        )
        return sum(line.startswith("load-") and len(line.split()) == 2 for line in phases.splitlines())

    def break_in_the_middle() -> None:
        for program, count in (("kubelet", 2), ("containerd", 5), ("kubelet", 8)):
            with contextlib.suppress(Unavailable):
                wait_for(f"{count} Pods", partial(lambda least: going() >= least, count), seconds=60)
            ended(program)

    text = "".join(POD.replace("NAME", name).replace("NODE", "node-2") for name in names)
    dual.api.apply(text.replace("ARGS", SERVING).replace("IMAGE", AGNHOST))
    break_in_the_middle()
    pods = [f"pod/{name}" for name in names]
    dual.api.kubectl("wait", "--for=condition=Ready", *pods, "--timeout=180s", seconds=200)
    found = {name: addresses(dual, "pod", name) for name in names}
    assert len({ip for ips in found.values() for ip in ips}) == 2 * PODS
    client = pod_namespace(dual, "node-1", servers["node-1"])
    for name, ips in found.items():
        for ip in ips:
            soon(dual, client, url(ip), name)
    dual.api.kubectl("delete", *pods, "--wait=false")
    ended("containerd")
    ended("kubelet")

    def is_clean() -> bool:
        with contextlib.suppress(Unavailable):  # kubelet is on its way, by which commands run in Pods
            return state(dual, "node-2") == before
        return False

    wait_for("nothing left of them", is_clean, seconds=120)


def test_a_node_that_is_deleted_and_made_anew_with_its_pod_cidr_serves_on(
    dual: Lab, servers: dict[str, str]
) -> None:
    agent = pid_of(dual, "node-2", "antrea-agent")
    old: dict[str, Any] = json.loads(dual.api.kubectl("get", "node", "node-2", "-o", "json"))
    ours = {key for key in old["metadata"].get("annotations", {}) if "antrea.io" in key}
    fresh = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "node-2", "labels": old["metadata"]["labels"]},
        "spec": {key: old["spec"][key] for key in ("podCIDR", "podCIDRs")},
        "status": old["status"],
    }
    dual.api.kubectl("delete", "node", "node-2")
    dual.api.kubectl("create", "-f", "-", stdin=json.dumps(fresh))
    client = pod_namespace(dual, "node-1", servers["node-1"])
    for ip in addresses(dual, "pod", "server-node-2"):
        soon(dual, client, url(ip), "server-node-2")

    def written() -> set[str]:
        found = json.loads(dual.api.kubectl("get", "node", "node-2", "-o", "json"))
        return {key for key in found["metadata"].get("annotations", {}) if "antrea.io" in key}

    wait_for("what the agent writes on its Node", lambda: written() >= ours, seconds=60)
    wait_ready(dual, "node-2")
    with quiet_pods(dual, {"after": "node-2"}, SERVING):
        for ip in addresses(dual, "pod", "after"):
            soon(dual, client, url(ip), "after")
    assert pid_of(dual, "node-2", "antrea-agent") == agent
