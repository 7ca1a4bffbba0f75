"""A cluster with all built gates on: the shortest packet test of each feature, with the objects of all others in place."""

from __future__ import annotations

import contextlib
import json
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
from admission_object import crd
from agent_node import in_agent
from outside_host import source_of
from own_lab import own_lab
from quiet_pod import SERVING, quiet_pods

from antrea.errors import Unavailable
from antrea.features.framework.gate import GATES
from lab import cluster, node
from lab.process import wait_for
from lab.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab.cluster import Lab

pytestmark = pytest.mark.timeout(600)
EGRESS_IP, LOAD_BALANCER_IP, NODE_IP = "172.30.0.200", "172.30.0.210", "172.30.0.11"
PODS = {"client": "node-1", "near": "node-1", "far": "node-2"}
PORT_LOCAL = 61000
SERVICE = """
apiVersion: v1
kind: Service
metadata:
  name: web
  annotations: {nodeportlocal.antrea.io/enabled: "true", service.antrea.io/external-ip-pool: services}
spec: {type: LoadBalancer, selector: {app: near}, ports: [{port: 80, targetPort: 8080}]}
"""


def gates(component: str) -> dict[str, dict[str, bool]]:
    """All that are built, but for the one of machines outside the cluster."""
    found = [one.name for one in GATES if one.built and component in one.components]
    return {"featureGates": dict.fromkeys((name for name in found if name != "ExternalNode"), True)}


@pytest.fixture(scope="module")
def two() -> Iterator[Lab]:
    agent = {
        **gates("agent"),
        "nodePortLocal": {"enable": True, "portRange": f"{PORT_LOCAL}-{PORT_LOCAL + 10}"},
    }
    settings = Settings(
        nodes=2, family="dual", agent=agent, controller=gates("controller"), proxy_all=True, kube_proxy="none"
    )
    with own_lab("all", settings) as lab, quiet_pods(lab, PODS, SERVING):
        for pod in PODS:
            lab.api.kubectl("label", "pod", pod, f"app={pod}")
        yield lab


def asks(lab: Lab, pod: str, place: str) -> bool:
    """Whether a request of a Pod is answered."""
    words = f"curl -s -m 2 -g -o /dev/null 'http://{place}/hostname' && echo yes || true"
    return bool(lab.api.kubectl("exec", pod, "--", "sh", "-c", words))


def asks_from_outside(lab: Lab, place: str) -> bool:
    words = ["curl", "-s", "-m", "2", "-o", "/dev/null", f"http://{place}/hostname"]
    return subprocess.run(cluster.enter(lab, "node-2", words), check=False).returncode == 0


def put(lab: Lab, kind: str, name: str, spec: dict[str, Any]) -> None:
    version = "v1alpha2" if kind == "TrafficControl" else "v1beta1"
    lab.api.apply(json.dumps(crd(kind, name, spec, version)))


def applied(app: str) -> dict[str, Any]:
    return {"podSelector": {"matchLabels": {"app": app}}}


def traffic_flows(lab: Lab, *words: str) -> list[str]:
    """Flows of the table TrafficControl on node-1."""
    dump = (
        "ovs-ofctl",
        "-O",
        "OpenFlow15",
        "--names",
        "--no-stats",
        "dump-flows",
        "br-int",
        "table=TrafficControl",
    )
    return [line for line in in_agent(lab, "node-1", *dump).splitlines() if all(word in line for word in words)]  # fmt: skip


def source(lab: Lab, pod: str) -> str:
    with contextlib.suppress(Unavailable):
        return source_of(lab, pod, 4)
    return ""


def copies_are_sent(two: Lab, ip: str) -> None:
    """To the port of a TrafficControl; those of requests have flows."""
    put(two, "TrafficControl", "mirror", {
        "appliedTo": applied("near"), "action": "Mirror", "direction": "Both", "targetPort": {"ovsInternal": {"name": "tap0"}},
    })  # fmt: skip
    wait_for("flows that mirror", lambda: traffic_flows(two, "priority=200", "reg9"), seconds=60)
    wait_for("flows that copy requests", lambda: traffic_flows(two, "priority=190", "reg9"), seconds=60)

    def received() -> int:
        text = in_agent(two, "node-1", "ovs-vsctl", "get", "interface", "tap0", "statistics:tx_packets")
        return int(text.strip() or 0)

    before = received()
    assert asks(two, "client", f"{ip}:8080")
    wait_for("copies", lambda: received() > before, seconds=60)


def policies_are_enforced(two: Lab, ip: str) -> None:
    drop = {"action": "Drop", "from": [applied("client")]}
    put(
        two,
        "ClusterNetworkPolicy",
        "closed",
        {"priority": 1, "appliedTo": [applied("near")], "ingress": [drop]},
    )
    wait_for("the policy", lambda: not asks(two, "client", f"{ip}:8080"), seconds=60)
    assert asks(two, "far", f"{ip}:8080")
    two.api.kubectl("delete", "clusternetworkpolicies.crd.antrea.io", "closed")
    wait_for("an end of the policy", lambda: asks(two, "client", f"{ip}:8080"), seconds=60)
    assert traffic_flows(two, "actions=drop") == []


@pytest.mark.wide
def test_every_feature_does_its_work_beside_all_others(two: Lab) -> None:
    """A TrafficControl that redirects what no Pod is stands from the beginning."""
    gone = {"action": "Redirect", "direction": "Both", "targetPort": {"device": {"name": "gone0"}}}
    put(two, "TrafficControl", "idle", {"appliedTo": applied("nobody"), **gone})
    two.api.kubectl("annotate", "pod", "near", "visibility.antrea.io/l7-export=both")
    pool = {"ipRanges": [{"start": LOAD_BALANCER_IP, "end": LOAD_BALANCER_IP}], "nodeSelector": {}}
    put(two, "ExternalIPPool", "services", pool)
    two.api.apply(SERVICE)
    ips = {
        pod: json.loads(two.api.kubectl("get", "pod", pod, "-o", "json"))["status"]["podIPs"] for pod in PODS
    }
    for pod in ("near", "far"):
        for ip in (one["ip"] for one in ips[pod]):
            assert asks(two, "client", f"[{ip}]:8080" if ":" in ip else f"{ip}:8080"), (pod, ip)
    assert traffic_flows(two, "actions=drop") == []

    wait_for("the Service", lambda: asks(two, "client", "web"), seconds=60)
    wait_for("its external IP", lambda: asks(two, "far", LOAD_BALANCER_IP), seconds=60)
    wait_for("the port of the Node", lambda: asks_from_outside(two, f"{NODE_IP}:{PORT_LOCAL}"), seconds=60)

    node.execute(two.record, "node-2", "ip", "addr", "add", f"{EGRESS_IP}/32", "dev", "eth0")
    put(two, "Egress", "out", {"appliedTo": applied("client"), "egressIP": EGRESS_IP})
    wait_for("the Egress IP", lambda: source(two, "client") == EGRESS_IP, seconds=60)

    copies_are_sent(two, ips["near"][0]["ip"])
    policies_are_enforced(two, ips["near"][0]["ip"])
