"""A cluster without kube-proxy: agents start cold, and Nodes, Pods and a host outside reach Services, in IPv4 and IPv6.

With tunnels between Nodes and without; in both, Endpoints of other Nodes answer directly where a Service asks for that.
"""

from __future__ import annotations

import json
import re
import subprocess
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import pytest
from own_lab import own_lab
from quiet_pod import SERVING, quiet_pods

from lab import cluster, demo, namespace
from lab.process import wait_for
from lab.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lab.cluster import Lab

pytestmark = pytest.mark.wide

MODES = ("encap", "noEncap")
BALANCED, EXTERNAL = ("198.51.100.8", "2001:db8:51::8"), ("198.51.100.9", "2001:db8:51::9")
SERVICE = """
apiVersion: v1
kind: Service
metadata: {name: web}
spec:
  type: LoadBalancer
  ipFamilyPolicy: RequireDualStack
  ipFamilies: [IPv4, IPv6]
  externalIPs: [198.51.100.9, "2001:db8:51::9"]
  selector: {web: "yes"}
  ports: [{port: 80, targetPort: 8080}]
"""


class Asked(NamedTuple):
    """Where the Service is reached, by family."""

    cluster: tuple[str, ...]
    node_ports: dict[str, tuple[str, ...]]
    balanced: tuple[str, ...]
    external: tuple[str, ...]
    outside: tuple[str, ...]


