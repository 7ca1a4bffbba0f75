"""How long does the first computation of all policies take, and how much memory?

`python -m benchmarks.policy_compute [PART]`: four shapes of upstream's own tests (pkg/controller/networkpolicy
TestInitXLargeScale...), from decoded objects to what every agent is told, with spans, each in a process of its own. The
other side is upstream's v2.3.2 in Go on two quiet cores, measured earlier and not in this run. "time" is what the clock
says, "cpu" what the processor was busy with it, "loops" the same in loops of known cost, run by the same process before
and after: the figure to look at on a machine that is slow, or used by others. With the first shape standing, what one Pod more costs the processor until agents would be told, then other labels of it, and its end.
PART, such as 0.1, takes that part of each shape, and says nothing of targets.
"""

from __future__ import annotations

import asyncio
import gc
import os
import resource
import statistics
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import msgspec
from figure import Against, show

from antrea.apis import core
from antrea.apis.networking import NetworkPolicy
from antrea.controller.compute.runtime import FEATURES
from antrea.engine import Engine, Facts
from antrea.engine.core import IMPLEMENTATION
from antrea.facts.cluster import Pod
from antrea.features.grouping.publication import ENTRIES
from antrea.features.grouping.row import namespace_row, pod_row
from antrea.features.network_policy.controller.kube_policy import policy_row
from benchmarks.known_loop import loop_seconds, loops, name_starved

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

TIMES = 3
CHANGES = 200
"""Pods that come, change and go in one measurement; the median of them counts."""
EVENTS, CHANGE_MS = ("added", "labelled", "deleted"), 0.09
CHANGED = "small_namespaces"
SHAPES: dict[str, tuple[tuple[int, int, int], tuple[float, float], tuple[float, float]]] = {
    "small_namespaces": ((25_000, 2, 2), (7.6, 2100), (2.6, 650)),
    "large_namespaces": ((100, 100, 10), (3.1, 1100), (1.0, 290)),
    "one_selects_all": ((1, 1, 10_000), (3.0, 840), (0.16, 90)),
    "policy_per_pod": ((1, 10_000, 1), (20.5, 230), (0.44, 115)),
}
"""Namespaces, applications in each and Pods of each; then seconds and MB of upstream, and what is aimed at."""


class Taken:
    """A sink that counts."""

    def __init__(self) -> None:
        self.entries = 0

    async def apply(self, put: Sequence[Any], drop: Sequence[Any]) -> None:
        self.entries += len(put) - len(drop)

    async def resync(self, entries: Sequence[Any]) -> None:
        self.entries += len(entries)

    async def sweep(self, category: int) -> None:
        """Nothing was there before."""


def objects(name: str, part: float) -> Iterator[Any]:
    """Decoded Namespaces, Pods and policies; policies of an application are for it, from its own Pods or the next one's."""
    spaces, applications, pods = SHAPES[name][0]
    if spaces > 1:
        spaces = max(1, int(spaces * part))
    elif applications > 1:
        applications = max(2, int(applications * part))
    else:
        pods = max(1, int(pods * part))
    for number in range(spaces):
        space = f"ns-{number}"
        yield msgspec.convert({"metadata": {"name": space, "labels": {"app": space}}}, core.Namespace)
        if name in ("small_namespaces", "large_namespaces"):
            yield policy(space, "default-deny-all", {})
        for application in range(applications):
            own = {f"app-{application}": f"scale-{application}"}
            peer = own
            if name == "policy_per_pod":
                own, peer = ({"app": f"scale-{one}"} for one in (application, application ^ 1))
            for one in range(pods):
                yield pod(space, f"pod-{application}-{one}", own)
            for one in range(pods if name == "one_selects_all" else 1):
                yield policy(space, f"np-{application}-{one}", own, peer)


def pod(space: str, name: str, labels: dict[str, str]) -> core.Pod:
    number = hash((space, name))
    found = {
        "metadata": {"namespace": space, "name": name, "labels": labels},
        "spec": {"nodeName": f"node-{number % 1000}"},
        "status": {"podIPs": [{"ip": f"10.{number % 250}.{number // 250 % 250}.{number // 62500 % 250}"}]},
    }
    return msgspec.convert(found, core.Pod)


