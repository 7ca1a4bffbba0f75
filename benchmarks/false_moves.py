"""How often does an address of a pool move though no Node is lost, with all processors at work and every twentieth packet lost?

`python -m benchmarks.false_moves [MINUTES [egress|service]]` (30, egress): a lab of three Nodes with 30 addresses, of Egresses or of
Services. For the first half packets are lost at random; for the other half ten in a row of each 200.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from figure import show

from benchmarks.failover import NODES, agent_of, has_sessions, thing
from lab import cluster, fault
from lab.process import wait_for
from lab.record import Record
from lab.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lab.cluster import Lab

MINUTES = 30.0
ADDRESSES = 30
LINK, PERCENT = "eth1", 5.0
BURST = 10
"""Packets in a row: a quarter of a second of BFD's and gossip's."""
SPIN = "while True: pass"


class Kind(NamedTuple):
    """What has the addresses."""

    make: Callable[[str], str]
    """The object of a name."""
    event: str
    """Reason of Events of moves."""
    holders: Callable[[Lab], dict[str, str]]
    """Which Node has the address of each; empty: none."""


def egress(name: str) -> str:
    return thing("Egress", name, {"appliedTo": {}, "externalIPPool": "any"})


def service(name: str) -> str:
    meta = {"name": name, "annotations": {"service.antrea.io/external-ip-pool": "any"}}
    spec = {"type": "LoadBalancer", "selector": {"app": "none"}, "ports": [{"port": 80}]}
    return json.dumps({"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": spec})


def egress_nodes(lab: Lab) -> dict[str, str]:
    found = json.loads(lab.api.kubectl("get", "egress", "-o", "json"))["items"]
    return {one["metadata"]["name"]: one.get("status", {}).get("egressNode", "") for one in found}


def service_nodes(lab: Lab) -> dict[str, str]:
    antctl = ("-c", "antrea-agent", "--", "antctl", "get", "serviceexternalip", "-o", "json")
    rows = json.loads(lab.api.kubectl("-n", "kube-system", "exec", agent_of(lab, NODES[0]), *antctl))
    return {row["serviceName"]: row.get("assignedNode", "") for row in rows}


KINDS = {
    "egress": Kind(egress, "EgressTakenOver", egress_nodes),
    "service": Kind(service, "ExternalIPTakenOver", service_nodes),
}


def takeovers(lab: Lab, event: str) -> Counter[str]:
    """How many Events tell of one, by its cause."""
    words = ("get", "events", "-A", f"--field-selector=reason={event}", "-o", "json")
    found = json.loads(lab.api.kubectl(*words))["items"]
    causes: Counter[str] = Counter()
    for one in found:
        causes[one["message"].partition(" ms: ")[2]] += one.get("count") or 1
    return causes


@contextlib.contextmanager
def busy() -> Iterator[None]:
    """All processors."""
    with contextlib.ExitStack() as stack:
        for _ in range(os.cpu_count() or 1):
            spinning = stack.enter_context(subprocess.Popen([sys.executable, "-c", SPIN]))
            stack.callback(spinning.kill)
        yield


def lossy(lab: Lab, seconds: float, burst: int) -> None:
    """Every twentieth packet of each Node, in each direction, so many in a row."""
    for name in NODES:
        fault.lose(lab, name, LINK, PERCENT, burst)
    time.sleep(seconds)
    for name in NODES:
        fault.lose(lab, name, LINK, 0)


def has_all(lab: Lab, kind: Kind) -> bool:
    found = kind.holders(lab)
    return len(found) == ADDRESSES and all(found.values())


def measure(lab: Lab, kind: Kind, seconds: float) -> None:
    before, told = kind.holders(lab), takeovers(lab, kind.event)
    moves: list[float] = []
    with busy():
        for burst in (1, BURST):
            lossy(lab, seconds / 2, burst)
            news = takeovers(lab, kind.event) - told
            told += news
            moves.append(news.total())
            for cause, times in news.most_common():
                print(f"{times} moves: {cause}", file=sys.stderr, flush=True)
    now = kind.holders(lab)
    away = sum(before[name] != now[name] for name in before)
    show("false_moves_random_loss", "moves", moves[:1], target=0)
    show("false_moves_bursts", "moves", moves[1:], target=0)
    show("false_moves_away_at_the_end", "addresses", [away], target=0)


def main() -> None:
    seconds = 60 * float(sys.argv[1] if len(sys.argv) > 1 else MINUTES)
    kind = KINDS[sys.argv[2] if len(sys.argv) > 2 else "egress"]
    record = Record(f"falsemoves{os.getpid()}")
    try:
        lab = cluster.up(record, Settings(nodes=len(NODES)), lambda _line: None)
        ranges = [{"start": "172.30.0.200", "end": f"172.30.0.{199 + ADDRESSES}"}]
        lab.api.apply(thing("ExternalIPPool", "any", {"ipRanges": ranges, "nodeSelector": {}}))
        lab.api.apply("\n---\n".join(kind.make(f"e{number}") for number in range(ADDRESSES)))
        wait_for("holders", lambda: has_all(lab, kind), seconds=60)
        for name in NODES:
            wait_for(f"BFD of {name}", partial(has_sessions, lab, name, 2), seconds=60)
        measure(lab, kind, seconds)
    finally:
        cluster.down(record)


if __name__ == "__main__":
    main()
