"""How many new connections are lost when a Node with an Egress IP is drained, and when it is back?

`python -m benchmarks.drain [ROUNDS]`: a lab of three Nodes, from each of which a Pod with the Egress IP asks a host outside 100
times a second, each time from a new port. The holder is cordoned in one round and loses the pool's label in the next; when the next
one alone has the address, it gets it back. Figures are questions without an answer, in each round.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from figure import show

from benchmarks.failover import IP, NODES, holder, pod, thing
from lab import cluster, namespace, node
from lab.process import wait_for
from lab.record import Record
from lab.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab.cluster import Lab

ROUNDS = 10
PROGRAM = (sys.executable, str(Path(__file__).parents[1] / "tests/lab/newcomers.py"))
LABEL = "gateway"
DRAINS = (("cordon", "uncordon"), (f"label node {LABEL}-", f"label node {LABEL}=yes"))
"""How a Node goes, and how it returns; the Node's name follows the first words."""
FIRST_PORT = 9003


class Found(msgspec.Struct, frozen=True):
    """What one sender says in the end."""

    sent: int
    lost: list[float]
    """Seconds after its start."""
    seen: str
    """Its address outside."""
    others: dict[str, list[float]]


def kubectl(lab: Lab, words: str, name: str) -> None:
    verb, *rest = words.split()
    kind, rest = rest[:1], rest[1:]
    lab.api.kubectl(verb, *kind, name, *rest)


def holders(lab: Lab) -> list[str]:
    """The Nodes that have the address."""
    return [name for name in NODES if f" {IP}/" in node.execute(lab.record, name, "ip", "-o", "addr")]


@contextlib.contextmanager
def asking(lab: Lab) -> Iterator[list[Found]]:
    """Pods of all Nodes ask while the block lasts; then the list has what came of it."""
    target, found = lab.topology.machine("outside").address("eth0", 4), list[Found]()
    outside = namespace.inside(namespace.path(lab.record, "outside"), [])
    pods = {
        name: lab.api.kubectl("get", "pod", f"web-{name}", "-o", "jsonpath={.status.podIP}") for name in NODES
    }
    with contextlib.ExitStack() as stack:

        def run(argv: list[str], first: str | None = None) -> subprocess.Popen[str]:
            ends: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
            process = stack.enter_context(subprocess.Popen(argv, **ends))
            stack.callback(process.kill)
            assert process.stdout is not None
            assert first is None or process.stdout.readline().strip() == first
            return process

        senders = []
        for number, name in enumerate(NODES):
            port = str(FIRST_PORT + number)
            run([*outside, *PROGRAM, "serve", target, port], "listening")
            inside = node.inside_pod(lab.record, name, pods[name])
            senders.append(run([*inside, *PROGRAM, "send", target, port]))
        yield found
        for one in senders:
            out, _ = one.communicate("", timeout=120)
            found.append(msgspec.json.decode(out, type=Found))


def drained(lab: Lab, go: str, back: str) -> list[Found]:
    """One Node goes and returns."""
    home = holder(lab)
    with asking(lab) as found:
        kubectl(lab, go, home)
        wait_for("the next holder", lambda: holder(lab) not in ("", home), seconds=60)
        wait_for("its sole address", lambda: holders(lab) == [holder(lab)], seconds=60)
        kubectl(lab, back, home)
        wait_for("the address at home", lambda: holders(lab) == [home], seconds=60)
    return found


def prepare(lab: Lab) -> None:
    """A pool of all Nodes, an Egress, a Pod on each Node."""
    lab.api.kubectl("label", "node", *NODES, f"{LABEL}=yes")
    pool = {"ipRanges": [{"start": IP, "end": IP}], "nodeSelector": {"matchLabels": {LABEL: "yes"}}}
    lab.api.apply(thing("ExternalIPPool", "any", pool))
    selector = {"podSelector": {"matchLabels": {"egress": "web"}}}
    lab.api.apply(thing("Egress", "web", {"appliedTo": selector, "externalIPPool": "any"}))
    wait_for("a holder", lambda: holder(lab), seconds=60)
    for name in NODES:
        lab.api.apply(pod(f"web-{name}", name))
    lab.api.kubectl("wait", "--for=condition=Ready", "pods", "-l", "egress=web", "--timeout=90s")
    wait_for("the Egress IP", lambda: _all_leave_by_it(lab), seconds=60)


def _all_leave_by_it(lab: Lab) -> bool:
    with asking(lab) as found:
        time.sleep(1)
    return all(one.seen == IP and not one.others for one in found)


def main() -> None:
    """Figures on standard output, each round on standard error."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS
    record, lost = Record(f"drain{os.getpid()}"), list[float]()
    try:
        lab = cluster.up(record, Settings(nodes=3), lambda _line: None)
        prepare(lab)
        for number in range(rounds):
            found = drained(lab, *DRAINS[number % len(DRAINS)])
            lost.append(sum(len(one.lost) for one in found))
            others = [at for one in found for at in (one.seen, *one.others) if at != IP]
            told = {
                "sent": [one.sent for one in found],
                "lost": [one.lost for one in found],
                "others": others,
            }
            print(f"{number + 1}: {json.dumps(told)}", file=sys.stderr)
        show("drain_lost", "new connections", lost)
        show("drain_lost_in_all", "new connections", [sum(lost)], target=0)
    finally:
        cluster.down(record)


if __name__ == "__main__":
    main()
