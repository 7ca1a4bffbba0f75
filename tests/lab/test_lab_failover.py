"""A Node that holds an Egress IP loses its power: another one takes the address, and Pods go on with it."""

from __future__ import annotations

import contextlib
import json
import re
import signal
import subprocess
from contextlib import contextmanager
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from admission_object import crd
from agent_node import in_agent, pod_namespace, wait_ready
from newcomers import PORT, connecting
from outside_host import address, source_of
from quiet_pod import quiet_pods

from lab import fault, node
from lab.process import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lab.cluster import Lab

IP = "172.30.0.210"
NODES = ("node-1", "node-2", "node-3")


@pytest.fixture(scope="module")
def three(three_nodes: Lab) -> Iterator[Lab]:
    """Three Nodes, of which two are a majority; a pool of all, and an Egress for Pods labelled egress=web."""
    lab = three_nodes
    lab.api.apply(
        json.dumps(crd("ExternalIPPool", "any", {"ipRanges": [{"start": IP, "end": IP}], "nodeSelector": {}}))
    )
    selector = {"podSelector": {"matchLabels": {"egress": "web"}}}
    lab.api.apply(json.dumps(crd("Egress", "web", {"appliedTo": selector, "externalIPPool": "any"})))
    wait_for("a holder", lambda: holder(lab), seconds=60)
    for name in NODES:
        wait_for(f"BFD at {name}", lambda name=name: sessions(lab, name) == ["up", "up"], seconds=60)  # type: ignore[misc]
    yield lab
    lab.api.kubectl("delete", "egress", "web")
    lab.api.kubectl("delete", "externalippool", "any")


def holder(lab: Lab) -> str:
    return lab.api.kubectl("get", "egress", "web", "-o", "jsonpath={.status.egressNode}")


def sessions(lab: Lab, where: str) -> list[str]:
    shown = in_agent(
        lab, where, "ovs-vsctl", "--bare", "--columns=bfd_status", "find", "Interface", "type=geneve"
    )
    return re.findall(r"(?<!remote_)state=(\w+)", shown)


@contextmanager
def pinged(inside: list[str], target: str, said: Path) -> Iterator[None]:
    with (
        said.open("w") as out,
        subprocess.Popen([*inside, "ping", "-D", "-n", "-i", "0.01", target], stdout=out) as ping,
    ):
        try:
            wait_for("an answer", lambda: "icmp_seq" in said.read_text(), seconds=60)
            yield
        finally:
            ping.send_signal(signal.SIGINT)
            ping.wait(60)


def longest_gap(said: Path) -> float:
    """Seconds between two answers, at most."""
    at = [float(time) for time in re.findall(r"^\[([\d.]+)\] .*icmp_seq", said.read_text(), re.MULTILINE)]
    return max(after - before for before, after in pairwise(at))


@pytest.mark.wide
def test_new_connections_go_on_while_a_node_is_drained_and_when_it_returns(three: Lab) -> None:
    lab, home = three, holder(three)
    with quiet_pods(lab, {name: name for name in NODES}) as pods:
        lab.api.kubectl("label", "pod", *NODES, "egress=web")
        for name in NODES:
            wait_for("the Egress IP", lambda name=name: source_of(lab, name, 4) == IP, seconds=60)  # type: ignore[misc]
        with contextlib.ExitStack() as stack:
            ends = {
                name: stack.enter_context(
                    connecting(lab, pod_namespace(lab, name, pods[name]), address(lab, 4), PORT + number)
                )
                for number, name in enumerate(NODES)
            }
            lab.api.kubectl("cordon", home)
            wait_for("the next holder", lambda: holder(lab) not in ("", home), seconds=60)
            wait_for("its sole address", lambda: holders(lab) == [holder(lab)], seconds=60)
            lab.api.kubectl("uncordon", home)
            wait_for("the address at home", lambda: holders(lab) == [home], seconds=60)
            found = {name: end() for name, end in ends.items()}
    print({name: (one["sent"], one["lost"], one["others"]) for name, one in found.items()})
    assert {name: (one["seen"], one["others"]) for name, one in found.items()} == {
        name: (IP, {}) for name in NODES
    }
    # of two moves; none is to be lost where Nodes do not stand still for want of a processor
    assert max(len(one["lost"]) for one in found.values()) < 50


def holders(lab: Lab) -> list[str]:
    """The Nodes that have the address."""
    return [name for name in NODES if f" {IP}/" in node.execute(lab.record, name, "ip", "-o", "addr")]


def test_pods_go_on_with_their_egress_ip_when_its_node_loses_power(three: Lab, tmp_path: Path) -> None:
    lab, gone = three, holder(three)
    where, *_ = (name for name in NODES if name != gone)
    said = tmp_path / "ping"
    with quiet_pods(lab, {"web": where}) as pods:
        lab.api.kubectl("label", "pod", "web", "egress=web")
        wait_for("the Egress IP", lambda: source_of(lab, "web", 4) == IP, seconds=60)
        with pinged(pod_namespace(lab, where, pods["web"]), address(lab, 4), said):
            for name in NODES:  # who asks for the router's MAC tells it its own
                node.execute(lab.record, name, "ping", "-c", "1", "-W", "10", address(lab, 4))
            fault.inject(lab, gone, "power-off")
            answered = len(said.read_text())
            wait_for("answers again", lambda: len(said.read_text()) > answered + 2000, seconds=60)
        assert source_of(lab, "web", 4) == IP
        # benchmarks/failover.py measures
        print(f"{longest_gap(said):.2f} s without an answer")
        wait_for("the next holder's name", lambda: holder(lab) not in ("", gone), seconds=60)

        fault.inject(lab, gone, "power-on")
        wait_ready(lab, gone)
        wait_for("the address at home", lambda: holder(lab) == gone, seconds=60)
        wait_for("the Egress IP", lambda: source_of(lab, "web", 4) == IP, seconds=60)
