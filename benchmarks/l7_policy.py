"""What does it cost that each request is judged, and how soon are rules with l7Protocols enforced?

Two Pods of a userspace switch: requests on one connection and one large response, through Suricata and without it, in turn; a
rule that changes while requests come; fifty rules after a start of the engine, and of the agent. The parts are those of
tests/host/test_host_l7_figures.py, whose namespaces they need. Needs root.
"""

from __future__ import annotations

import sys

from benchmarks.tier_figures import run

if __name__ == "__main__":
    sys.exit(run("host", "l7"))
