"""Without tunnels packets between Pods of two Nodes are on the wire as they are, and everything else holds as with tunnels."""

from __future__ import annotations

import json
import subprocess
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
import workstation
from agent_node import antctl, fresh_agent, in_agent, pod_namespace
from config_map import ConfigMap, value
from outside_host import source_of
from own_lab import own_lab
from quiet_pod import SERVING, quiet_pods
from test_lab_reachability import events, unreachable
from test_lab_traceflow import flows, ways

from lab import namespace
from lab.process import wait_for
from lab.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lab.cluster import Lab

NODES = ("node-1", "node-2")
BIG = {4: 1472, 6: 1452}
"""Octets of an echo that fills 1500 octets, by family."""
SERVICE = """
apiVersion: v1
kind: Service
metadata: {name: routed}
spec:
  ipFamilyPolicy: RequireDualStack
  ipFamilies: [IPv4, IPv6]
  selector: {routed: far}
  ports: [{port: 80, targetPort: 8080}]
"""
CLOSED = """
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: routed}
spec: {podSelector: {matchLabels: {routed: WHERE}}, policyTypes: [TYPE]}
"""
EGRESS = """
apiVersion: crd.antrea.io/v1beta1
kind: ExternalIPPool
metadata: {name: routed}
spec: {ipRanges: [{start: 172.30.0.201, end: 172.30.0.202}], nodeSelector: {}}
---
apiVersion: crd.antrea.io/v1beta1
kind: Egress
metadata: {name: routed}
spec: {appliedTo: {podSelector: {matchLabels: {routed: near}}}, externalIPPool: routed}
"""
Addresses = dict[str, dict[int, str]]
"""By Pod and family."""


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with own_lab("noencap", Settings(nodes=2, family="dual", agent={"trafficEncapMode": "noEncap"})) as found:
        yield found


@pytest.fixture(scope="module")
def pods(lab: Lab) -> Iterator[Addresses]:
    with near_and_far(lab) as found:
        yield found


@contextmanager
def near_and_far(lab: Lab) -> Iterator[Addresses]:
    """Pods that serve HTTP: `near` on node-1 and `far` on node-2."""
    with quiet_pods(lab, {"near": "node-1", "far": "node-2"}, SERVING):
        found: Addresses = {}
        for name in ("near", "far"):
            lab.api.kubectl("label", "pod", name, f"routed={name}")
            shown = json.loads(lab.api.kubectl("get", "pod", name, "-o", "json"))["status"]["podIPs"]
            found[name] = {6 if ":" in one["ip"] else 4: one["ip"] for one in shown}
        yield found


@contextmanager
def on_the_wire(lab: Lab, file: Path) -> Iterator[None]:
    """What passes the card of node-2 is in a file."""
    with captured(namespace.inside(namespace.path(lab.record, "node-2"), []), "eth1", file):
        yield


@contextmanager
def captured(inside: list[str], device: str, file: Path) -> Iterator[None]:
    """What passes a device of a network namespace is in a file; `inside` are the words that bring a command there."""
    words = [*inside, "tcpdump", "-U", "--immediate-mode", "-nn", "-i", device, "-w", str(file)]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            assert "listening" in process.stderr.readline()
            yield
        finally:
            process.terminate()


def seen(file: Path, what: str) -> list[str]:
    """Packets in the file that match."""
    words = ["tcpdump", "-nn", "-r", str(file), what]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.splitlines()


def fetch(lab: Lab, pods: Addresses, address: str, port: int = 8080, path: str = "hostname") -> str:
    """What Pod `near` gets there, or curl's complaint; a client's address without its port."""
    place = f"http://[{address}]:{port}" if ":" in address else f"http://{address}:{port}"
    words = ["curl", "-sS", "-g", "--max-time", "3", f"{place}/{path}"]
    inside = pod_namespace(lab, "node-1", pods["near"][4])
    run = subprocess.run([*inside, *words], capture_output=True, text=True, check=False)
    text = run.stdout or run.stderr
    return text.rpartition(":")[0].strip("[]") if path == "clientip" and not run.returncode else text


def gets(lab: Lab, pods: Addresses, address: str, port: int, text: str) -> bool:
    return text in fetch(lab, pods, address, port)


