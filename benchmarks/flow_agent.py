"""What does the export of records cost an agent of 20,000 connections, and how late is its loop?

The whole agent on a userspace switch, two Pods with 20,000 standing connections of TCP and 200 new ones a second, which end at once,
without the export and with it. The parts are those of tests/host/test_host_flow_agent_figures.py, whose namespaces they need.
Needs root.
"""

from __future__ import annotations

import sys

from benchmarks.tier_figures import run

if __name__ == "__main__":
    sys.exit(run("host", "flow_agent"))
