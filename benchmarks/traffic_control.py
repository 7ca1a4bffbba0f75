"""What does it cost a Pod that its packets are mirrored or redirected?

Two Pods on a userspace switch: one byte there and back on a standing connection (netperf's TCP_RR), and a stream, with and without a
TrafficControl, in turn. The parts are those of tests/host/test_host_traffic_control_figures.py, whose namespaces they need.
Needs root.
"""

from __future__ import annotations

import sys

from benchmarks.tier_figures import run

if __name__ == "__main__":
    sys.exit(run("host", "traffic_control"))
