"""Tunnels of another type than Geneve: packets between Nodes are VXLAN or GRE, and everything else holds as with Geneve."""

from __future__ import annotations

import json
import subprocess
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import pytest
import workstation
from agent_node import antctl, fresh_agent, in_agent, pod_namespace
from config_map import ConfigMap
from own_lab import own_lab
from quiet_pod import SERVING, quiet_pods
from test_lab_no_encap import CLOSED, Addresses, fetch, gets, near_and_far, on_the_wire, seen
from test_lab_reachability import unreachable

from lab.process import wait_for
from lab.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lab.cluster import Lab

NODES = ("node-1", "node-2")


class Tunnel(NamedTuple):
    """A type of tunnels."""

    kind: str
    wire: str
    """Its packets, as a filter of tcpdump."""
    mtu: int
    """MTU of Pods where cards carry 1,500 bytes."""


VXLAN = Tunnel("vxlan", "udp dst port 4789", 1450)
GRE = Tunnel("gre", "ip proto 47", 1458)


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with own_lab("tunnels", Settings(nodes=2, family="dual", agent={"tunnelType": VXLAN.kind})) as found:
        yield found


@pytest.fixture(scope="module")
def pods(lab: Lab) -> Iterator[Addresses]:
    with near_and_far(lab) as found:
        yield found


def ping(lab: Lab, pods: Addresses, version: int, size: int) -> bool:
    """Whether an IP packet of `size` bytes that may not be fragmented gets from `near` to `far` and back."""
    payload = size - (28 if version == 4 else 48)
    inside = pod_namespace(lab, "node-1", pods["near"][4])
    words = [*inside, "ping", "-c", "1", "-W", "5", "-M", "do", "-s", str(payload), pods["far"][version]]
    return subprocess.run(words, capture_output=True, check=False).returncode == 0


def check_wire(lab: Lab, pods: Addresses, tunnel: Tunnel, file: Path) -> None:
    """All that passes between the Pods is in this tunnel, both ways, with the largest packet that it carries."""
    with on_the_wire(lab, file):
        for version in (4, 6):
            assert fetch(lab, pods, pods["far"][version], path="clientip") == pods["near"][version]
            assert ping(lab, pods, version, tunnel.mtu)
        for source, target in (("172.31.0.11", "172.31.0.12"), ("172.31.0.12", "172.31.0.11")):
            packets = f"src host {source} and dst host {target} and {tunnel.wire}"
            wait_for(f"{packets} on the wire", partial(seen, file, f"{packets} and greater 1500"), seconds=30)
    others = "udp port 6081 or udp port 4789 or ip proto 47"
    assert seen(file, f"({others}) and not ({tunnel.wire})") == []
    assert seen(file, " or ".join(f"host {pods[name][v]}" for name in pods for v in (4, 6))) == []


def check_tools(lab: Lab, pods: Addresses, tunnel: Tunnel) -> None:
    """What the agent and antctl say of the tunnel is true."""
    info = json.loads(antctl(lab, "node-1", "get", "agentinfo", "-o", "json"))
    assert info["networkInfo"]["podMTU"] == tunnel.mtu
    words = ("traceflow", "-S", "near", "-D", pods["far"][4], "-o", "json")
    found = json.loads(workstation.run(lab, *words).stdout)
    each = [one for result in found["results"] for one in result["observations"]]
    assert [one["tunnelDstIP"] for one in each if "tunnelDstIP" in one] == ["172.31.0.12"]
    assert f"it leaves by port antrea-tun0, the {tunnel.kind} tunnel" in [one["explanation"] for one in each]
    path = f"{tunnel.kind} tunnel from Node node-1 to Node node-2"
    assert found["explain"]["path"] == path
    ends = ("--from", "default/near", "--to", "default/far", "--port", "8080/tcp")
    assert f"Path: {path}." in workstation.run(lab, "explain", *ends).stdout
    assert unreachable(lab) == ""
    doctor = in_agent(lab, "node-1", "sh", "-c", "antctl doctor || true")
    assert not [text for text in ("cannot be reached", "longer packets", "packets of") if text in doctor], (
        doctor
    )


def check_policy(lab: Lab, pods: Addresses, where: str, way: str) -> None:
    """A NetworkPolicy at this Pod ends the traffic between the Nodes, and its removal lets it pass again."""
    far = pods["far"][4]
    lab.api.apply(CLOSED.replace("WHERE", where).replace("TYPE", way))
    try:
        wait_for("no way", partial(gets, lab, pods, far, 8080, "curl: (28)"), seconds=60)
    finally:
        lab.api.kubectl("delete", "networkpolicy", "routed")
    wait_for("the way", partial(gets, lab, pods, far, 8080, "far"), seconds=60)


def test_packets_between_nodes_are_vxlan(lab: Lab, pods: Addresses, tmp_path: Path) -> None:
    check_wire(lab, pods, VXLAN, tmp_path / "wire.pcap")
    check_tools(lab, pods, VXLAN)
    check_policy(lab, pods, "far", "Ingress")


def change(lab: Lab, **keys: object) -> None:
    """The configuration, with a restart of each agent after the other."""
    config = ConfigMap(lab)
    config.change(**keys)
    for machine in NODES:
        fresh_agent(lab, machine)


@pytest.mark.wide
def test_a_rolling_restart_changes_the_type_and_the_port(lab: Lab, pods: Addresses, tmp_path: Path) -> None:
    text = ConfigMap(lab).text
    try:
        change(lab, tunnelType="gre")
        wait_for("the way by GRE", partial(gets, lab, pods, pods["far"][4], 8080, "far"), seconds=60)
        with quiet_pods(lab, {"near2": "node-1"}, SERVING):  # a Pod that starts now has the new MTU
            mtu = lab.api.kubectl("exec", "near2", "--", "cat", "/sys/class/net/eth0/mtu")
        assert int(mtu) == GRE.mtu
        check_wire(lab, pods, GRE._replace(mtu=VXLAN.mtu), tmp_path / "gre.pcap")
        check_tools(lab, pods, GRE)
        check_policy(lab, pods, "near", "Egress")
        change(lab, tunnelType="vxlan", tunnelPort=8472, tunnelCsum=True)
        wait_for("the way by VXLAN", partial(gets, lab, pods, pods["far"][4], 8080, "far"), seconds=60)
        with on_the_wire(lab, file := tmp_path / "vxlan.pcap"):
            assert fetch(lab, pods, pods["far"][4]) == "far"
            wait_for("the port on the wire", partial(seen, file, "udp dst port 8472"), seconds=30)
        # a UDP checksum of 0 is none
        assert seen(file, "udp dst port 8472 and udp[6:2] = 0") == []
    finally:
        ConfigMap(lab).write(text)
        for machine in NODES:
            fresh_agent(lab, machine)
