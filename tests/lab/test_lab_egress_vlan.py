"""Egress IPs of a VLAN in a dual-stack cluster, and what faults do to them: nobody is ever seen with another address."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from admission_object import crd
from agent_node import kill, pid_of, pod_namespace, restart_agent, wait_ready
from outside_host import source_of
from own_lab import own_lab
from quiet_pod import quiet_pods

from antrea.errors import Unavailable
from lab import namespace, node
from lab.process import wait_for
from lab.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab.cluster import Lab

pytestmark = pytest.mark.wide

VLAN, STATIC = 181, "172.30.0.200"
RANGES = {4: ("172.18.181.40", "172.18.181.1", 24), 6: ("fd00:172:18:181::40", "fd00:172:18:181::1", 64)}
PODS = {"near": "node-2", "far": "node-1", "other": "node-2"}
SECONDS = 14
SERVER = """
import collections, socket, sys, time
server = socket.create_server(("192.0.2.10", 8098))
server.settimeout(1)
print("listening", flush=True)
end, seen = time.monotonic() + float(sys.argv[1]), collections.Counter()
while time.monotonic() < end:
    try:
        client, peer = server.accept()
    except TimeoutError:
        continue
    seen[peer[0]] += 1
    client.close()
print(list(seen), flush=True)
"""
CLIENT = """
import socket, sys, time
end, failed = time.monotonic() + float(sys.argv[1]), 0
while time.monotonic() < end:
    try:
        socket.create_connection(("192.0.2.10", 8098), timeout=3).close()
    except OSError:
        failed += 1
    time.sleep(0.02)
print(failed)
"""


@pytest.fixture(scope="module")
def vlan_lab() -> Iterator[Lab]:
    with own_lab("ev", Settings(nodes=2, family="dual", vlans=(VLAN,))) as lab:
        yield lab


@pytest.fixture(scope="module")
def egress(vlan_lab: Lab) -> Iterator[dict[str, str]]:
    """Addresses of the VLAN at node-2 for two Pods, of which one is there; their own addresses by name."""
    lab = vlan_lab
    selector = {"podSelector": {"matchLabels": {"egress": "vlan"}}}
    with quiet_pods(lab, PODS) as ips:
        lab.api.kubectl("label", "pod", "near", "far", "egress=vlan")
        for version, (ip, gateway, prefix) in RANGES.items():
            pool: dict[str, Any] = {
                "ipRanges": [{"start": ip, "end": ip}],
                "subnetInfo": {"gateway": gateway, "prefixLength": prefix, "vlan": VLAN},
                "nodeSelector": {"matchLabels": {"kubernetes.io/hostname": "node-2"}},
            }
            lab.api.apply(json.dumps(crd("ExternalIPPool", f"vlan{version}", pool)))
            spec = {"appliedTo": selector, "externalIPPool": f"vlan{version}"}
            lab.api.apply(json.dumps(crd("Egress", f"vlan{version}", spec)))
        wait_for("the Egress IPs", lambda: seen(lab) == EXPECTED, seconds=60)
        yield ips


EXPECTED = {
    **{(pod, version): RANGES[version][0] for pod in ("near", "far") for version in (4, 6)},
    ("other", 4): "172.30.0.12",
    ("other", 6): "fd00:172:30::12",
}


def seen(lab: Lab) -> dict[tuple[str, int], str]:
    """As whom the host outside sees each Pod; those that do not get there are left out."""
    found = {}
    for pod, version in EXPECTED:
        with contextlib.suppress(Unavailable):
            found[pod, version] = source_of(lab, pod, version)
    return found


@pytest.fixture
def static(vlan_lab: Lab, egress: dict[str, str]) -> Iterator[str]:
    """An Egress with an address that node-2 has, in place of that of the VLAN for IPv4."""
    lab = vlan_lab
    node.execute(lab.record, "node-2", "ip", "addr", "add", f"{STATIC}/32", "dev", "eth0")
    lab.api.kubectl("delete", "egress", "vlan4")
    selector = {"podSelector": {"matchLabels": {"egress": "vlan"}}}
    lab.api.apply(json.dumps(crd("Egress", "static", {"appliedTo": selector, "egressIP": STATIC})))
    for pod in ("near", "far"):
        wait_for(f"the Egress IP of {pod}", lambda pod=pod: seen(lab).get((pod, 4)) == STATIC, seconds=60)  # type: ignore[misc]
    yield STATIC
    lab.api.kubectl("delete", "egress", "static")
    spec = {"appliedTo": selector, "externalIPPool": "vlan4"}
    lab.api.apply(json.dumps(crd("Egress", "vlan4", spec)))
    wait_for("the Egress IPs", lambda: seen(lab) == EXPECTED, seconds=60)


def test_agents_that_are_killed_cost_no_connection_and_no_other_address_is_seen(
    vlan_lab: Lab, egress: dict[str, str], static: str
) -> None:
    lab = vlan_lab
    outside = namespace.path(lab.record, "outside")
    server_words = namespace.inside(outside, [sys.executable, "-c", SERVER, str(SECONDS + 2)])
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(subprocess.Popen(server_words, stdout=subprocess.PIPE, text=True))
        assert server.stdout is not None
        assert server.stdout.readline() == "listening\n"
        clients = [
            stack.enter_context(
                subprocess.Popen(
                    [
                        *pod_namespace(lab, PODS[pod], egress[pod]),
                        *(sys.executable, "-c", CLIENT, str(SECONDS)),
                    ],
                    stdout=subprocess.PIPE,
                    text=True,
                )
            )
            for pod in ("near", "far")
        ]
        for where in ("node-2", "node-1"):
            restart_agent(lab, where)
            wait_ready(lab, where)
        failed = [client.communicate()[0].strip() for client in clients]
        sources = server.communicate()[0].strip()
    assert (failed, sources) == (["0", "0"], str([static]))


def test_after_a_killed_switch_all_is_as_before(vlan_lab: Lab, egress: dict[str, str]) -> None:
    lab = vlan_lab
    kill(pid_of(lab, "node-2", "ovs-vswitchd"))
    wait_for("all as before", lambda: seen(lab) == EXPECTED, seconds=60)


def test_a_device_goes_with_its_last_address(vlan_lab: Lab, egress: dict[str, str]) -> None:
    lab = vlan_lab
    assert "antrea-ext.181" in node.execute(lab.record, "node-2", "ip", "-br", "link")
    lab.api.kubectl("delete", "egress", "vlan4", "vlan6")
    wait_for(
        "the end of the device",
        lambda: "antrea-ext.181" not in node.execute(lab.record, "node-2", "ip", "-br", "link"),
        seconds=60,
    )
    nodes = {("near", 4): "172.30.0.12", ("far", 4): "172.30.0.11"}
    wait_for("the Nodes' addresses", lambda: nodes.items() <= seen(lab).items(), seconds=60)
