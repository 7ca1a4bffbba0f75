"""How long do Pods get no answers when the Node that holds their Egress IP loses its power?

`python -m benchmarks.failover [CANDIDATES [ROUNDS]]`: a lab of three Nodes, all or two of which may hold the address, a Pod that
pings a host outside about 60 times a second, and the power of the holder cut, in turns with BFD between the Nodes and, in five of the
rounds, with gossip alone. Figures are seconds between two answers.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from figure import Against, show

from antrea.errors import Unavailable
from lab import cluster, fault, node
from lab.images import AGNHOST
from lab.process import wait_for
from lab.record import Record
from lab.settings import Settings

if TYPE_CHECKING:
    from lab.cluster import Lab

ROUNDS = 5
ALONE = 5
"""Rounds with gossip alone, at most."""
TARGETS = {3: (0.6, 1.0), 2: (0.9, 1.5)}
"""Seconds, in the median and at most, by candidates."""
IP = "172.30.0.210"
NODES = ("node-1", "node-2", "node-3")


def thing(kind: str, name: str, spec: dict[str, Any]) -> str:
    return json.dumps(
        {"apiVersion": "crd.antrea.io/v1beta1", "kind": kind, "metadata": {"name": name}, "spec": spec}
    )


def pod(name: str, where: str) -> str:
    container = {"name": "main", "image": AGNHOST, "imagePullPolicy": "Never", "args": ["pause"]}
    spec = {"nodeName": where, "terminationGracePeriodSeconds": 0, "containers": [container]}
    metadata = {"name": name, "labels": {"egress": "web"}}
    return json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})


def holder(lab: Lab) -> str:
    return lab.api.kubectl("get", "egress", "web", "-o", "jsonpath={.status.egressNode}")


def agent_of(lab: Lab, where: str) -> str:
    listed = ("-n", "kube-system", "get", "pods", "-l", "component=antrea-agent", "-o", "name")
    return lab.api.kubectl(*listed, f"--field-selector=spec.nodeName={where}").strip()


def in_ovs(lab: Lab, where: str, command: str) -> str:
    words = ("-n", "kube-system", "exec", agent_of(lab, where), "-c", "antrea-ovs", "--", "sh", "-c", command)
    return lab.api.kubectl(*words)


def watch(lab: Lab, candidates: tuple[str, ...], *, on: bool) -> None:
    """Turn BFD on or off at every candidate, and wait until all say so."""
    ports = "$(ovs-vsctl --bare --columns=name find Interface type=geneve | grep ^bfd-)"
    for where in candidates:
        in_ovs(
            lab,
            where,
            f"for port in {ports}; do ovs-vsctl set Interface $port bfd:enable={str(on).lower()}; done",
        )
    wanted = len(candidates) - 1 if on else 0
    for where in candidates:
        wait_for(f"BFD of {where}", partial(has_sessions, lab, where, wanted), seconds=60)
    time.sleep(3)  # a session counts after two seconds


def has_sessions(lab: Lab, where: str, wanted: int) -> bool:
    return in_ovs(lab, where, "ovs-appctl bfd/show").count("Local Session State: up") == wanted


def outage(lab: Lab, candidates: tuple[str, ...], *, bfd: bool) -> float:
    """Seconds without an answer."""
    gone = holder(lab)
    where = next(name for name in reversed(NODES) if name != gone)
    lab.api.apply(pod("web", where))
    lab.api.kubectl("wait", "--for=condition=Ready", "pod/web", "--timeout=60s")
    watch(lab, candidates, on=bfd)
    target = lab.topology.machine("outside").address("eth0", 4)
    with tempfile.TemporaryDirectory() as place:
        said = Path(place, "ping")
        words = ["exec", "web", "--", "ping", "-D", "-n", "-i", "0.01", target]
        with said.open("w") as out, subprocess.Popen(lab.api.command(words), stdout=out) as ping:
            wait_for("answers", lambda: said.read_text().count("seq=") > 100, seconds=60)
            for name in NODES:  # who asks for the router's MAC tells it its own
                node.execute(lab.record, name, "ping", "-c", "1", "-W", "2", target)
            fault.inject(lab, gone, "power-off")
            time.sleep(12)
            ping.terminate()  # SIGINT is ignored where the benchmark runs in the background
        found = longest_gap(said.read_text())
    lab.api.kubectl("delete", "pod", "web", "--wait=true")
    fault.inject(lab, gone, "power-on")
    # the kubelet waits longer before each start of a container that ended; not before that of a new Pod
    lab.api.kubectl("-n", "kube-system", "delete", agent_of(lab, gone), "--force", "--grace-period=0")
    wait_for("the holder back", lambda: back(lab, gone), seconds=300)
    return found


def back(lab: Lab, name: str) -> bool:
    try:
        ready = node.execute(lab.record, name, "curl", "-sk", "-m", "2", "https://127.0.0.1:10350/readyz")
    except Unavailable:
        return False
    return ready.strip() == "ok" and holder(lab) == name


def longest_gap(said: str) -> float:
    """Seconds between two answers, by the time at which each was received: ping waits longer than it is asked to."""
    times = [float(one) for one in re.findall(r"^\[(\d+\.\d+)\].*seq=\d+", said, re.MULTILINE)]
    return max(after - before for before, after in pairwise(times))


def main() -> None:
    how_many, rounds = (*map(int, sys.argv[1:]), *(len(NODES), ROUNDS)[len(sys.argv) - 1 :])
    candidates = NODES[:how_many]
    median, longest = TARGETS[len(candidates)]
    record = Record(f"failover{os.getpid()}")
    try:
        lab = cluster.up(record, Settings(nodes=3), lambda _line: None)
        among = {"key": "kubernetes.io/hostname", "operator": "In", "values": candidates}
        pool = {"ipRanges": [{"start": IP, "end": IP}], "nodeSelector": {"matchExpressions": [among]}}
        lab.api.apply(thing("ExternalIPPool", "any", pool))
        selector = {"podSelector": {"matchLabels": {"egress": "web"}}}
        lab.api.apply(thing("Egress", "web", {"appliedTo": selector, "externalIPPool": "any"}))
        wait_for("a holder", lambda: holder(lab), seconds=60)
        found: dict[bool, list[float]] = {True: [], False: []}
        for number in range(rounds):
            for bfd, values in found.items():
                if bfd or number * ALONE // rounds >= len(values):
                    values.append(outage(lab, candidates, bfd=bfd))
                    means = "BFD and gossip" if bfd else "gossip alone"
                    print(f"{number + 1}, {means}: {values[-1]:.2f} s", file=sys.stderr)
        name, alone = f"failover_outage_{len(candidates)}_candidates", found[False]
        show(name, "s", found[True], against=Against("gossip alone", tuple(alone)), target=median)
        show(
            f"{name}_longest", "s", [max(found[True])],
            against=Against("gossip alone", (max(alone),)), target=longest,
        )  # fmt: skip
    finally:
        cluster.down(record)


if __name__ == "__main__":
    main()
