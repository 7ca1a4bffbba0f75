"""Does what computes policies grow while Pods, labels and policies come and go for half an hour?

`python -m benchmarks.policy_churn [MINUTES [PART]]`: with the first shape of `policy_compute` standing, Pods and policies
are exchanged for others with new names, and Pods get labels that were never there, up to 100 changes a second. The number of
objects stays. RSS, after a full collection of garbage, is read before the changes and every minute; the figure is the
last one by the first. PART, such as 0.1, takes that part of the shape.
"""

from __future__ import annotations

import asyncio
import gc
import random
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
from figure import show

from antrea.engine import Facts
from antrea.facts.cluster import Pod
from antrea.features.network_policy.controller.kube_policy import KubePolicy
from benchmarks.policy_compute import CHANGED, ROWS, Taken, engine_of, objects

RATE = 100
"""Changes in a second, at most."""
GROWTH = 1.2


class Churn:
    """Makes one change after the other, the same ones each time."""

    def __init__(self, facts: Facts, rows: list[Any]) -> None:
        self._facts = facts
        self._random = random.Random(1)
        self._pods = [row for row in rows if isinstance(row, Pod)]
        self._policies = [row for row in rows if isinstance(row, KubePolicy)]
        self.changes = 0

    def change(self) -> None:
        """A Pod or a policy is exchanged, or a Pod gets other labels."""
        self.changes += 1
        what = self.changes % 3
        rows: list[Any] = self._policies if what == 0 else self._pods
        number = self._random.randrange(len(rows))
        row = rows[number]
        fresh = f"{row.name.partition('_')[0]}_{self.changes}"
        if what == 1:
            labels = f"{row.labels.partition(',changed=')[0]},changed={self.changes}"
            rows[number] = msgspec.structs.replace(row, labels=labels)
        else:
            again = {"uid": fresh} if what == 0 else {}
            rows[number] = msgspec.structs.replace(row, name=fresh, **again)
            self._facts.drop(type(row), row.key)
        self._facts.put(rows[number])


def resident() -> float:
    """MB of this process, garbage collected."""
    gc.collect()
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1000


async def main(minutes: float, part: float) -> None:
    """Prints what was resident each minute, and the figure."""
    facts, sink = Facts(), Taken()
    rows: list[Any] = [ROWS[type(one)](one) for one in objects(CHANGED, part)]
    gc.freeze()
    engine = engine_of(facts, sink)
    for row in rows:
        facts.put(row)
    churn = Churn(facts, rows)
    del rows
    task = asyncio.create_task(engine.run())
    await engine.quiet(reports=False)
    before = seen = resident()
    print(f"{before:.0f} MB before the changes, {sink.entries} entries", flush=True)
    begin = time.monotonic()
    while (past := time.monotonic() - begin) < minutes * 60:
        minute = past // 60
        while time.monotonic() - begin < (minute + 1) * 60:
            for _ in range(RATE // 10):
                churn.change()
            await engine.quiet(reports=False)
            await asyncio.sleep(0.1)
        seen = resident()
        print(f"{seen:.0f} MB after {churn.changes} changes, {sink.entries} entries", flush=True)
    task.cancel()
    if engine.errors.standing:
        sys.exit(str(engine.errors.standing))
    suffix = "" if part == 1 else f"_part_{part:g}"
    show(f"policy_churn_rss{suffix}", "times", [seen / before], target=GROWTH if part == 1 else None)


if __name__ == "__main__":
    asyncio.run(main(*(float(word) for word in (sys.argv[1:] + ["30", "1"][len(sys.argv) - 1 :]))))
