"""The tunnel of userspace OVS in a real cluster: no packet waits for, or is lost over, where the tunnel ends."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest
from agent_node import in_agent, pod_namespace
from quiet_pod import quiet_pods

from antrea.outside.vswitch.tunnel_neighbour_sink import PERIOD, parse
from lab.process import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab.cluster import Lab

NODES = ("node-1", "node-2")
ENDS = {"node-1": "172.31.0.11", "node-2": "172.31.0.12"}


@pytest.fixture(scope="module")
def ping(lab: Lab) -> Iterator[list[str]]:
    """One packet from a Pod of node-1 to one of node-2, as a command that takes, as `-W`, the seconds for an answer."""
    with quiet_pods(lab, {f"tunnel-{name}": name for name in NODES}) as found:
        first, second = (found[f"tunnel-{name}"] for name in NODES)
        yield [*pod_namespace(lab, "node-1", first), "ping", "-c", "1", second, "-W"]


def control(lab: Lab, where: str, command: str) -> str:
    """What ovs-vswitchd of a node answers on its control socket."""
    return in_agent(lab, where, "sh", "-c", f"ovs-appctl -t /run/openvswitch/ovs-vswitchd.*.ctl {command}")


def forget(lab: Lab) -> None:
    """OVS on both nodes as after its start, or long without traffic."""
    for where in NODES:
        control(lab, where, "tnl/neigh/flush")


def known(lab: Lab) -> bool:
    """Whether OVS on both nodes knows where the tunnel to the other one ends."""
    shown = [parse(control(lab, where, "tnl/neigh/show")) for where in NODES]
    return all(("br-phy", end) in rows for rows, end in zip(shown, reversed(ENDS.values()), strict=True))


def test_ovs_knows_the_ends_of_tunnels_without_traffic_so_the_first_packet_arrives(
    lab: Lab, ping: list[str]
) -> None:
    forget(lab)
    wait_for("neighbours in OVS", lambda: known(lab), seconds=PERIOD + 60)
    assert subprocess.run([*ping, "30"], capture_output=True, check=False).returncode == 0


def test_traffic_does_not_keep_a_tunnel_broken_when_ovs_forgets_its_end(lab: Lab, ping: list[str]) -> None:
    """Twice within ten seconds: then OVS has just seen the answer to its question, misses it and drops as long as we send."""
    for _ in range(2):
        forget(lab)
        wait_for(
            "an answer through the tunnel",
            lambda: subprocess.run([*ping, "1"], capture_output=True, check=False).returncode == 0,
            seconds=PERIOD + 60,
            step=0.01,
        )