def test_packets_between_nodes_have_addresses_of_pods_and_all_octets_of_the_card(
    lab: Lab, pods: Addresses, tmp_path: Path
) -> None:
    lab.api.apply(SERVICE)
    spec = json.loads(lab.api.kubectl("get", "service", "routed", "-o", "json"))["spec"]
    with on_the_wire(lab, file := tmp_path / "wire.pcap"):
        for version in (4, 6):
            near, far = pods["near"][version], pods["far"][version]
            assert fetch(lab, pods, far, path="clientip") == near
            inside = pod_namespace(lab, "node-1", pods["near"][4])
            ping = [*inside, "ping", "-c", "1", "-W", "5", "-M", "do", "-s", str(BIG[version]), far]
            assert subprocess.run(ping, capture_output=True, check=False).returncode == 0
        for ip in spec["clusterIPs"]:
            wait_for(f"Service {ip}", partial(gets, lab, pods, ip, 80, "far"), seconds=60)
        for version in (4, 6):
            near, far = pods["near"][version], pods["far"][version]
            for what in (
                f"src host {near} and dst host {far} and tcp dst port 8080",
                f"src host {far} and dst host {near} and tcp src port 8080",
                f"src host {near} and dst host {far} and greater 1514",
            ):
                wait_for(f"{what} on the wire", partial(seen, file, what), seconds=30)
    assert seen(file, "udp port 6081") == []
    assert "antrea-tun0" not in in_agent(lab, "node-1", "ovs-vsctl", "list-ports", "br-int")
    for version in (4, 6):
        own = lab.topology.machine("node-1").address("eth0", version)
        assert source_of(lab, "near", version) == own


@pytest.mark.parametrize(
    ("where", "way"), [("far", "Ingress"), pytest.param("near", "Egress", marks=pytest.mark.wide)]
)
def test_a_policy_holds_at_either_end(lab: Lab, pods: Addresses, where: str, way: str) -> None:
    for ip in pods["far"].values():
        assert fetch(lab, pods, ip) == "far"
    lab.api.apply(CLOSED.replace("WHERE", where).replace("TYPE", way))
    try:
        for ip in pods["far"].values():
            wait_for(f"no way to {ip}", partial(gets, lab, pods, ip, 8080, "curl: (28)"), seconds=60)
    finally:
        lab.api.kubectl("delete", "networkpolicy", "routed")
    for ip in pods["far"].values():
        wait_for(f"the way to {ip}", partial(gets, lab, pods, ip, 8080, "far"), seconds=60)


@pytest.mark.parametrize("version", [4, pytest.param(6, marks=pytest.mark.wide)])
def test_a_trace_follows_a_packet_to_the_other_node_without_a_tunnel(
    lab: Lab, pods: Addresses, version: int
) -> None:
    family = ("-f", "ipv6") if version == 6 else ()
    words = ("traceflow", "-S", "near", "-D", pods["far"][version], *family, "-o", "json")
    found = json.loads(workstation.run(lab, *words).stdout)
    assert found["phase"] == "Succeeded", found
    assert ways(found) == {
        "node-1": [("SpoofGuard", "Forwarded"), ("Forwarding", "Forwarded")],
        "node-2": [("Forwarding", "Received"), ("Forwarding", "Delivered")],
    }
    each = [one for result in found["results"] for one in result["observations"]]
    assert [one["tunnelDstIP"] for one in each if "tunnelDstIP" in one] == []
    assert "it came in by port antrea-gw0" in [one["explanation"] for one in each]


@pytest.mark.wide
def test_the_first_packet_of_live_traffic_has_the_tag_between_the_nodes_alone(
    lab: Lab, pods: Addresses, tmp_path: Path
) -> None:
    near, far = pods["near"][4], pods["far"][4]
    spec = {"source": {"namespace": "default", "pod": "near"}, "destination": {"ip": far}}
    live = {"liveTraffic": True, "timeout": 60, "packet": {"ipHeader": {"protocol": 1}}}
    head = {"apiVersion": "crd.antrea.io/v1beta1", "kind": "Traceflow", "metadata": {"name": "live"}}
    lab.api.apply(json.dumps({**head, "spec": spec | live}))
    status: dict[str, Any] = {}

    def succeeded() -> bool:
        status.update(json.loads(lab.api.kubectl("get", "traceflow", "live", "-o", "json"))["status"])
        return bool(status.get("phase") == "Succeeded")

    try:
        wait_for("the flows of the trace", lambda: flows(lab) > 10, seconds=60)
        tag = json.loads(lab.api.kubectl("get", "traceflow", "live", "-o", "json"))["status"]["dataplaneTag"]
        inside = pod_namespace(lab, "node-2", far)
        with (
            on_the_wire(lab, wire := tmp_path / "wire.pcap"),
            captured(inside, "eth0", got := tmp_path / "pod.pcap"),
        ):
            ping = [*pod_namespace(lab, "node-1", near), "ping", "-c", "2", "-i", "0.5", "-W", "5", far]
            assert subprocess.run(ping, capture_output=True, check=False).returncode == 0
            echo = f"src host {near} and dst host {far} and icmp"
            wait_for("both at the Pod", lambda: len(seen(got, echo)) == 2, seconds=30)
            wait_for("both on the wire", lambda: len(seen(wire, echo)) == 2, seconds=30)
        assert len(seen(wire, f"{echo} and ip[1] == {tag << 2}")) == 1
        assert len(seen(got, f"{echo} and ip[1] == 0")) == 2
        wait_for("the trace is complete", succeeded, seconds=60)
    finally:
        lab.api.kubectl("delete", "traceflow", "live")
    assert ways(status)["node-1"] == [("SpoofGuard", "Forwarded"), ("Forwarding", "Forwarded")]
    assert ways(status)["node-2"] == [("Forwarding", "Received"), ("Forwarding", "Delivered")]


