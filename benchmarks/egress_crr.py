"""How many TCP connections a second does a Pod get through an Egress Node that is not its own, and how many without Antrea?

`python -m benchmarks.egress_crr`: a lab of two Nodes. The Egress IP of a Pod of node-1 is at node-2. Beside that, in the same
switches, stands what is least: a bridge on each Node without a flow, a tunnel between the two, and a rule that translates to
the address of node-2. Both are asked in turns.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from figure import Against, alternate, show

from benchmarks.failover import in_ovs, pod, thing
from lab import cluster, namespace, node
from lab.process import run, wait_for
from lab.record import Record
from lab.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab.cluster import Lab

IP, PORT = "172.30.0.210", 8097
SECONDS = 5.0
ROUNDS = 5
MIN_SHARE = 0.85
PLAIN = {"node-1": "10.99.0.254", "node-2": "10.99.0.1"}
"""Addresses of the bridges without flows; the client's is 10.99.0.2."""
PROGRAM = str(Path(__file__).with_name("transactions.py"))


def egress(lab: Lab) -> list[str]:
    """Words that lead into a Pod whose Egress IP is at the other Node."""
    node.execute(lab.record, "node-2", "ip", "addr", "add", f"{IP}/32", "dev", "eth0")
    lab.api.apply(pod("web", "node-1"))
    selector = {"podSelector": {"matchLabels": {"egress": "web"}}}
    lab.api.apply(thing("Egress", "web", {"appliedTo": selector, "egressIP": IP}))
    lab.api.kubectl("wait", "--for=condition=Ready", "pod/web", "--timeout=60s")
    where = ("get", "egress", "web", "-o", "jsonpath={.status.egressNode}")
    wait_for("the Egress Node", lambda: lab.api.kubectl(*where) == "node-2", seconds=30)
    found = json.loads(lab.api.kubectl("get", "pod", "web", "-o", "json"))
    return node.inside_pod(lab.record, "node-1", found["status"]["podIP"])


@contextlib.contextmanager
def plain(lab: Lab) -> Iterator[list[str]]:
    """Words that lead into a namespace behind the bridge of node-1."""
    space = f"plain{os.getpid()}"
    ends = {name: lab.topology.machine(name).address("eth1", 4) for name in PLAIN}
    (one, first), (other, second) = ends.items()
    for name, peer in ((one, second), (other, first)):
        in_ovs(
            lab,
            name,
            "ovs-vsctl add-br br-plain -- set bridge br-plain datapath_type=netdev"
            " -- add-port br-plain plain0 -- set interface plain0 type=geneve"
            f" options:remote_ip={peer} options:key=99",
        )
        node.execute(lab.record, name, "ip", "link", "set", "br-plain", "up")
        node.execute(lab.record, name, "ip", "addr", "add", f"{PLAIN[name]}/24", "dev", "br-plain")
    node.execute(
        lab.record,
        other,
        "nft",
        "add table ip plain; add chain ip plain out { type nat hook postrouting priority 90; };"
        " add rule ip plain out ip saddr 10.99.0.0/24 oifname eth0 masquerade",
    )
    run(["ip", "netns", "add", space])
    try:
        pid = node.init_pid(lab.record, one)
        run(
            ["ip", "link", "add", "eth0", "netns", space, "type", "veth", "peer", "plain1", "netns", str(pid)]
        )
        inside = namespace.inside(Path("/run/netns", space), [])
        for words in (
            "link set lo up",
            "link set eth0 mtu 1400 up",
            "addr add 10.99.0.2/24 dev eth0",
            f"route add default via {PLAIN[other]}",
        ):
            run([*inside, "ip", *words.split()])
        run([*inside, "ethtool", "-K", "eth0", "tx", "off"])
        node.execute(lab.record, one, "ip", "link", "set", "plain1", "up")
        in_ovs(lab, one, "ovs-vsctl add-port br-plain plain1")
        yield inside
    finally:
        run(["ip", "netns", "del", space])


def rate(inside: list[str], target: str) -> float:
    """Connections a second, once the first has found its way."""
    words = [*inside, sys.executable, PROGRAM, "run", target, str(PORT)]
    subprocess.run([*words, "0.5"], check=True, capture_output=True, timeout=60)
    done = subprocess.run([*words, str(SECONDS)], check=True, capture_output=True, text=True, timeout=60)
    return float(done.stdout)


def main() -> None:
    record = Record(f"egresscrr{os.getpid()}")
    try:
        lab = cluster.up(record, Settings(nodes=2), lambda _line: None)
        target = lab.topology.machine("outside").address("eth0", 4)
        words = [sys.executable, PROGRAM, "serve", target, str(PORT)]
        outside = namespace.inside(namespace.path(record, "outside"), words)
        with (
            plain(lab) as without,
            subprocess.Popen(outside, stdout=subprocess.PIPE, text=True) as server,
        ):
            try:
                assert server.stdout is not None
                server.stdout.readline()
                ways = {"egress": partial(rate, egress(lab), target), "plain": partial(rate, without, target)}
                found = alternate(ways, ROUNDS)
            finally:
                server.kill()
        against = Against("a bare tunnel and masquerade", tuple(found["plain"]))
        show("egress_crr", "/s", found["egress"], against=against)
        slower = [bare / ours for ours, bare in zip(found["egress"], found["plain"], strict=True)]
        show("egress_crr_slower", "times", slower, target=1 / MIN_SHARE)
    finally:
        cluster.down(record)


if __name__ == "__main__":
    main()