@pytest.fixture(scope="module", params=MODES)
def mode(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def lab(mode: str) -> Iterator[Lab]:
    agent = {"featureGates": {"LoadBalancerModeDSR": True}, "trafficEncapMode": mode}
    settings = Settings(nodes=2, family="dual", kube_proxy="none", proxy_all=True, agent=agent)
    with own_lab("all", settings) as found:
        yield found


def url(ip: str, port: int = 80) -> str:
    return f"http://[{ip}]:{port}" if ":" in ip else f"http://{ip}:{port}"


def fetch(lab: Lab, machine: str, place: str, path: str = "hostname") -> str:
    """What it gets there, or curl's complaint; a client's address without its port."""
    words = ["curl", "-sS", "-g", "--max-time", "3", f"{place}/{path}"]
    inside = cluster.enter(lab, machine, words)
    run = subprocess.run(inside, capture_output=True, text=True, check=False)
    text = run.stdout or run.stderr
    return text.rpartition(":")[0].strip("[]") if path == "clientip" and not run.returncode else text


def outside_addresses(lab: Lab, places: tuple[str, ...]) -> tuple[str, ...]:
    """Whom the Endpoint sees when the host outside asks."""
    return tuple(fetch(lab, "outside", place, "clientip") for place in places)


def code(lab: Lab, place: str) -> str:
    """The HTTP status that the host outside gets there."""
    words = ["curl", "-sS", "-g", "--max-time", "3", "-o", "/dev/null", "-w", "%{http_code}", place]
    inside = cluster.enter(lab, "outside", words)
    return subprocess.run(inside, capture_output=True, text=True, check=False).stdout


def has_code(lab: Lab, place: str, status: str) -> bool:
    return code(lab, place) == status


def answers(lab: Lab, machine: str, place: str) -> bool:
    return fetch(lab, machine, place) == "web"


@pytest.fixture
def asked(lab: Lab) -> Iterator[Asked]:
    """A Pod on node-2 alone; packets for the load balancer's addresses, and external ones, go to node-1."""
    first, outside = lab.topology.machine("node-1"), lab.topology.machine("outside")
    gateway = namespace.path(lab.record, "gateway")
    routes = [
        f"ip route replace {ip} via {first.address('eth0', 6 if ':' in ip else 4)}"
        for ip in BALANCED + EXTERNAL
    ]
    namespace.script(lab.record, gateway, routes)
    with quiet_pods(lab, {"web": "node-2"}, SERVING):
        lab.api.kubectl("label", "pod", "web", "web=yes")
        lab.api.apply(SERVICE)
        given = {"status": {"loadBalancer": {"ingress": [{"ip": ip} for ip in BALANCED]}}}
        lab.api.kubectl(
            "patch", "service", "web", "--subresource=status", "--type=merge", "-p", json.dumps(given)
        )
        spec = json.loads(lab.api.kubectl("get", "service", "web", "-o", "json"))["spec"]
        port = spec["ports"][0]["nodePort"]
        yield Asked(
            tuple(url(ip) for ip in spec["clusterIPs"]),
            {
                machine.name: tuple(url(machine.address("eth0", version), port) for version in (4, 6))
                for machine in lab.topology.nodes
            },
            tuple(map(url, BALANCED)),
            tuple(map(url, EXTERNAL)),
            tuple(outside.address("eth0", version) for version in (4, 6)),
        )
        lab.api.kubectl("delete", "service", "web", "--wait=false")


def told(lab: Lab) -> str:
    """Messages of Events about the mode of load balancing."""
    selector = "reason=LoadBalancerModeUnavailable"
    return lab.api.kubectl(
        "get", "events", "--field-selector", selector, "-o", "jsonpath={.items[*].message}"
    )


def answering(lab: Lab, place: str, file: Path) -> set[str]:
    """Sources of what the host outside gets while it asks there, in capture `file`: address and port."""
    inside, port = cluster.enter(lab, "outside", []), place.rpartition(":")[2]
    words = [
        *inside,
        "tcpdump",
        "-U",
        "--immediate-mode",
        "-nn",
        "-i",
        "eth0",
        "-w",
        str(file),
        f"src port {port}",
    ]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as capture:
        try:
            assert capture.stderr is not None
            assert any("listening on" in line for line in capture.stderr)
            assert fetch(lab, "outside", place) == "web"
        finally:
            capture.terminate()
    read = subprocess.run(["tcpdump", "-nn", "-r", str(file)], capture_output=True, text=True, check=True)
    return set(re.findall(r"IP6? (\S+) > ", read.stdout))


def test_nodes_pods_and_a_host_outside_reach_a_service(
    lab: Lab, mode: str, asked: Asked, tmp_path: Path
) -> None:
    wait_for("the Service", partial(answers, lab, "node-1", asked.cluster[0]), seconds=60)
    places = [("node-1", place) for place in asked.cluster]
    places += [("node-2", place) for place in asked.cluster]
    for name in ("node-1", "node-2"):
        places += [("outside", place) for place in asked.node_ports[name]]
        places += [("node-1", place) for place in asked.node_ports[name]]
    places += [
        (who, place) for who in ("outside", "node-1", "node-2") for place in asked.balanced + asked.external
    ]
    for who, place in places:
        wait_for(f"{place} from {who}", partial(answers, lab, who, place), seconds=60)
    assert outside_addresses(lab, asked.node_ports["node-2"]) == asked.outside

    # packets come by node-1, the Endpoint is on node-2
    places_by_node_1 = (*asked.balanced, *asked.external, *asked.node_ports["node-1"])
    assert not set(outside_addresses(lab, places_by_node_1)) & set(asked.outside)
    lab.api.kubectl("annotate", "service", "web", "service.antrea.io/load-balancer-mode=dsr")
    wait_for(
        "the client's addresses",
        lambda: outside_addresses(lab, places_by_node_1) == asked.outside * 3,
        seconds=60,
    )
    for place in (*asked.balanced, *asked.node_ports["node-1"]):
        address, _, number = place.removeprefix("http://").rpartition(":")
        assert answering(lab, place, tmp_path / f"{mode}.pcap") == {f"{address.strip('[]')}.{number}"}
    # Nodes that ask a NodePort of another one, whose Endpoint is their own, and Pods
    assert all(answers(lab, "node-2", place) for place in asked.node_ports["node-1"])
    assert told(lab) == ""

    lab.api.kubectl("patch", "service", "web", "-p", '{"spec": {"externalTrafficPolicy": "Local"}}')
    dropped = asked.node_ports["node-1"][0]
    wait_for("no way through node-1", lambda: "curl: (28)" in fetch(lab, "outside", dropped), seconds=60)
    assert outside_addresses(lab, asked.node_ports["node-2"]) == asked.outside
    port = int(lab.api.kubectl("get", "service", "web", "-o", "jsonpath={.spec.healthCheckNodePort}"))
    for name, status in (("node-1", "503"), ("node-2", "200")):
        check = url(lab.topology.machine(name).address("eth0", 4), port)
        wait_for(f"the health check of {name}", partial(has_code, lab, check, status), seconds=60)
        assert code(lab, url(lab.topology.machine(name).address("eth0", 4), 10256) + "/healthz") == "200"


def test_pods_reach_a_service_by_its_name(lab: Lab) -> None:
    said: list[str] = []
    demo.show(lab, said.append)
    assert said.count("server") == len(lab.topology.versions) + 1


def denying(lab: Lab, asked: Asked, action: str) -> None:
    """A policy for the Service: what becomes of the host outside; nobody else is let in where it is allowed."""
    blocks = [{"ipBlock": {"cidr": f"{ip}/{128 if ':' in ip else 32}"}} for ip in asked.outside]
    rest = [{"action": "Drop"}] if action == "Allow" else []
    spec = {
        "priority": 5,
        "appliedTo": [{"service": {"name": "web", "namespace": "default"}}],
        "ingress": [{"action": action, "from": blocks}, *rest],
    }
    kind = {"apiVersion": "crd.antrea.io/v1beta1", "kind": "ClusterNetworkPolicy"}
    lab.api.apply(json.dumps({**kind, "metadata": {"name": "node-port"}, "spec": spec}))


def realized(lab: Lab) -> bool:
    """Whether both Nodes have the policy as it is now."""
    found = json.loads(lab.api.kubectl("get", "acnp", "node-port", "-o", "json"))
    status, generation = found.get("status", {}), found["metadata"]["generation"]
    nodes = (status.get("currentNodesRealized"), status.get("desiredNodesRealized"))
    return (status.get("phase"), status.get("observedGeneration"), nodes) == (
        "Realized",
        generation,
        (2, 2),
    )


def says(lab: Lab, machine: str, place: str, text: str) -> bool:
    return text in fetch(lab, machine, place)


def test_a_policy_for_the_service_decides_who_reaches_its_node_ports(lab: Lab, asked: Asked) -> None:
    """By the Node of the Endpoint and by the other one, whose packets go through the tunnel."""
    places = [place for name in ("node-1", "node-2") for place in asked.node_ports[name]]
    for place in places:
        wait_for(f"{place} from outside", partial(answers, lab, "outside", place), seconds=60)
    # curl's words for no answer, and for a connection that is refused
    for action, text in (("Drop", "curl: (28)"), ("Reject", "curl: (7)"), ("Allow", "web")):
        denying(lab, asked, action)
        wait_for(f"{action} on both Nodes", partial(realized, lab), seconds=60)
        for place in places:
            wait_for(f"{action} at {place}", partial(says, lab, "outside", place, text), seconds=60)
        for place in asked.balanced:
            wait_for(f"{place} beside {action}", partial(answers, lab, "outside", place), seconds=60)
        assert answers(lab, "node-1", asked.cluster[0])
    lab.api.kubectl("delete", "acnp", "node-port")