@pytest.mark.wide
def test_what_an_agent_and_antctl_say_is_true_without_tunnels(lab: Lab, pods: Addresses) -> None:
    info = json.loads(antctl(lab, "node-1", "get", "agentinfo", "-o", "json"))
    assert (info["networkInfo"]["podMTU"], info["networkInfo"]["transportInterfaceMTU"]) == (1500, 1500)
    assert unreachable(lab) == ""
    doctor = in_agent(lab, "node-1", "sh", "-c", "antctl doctor || true")
    assert "cannot be reached" not in doctor
    assert "packets of" not in doctor
    said = workstation.run(
        lab, "explain", "--from", "default/near", "--to", "default/far", "--port", "8080/tcp"
    )
    assert "Allow" in said.stdout, said.stdout


@pytest.mark.wide
def test_a_network_that_drops_packets_of_pods_is_named_where_users_look(lab: Lab, pods: Addresses) -> None:
    here = namespace.path(lab.record, "node-1")
    cidr = json.loads(lab.api.kubectl("get", "node", "node-2", "-o", "json"))["spec"]["podCIDRs"][0]
    rules = [
        "nft add table ip drops",
        "nft 'add chain ip drops out { type filter hook output priority 0; }'",
        f"nft add rule ip drops out ip daddr {cidr} drop",
    ]
    namespace.script(lab.record, here, rules)
    try:
        wait_for("the condition", lambda: "without a tunnel" in unreachable(lab), seconds=60)
        wait_for("an Event", lambda: "without a tunnel" in events(lab).get("PodsUnreachable", ""), seconds=60)
        doctor = in_agent(lab, "node-1", "sh", "-c", "antctl doctor || true")
        assert "trafficEncapMode has no tunnels" in doctor
    finally:
        namespace.script(lab.record, here, ["nft delete table ip drops"])
    wait_for("the end of the condition", lambda: unreachable(lab) == "", seconds=60)


@pytest.mark.wide
def test_an_egress_says_that_it_needs_tunnels_and_its_pods_do_not_leave(lab: Lab, pods: Addresses) -> None:
    lab.api.apply(EGRESS)

    def status() -> str:
        return lab.api.kubectl("get", "egress", "routed", "-o", "jsonpath={.status.conditions[*].message}")

    try:
        wait_for("the condition", lambda: "trafficEncapMode noEncap does not have" in status(), seconds=60)
        assert "curl: (28)" in fetch(lab, pods, lab.topology.machine("outside").address("eth0", 4), 80)
    finally:
        lab.api.kubectl("delete", "egress/routed", "externalippool/routed")


def waits_for_restart(lab: Lab) -> bool:
    """Whether an Event says so of the mode."""
    words = ("get", "events", "-A", "--field-selector", "reason=ConfigNeedsRestart")
    return "trafficEncapMode" in lab.api.kubectl(*words, "-o", "jsonpath={.items[*].message}")


@pytest.mark.wide
def test_a_changed_mode_waits_for_a_restart_and_takes_effect_with_it(lab: Lab, pods: Addresses) -> None:
    config = ConfigMap(lab)
    config.change(trafficEncapMode="encap")
    try:
        waiting = ("noEncap", "antrea-agent.conf", '"encap"')
        wait_for("the key waits", lambda: value(lab, "trafficEncapMode") == waiting, seconds=180)
        wait_for("an Event", partial(waits_for_restart, lab), seconds=60)
        for machine in NODES:
            fresh_agent(lab, machine)
        assert "antrea-tun0" in in_agent(lab, "node-1", "ovs-vsctl", "list-ports", "br-int")
        for ip in pods["far"].values():
            wait_for(f"the tunnel to {ip}", partial(gets, lab, pods, ip, 8080, "far"), seconds=60)
    finally:
        config.write(config.text)
        for machine in NODES:
            fresh_agent(lab, machine)
    assert "antrea-tun0" not in in_agent(lab, "node-1", "ovs-vsctl", "list-ports", "br-int")
    for ip in pods["far"].values():
        wait_for(f"the way to {ip}", partial(gets, lab, pods, ip, 8080, "far"), seconds=60)
