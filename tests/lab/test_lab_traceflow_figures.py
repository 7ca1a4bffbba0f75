"""How long traces take in a cluster of three Nodes: `python -m benchmarks.traceflow` prints it (docs/benchmarks.md)."""

from __future__ import annotations

import json
import statistics
import subprocess
import time
from typing import TYPE_CHECKING, Any

import outside_host
import pytest
from admission_object import crd
from agent_node import in_agent, pod_namespace
from figure import show
from quiet_pod import SERVING, quiet_pods

from lab import node
from lab.process import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from lab.cluster import Lab

pytestmark = [pytest.mark.wide, pytest.mark.timeout(900)]
TRACES = "/apis/crd.antrea.io/v1beta1/traceflows"
ROUNDS, TARGET = 10, 3.0
EGRESS_IP, BALANCED = "172.30.0.213", "172.30.0.214"
NODE_PORT = 31180
PODS = {"trace-a": "node-1", "trace-b": "node-2", "trace-c": "node-3"}
NODES = ("node-1", "node-2", "node-3")
SERVICE = f"""
apiVersion: v1
kind: Service
metadata: {{name: traced}}
spec:
  type: NodePort
  selector: {{traced: trace-c}}
  ports: [{{port: 80, targetPort: 8080, nodePort: {NODE_PORT}}}]
"""


@pytest.fixture
def world(three_nodes: Lab) -> Iterator[tuple[Lab, dict[str, str]]]:
    """A Pod on each Node, a Service of the third one, which has a second address, and an Egress of the first whose address is on the second."""
    lab = three_nodes
    second = {"kubernetes.io/hostname": "node-2"}
    pool = {"ipRanges": [{"start": EGRESS_IP, "end": EGRESS_IP}], "nodeSelector": {"matchLabels": second}}
    chosen = {"podSelector": {"matchLabels": {"traced": "trace-a"}}}
    with quiet_pods(lab, PODS, SERVING) as ips:
        try:
            for name in PODS:
                lab.api.kubectl("label", "pod", name, f"traced={name}")
            node.execute(lab.record, "node-3", "ip", "address", "add", f"{BALANCED}/32", "dev", "eth0")
            lab.api.apply(SERVICE)
            lab.api.apply(json.dumps(crd("ExternalIPPool", "traced", pool)))
            lab.api.apply(
                json.dumps(crd("Egress", "traced", {"appliedTo": chosen, "externalIPPool": "traced"}))
            )
            of_node = ("get", "egress", "traced", "-o", "jsonpath={.status.egressNode}")
            wait_for("the Egress", lambda: lab.api.kubectl(*of_node) == "node-2", seconds=90)
            inside = pod_namespace(lab, "node-1", ips["trace-a"])
            wait_for("the NodePort", lambda: connected(inside), seconds=60)
            yield lab, ips
        finally:
            node.execute(lab.record, "node-3", "sh", "-c", f"ip address del {BALANCED}/32 dev eth0 || true")
            lab.api.kubectl("delete", "service", "traced", "--ignore-not-found", "--wait=false")
            lab.api.kubectl("delete", "egress", "traced", "--ignore-not-found")
            lab.api.kubectl("delete", "externalippool", "traced", "--ignore-not-found")


def connected(inside: list[str]) -> bool:
    """Whether a request of the first Pod to the second address of node-3 gets an answer."""
    words = ("curl", "-s", "--max-time", "3", f"http://{BALANCED}:{NODE_PORT}/hostname")
    return subprocess.run([*inside, *words], capture_output=True, check=False).returncode == 0


def begun(lab: Lab, name: str, **spec: Any) -> None:
    lab.api.request("POST", TRACES, crd("Traceflow", name, spec))


def status_at_end(lab: Lab, name: str) -> dict[str, Any]:
    """Once the trace is over; it has succeeded."""
    status = dict[str, Any]()

    def over() -> bool:
        status.update(lab.api.get(f"{TRACES}/{name}").get("status", {}))
        return status.get("phase") in ("Succeeded", "Failed")

    wait_for(f"{name} is over", over, seconds=60, step=0.02)
    assert status["phase"] == "Succeeded", status
    return status


def on(status: Mapping[str, Any]) -> list[str]:
    return sorted(one["node"] for one in status["results"])


def shown(name: str, seconds: list[float]) -> None:
    show(name, "s", seconds, target=TARGET)
    assert statistics.median(seconds) <= TARGET


SOURCE = {"namespace": "default", "pod": "trace-a"}


def test_an_injected_packet_is_followed_in_time(world: tuple[Lab, dict[str, str]]) -> None:
    lab, _ = world
    web = {"transportHeader": {"tcp": {"dstPort": 80, "flags": 2}}}
    cases: dict[str, tuple[dict[str, Any], dict[str, Any], list[str]]] = {
        "pod": ({"namespace": "default", "pod": "trace-b"}, {}, ["node-1", "node-2"]),
        "service": ({"namespace": "default", "service": "traced"}, web, ["node-1", "node-3"]),
        "egress": ({"ip": outside_host.address(lab, 4)}, web, ["node-1", "node-2"]),
    }
    for name, (destination, packet, nodes) in cases.items():
        seconds = []
        for _ in range(ROUNDS):
            begin = time.monotonic()
            begun(lab, "timed", source=SOURCE, destination=destination, packet=packet)
            found = status_at_end(lab, "timed")
            seconds.append(time.monotonic() - begin)
            lab.api.kubectl("delete", "traceflow", "timed")
            assert on(found) == nodes
        shown(f"trace_to_{name}", seconds)


def test_a_packet_of_live_traffic_is_followed_over_three_nodes(world: tuple[Lab, dict[str, str]]) -> None:
    """It leaves with an Egress IP of the second Node for an address of the third, whose Service leads to a Pod: a trace from its source, one to its end."""
    lab, ips = world
    inside = pod_namespace(lab, "node-1", ips["trace-a"])
    ends = {
        "sent": {"source": SOURCE, "destination": {"ip": BALANCED}, "packet": tcp(NODE_PORT)},
        "came": {"destination": {"namespace": "default", "pod": "trace-c"}, "packet": tcp(8080)},
    }
    seconds = []
    for _ in range(ROUNDS):
        for name, spec in ends.items():
            begun(lab, name, liveTraffic=True, timeout=60, **spec)
        wait_for("flows of both on all Nodes", lambda: prepared(lab, ends), seconds=60)
        begin = time.monotonic()
        assert connected(inside)
        sent, came = status_at_end(lab, "sent"), status_at_end(lab, "came")
        seconds.append(time.monotonic() - begin)
        lab.api.kubectl("delete", "traceflow", *ends)
        assert (on(sent), on(came)) == (["node-1", "node-2"], ["node-3"])
        assert came["results"][0]["observations"][-1]["action"] == "Delivered"
    shown("trace_over_three_nodes", seconds)


def tcp(port: int) -> dict[str, Any]:
    return {"ipHeader": {"protocol": 6}, "transportHeader": {"tcp": {"dstPort": port}}}


def prepared(lab: Lab, names: Mapping[str, Any]) -> bool:
    """Whether the flows of these traces are on every Node."""
    found = [lab.api.get(f"{TRACES}/{name}").get("status", {}).get("dataplaneTag") for name in names]
    words = ("ovs-ofctl", "-O", "OpenFlow15", "dump-flows", "br-int", "cookie=0x70000000000/0xff0000000000")
    tags = {f"nw_tos={tag << 2}" for tag in found if tag}
    flows = [in_agent(lab, name, *words) for name in NODES] if len(tags) == len(names) else []
    return bool(flows) and all(tag in one for tag in tags for one in flows)
