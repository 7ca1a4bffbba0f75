"""How long does the agent program take from exec to its own /readyz, with 110 Pods and 200 Nodes there? And on what?

The real program against a real API server and Open vSwitch, see agent_node. Its log says when it reached which step; what
imports cost is asked of the interpreter in runs of their own.
"""

from __future__ import annotations

import datetime
import re
import subprocess
import sys
import time
from collections import Counter
from typing import TYPE_CHECKING

from figure import show

from benchmarks.agent_node import PODS, agent_node
from benchmarks.cni_add import ROOT, cpu_of

if TYPE_CHECKING:
    from benchmarks.agent_node import AgentNode

STARTS = 10
TARGET = 3
"""Seconds."""
MAX_VALUE = 8
STEPS = {"listening": "CNI server is listening", "connected": "Pods can be connected"}
"""Names of figures and what the agent logs when it gets there."""


def main() -> None:
    imports = [imported() for _ in range(STARTS)]
    with agent_node(PODS) as node:
        node.start_agent()
        node.wait_ready()
        node.fill()
        node.end_agent()
        starts = [started(node) for _ in range(STARTS)]
    ready = [start["ready"] for start in starts]
    show("agent_start", "s", ready, target=TARGET)
    show("agent_start_max", "s", [max(ready)], target=TARGET)
    show("agent_start_cpu", "s", [start["cpu"] for start in starts])
    show("agent_start_until_imported", "s", imports)
    for step in STEPS:
        show(f"agent_start_until_{step}", "s", [start[step] for start in starts])
    for package, values in packages().items():
        show(f"agent_start_import_{package}", "ms", values)


def started(node: AgentNode) -> dict[str, float]:
    """Seconds since exec of each step, and processor time when ready."""
    wall, clock = time.time(), time.perf_counter()
    pid = node.start_agent()
    node.wait_ready()
    found = {"ready": time.perf_counter() - clock, "cpu": cpu_of((pid,))}
    log = node.log.read_text()
    node.end_agent()
    return found | {step: logged(log, sentence) - wall for step, sentence in STEPS.items()}


def logged(log: str, sentence: str) -> float:
    """Unix time of a sentence of the log (klog writes local time and no year)."""
    line = re.search(rf"^I(\S+ \S+) .*\"{sentence}\"", log, re.MULTILINE)
    if line is None:
        sys.exit(f"the agent did not log {sentence!r}")
    year = datetime.datetime.now().year
    return datetime.datetime.strptime(f"{year}{line[1]}", "%Y%m%d %H:%M:%S.%f").timestamp()


def imported() -> float:
    """Seconds of an interpreter that imports the agent and ends."""
    clock = time.perf_counter()
    subprocess.run([sys.executable, "-c", "import antrea.agent.program"], cwd=ROOT, check=True)
    return time.perf_counter() - clock


def packages() -> dict[str, list[float]]:
    """Milliseconds by top-level package that its own modules take to import, largest first."""
    runs = [_packages() for _ in range(5)]
    total = sum(runs, Counter())
    return {name: [run[name] / 1000 for run in runs] for name, _ in total.most_common(MAX_VALUE)}


def _packages() -> Counter[str]:
    command = [sys.executable, "-X", "importtime", "-c", "import antrea.agent.program"]
    told = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    own: Counter[str] = Counter()
    for line in re.finditer(r"^import time: +(\d+) \| +\d+ \| +([^.\s]+)", told.stderr, re.MULTILINE):
        own["stdlib" if line[2] in sys.stdlib_module_names else line[2]] += int(line[1])
    return own


if __name__ == "__main__":
    main()