def policy(
    space: str, name: str, applied: dict[str, str], peer: dict[str, str] | None = None
) -> NetworkPolicy:
    meta = {"namespace": space, "name": name, "uid": f"{space}-{name}", "generation": 1}
    ingress = [{"from": [{"podSelector": {"matchLabels": peer}}]}] if peer else []
    spec = {"podSelector": {"matchLabels": applied}, "policyTypes": ["Ingress"], "ingress": ingress}
    return msgspec.convert({"metadata": meta, "spec": spec}, NetworkPolicy)


ROWS: dict[Any, Callable[[Any], Any]] = {
    core.Namespace: namespace_row,
    core.Pod: pod_row,
    NetworkPolicy: policy_row,
}


def engine_of(facts: Facts, sink: Taken) -> Engine:
    """One that computes what the controller computes of policies, and takes it to `sink`."""
    return Engine(facts, [unit for one in FEATURES for unit in one.units], dict.fromkeys(ENTRIES, sink))


async def computed(name: str, part: float) -> None:
    """Prints seconds of the wall and of the processor, peak RSS in MB, loops, and what changes cost, of this process."""
    facts, sink = Facts(), Taken()
    rows: list[Any] = [ROWS[type(one)](one) for one in objects(name, part)]
    gc.freeze()
    engine = engine_of(facts, sink)
    loop = loop_seconds()
    begin, begun = time.monotonic(), time.process_time()
    for row in rows:
        facts.put(row)
    task = asyncio.create_task(engine.run())
    await engine.quiet(reports=False)
    seconds, busy = time.monotonic() - begin, time.process_time() - begun
    loop = (loop + loop_seconds()) / 2
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000
    more = await changes(engine, facts) if name == CHANGED else []
    task.cancel()
    if not sink.entries or engine.errors.standing:
        sys.exit(f"{name}: {sink.entries} entries, {engine.errors.standing}")
    print(seconds, busy, peak, busy / loop, *more)


async def changes(engine: Engine, facts: Facts) -> list[float]:
    """Milliseconds of the processor for each of `EVENTS`."""
    costs: dict[str, list[float]] = {event: [] for event in EVENTS}
    for number in range(CHANGES):
        space, own = f"ns-{number}", {"app-0": "scale-0"}
        rows = [pod_row(pod(space, "new", labels)) for labels in (own, {**own, "changed": "yes"})]
        for event, row in zip(EVENTS, (*rows, None), strict=True):
            begun = time.process_time()
            if row is None:
                facts.drop(Pod, f"{space}/new")
            else:
                facts.put(row)
            await engine.quiet(reports=False)
            costs[event].append((time.process_time() - begun) * 1000)
    return [statistics.median(found) for found in costs.values()]


def measure(name: str, part: float) -> list[float]:
    """Seconds of the wall and of the processor, MB, loops, and what changes cost, in a fresh process."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.policy_compute", str(part), name],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        sys.exit(done.stderr)
    return [float(word) for word in done.stdout.split()]


def main() -> None:
    """All shapes by turns, or, for one that is named, one measurement."""
    part = float(sys.argv[1]) if len(sys.argv) > 1 else 1.0
    if len(sys.argv) > 2:
        asyncio.run(computed(sys.argv[2], part))
        return
    print(
        f"load average {os.getloadavg()[0]:.1f}; the engine's core runs {IMPLEMENTATION};"
        " upstream's figures are of v2.3.2, not of this run",
        flush=True,
    )
    for name, (_, upstream, targets) in SHAPES.items():
        values = [measure(name, part) for _ in range(TIMES if part == 1 else 1)]
        seconds, megabytes = zip(upstream, targets, strict=True)
        counted = tuple(loops(one) for one in seconds)
        figures = (
            ("time", "s", seconds),
            ("cpu", "s", seconds),
            ("rss", "MB", megabytes),
            ("loops", "loops", counted),
        )
        name_starved(statistics.median(one[0] / one[1] for one in values), 1.0)
        for number, (what, unit, (theirs, target)) in enumerate(figures):
            full = part == 1
            show(
                f"policy_compute_{name}_{what}" + ("" if full else f"_part_{part:g}"),
                unit,
                [one[number] for one in values],
                against=Against("upstream_v2.3.2", (theirs,)) if full else None,
                target=target if full else None,
            )
        for number, event in enumerate(EVENTS if name == CHANGED else (), start=len(figures)):
            suffix = "" if part == 1 else f"_part_{part:g}"
            limit = CHANGE_MS if part == 1 else None
            show(
                f"policy_change_pod_{event}_cpu{suffix}", "ms", [one[number] for one in values], target=limit
            )


if __name__ == "__main__":
    main()
