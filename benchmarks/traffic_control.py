"""What does it cost a Pod that its packets are mirrored or redirected?

Two Pods on a userspace switch: one byte there and back on a standing connection (netperf's TCP_RR), and a stream, with and without a
TrafficControl, in turn. The parts are those of tests/host/test_host_traffic_control_figures.py, whose namespaces they need.
Needs root.
"""

from __future__ import annotations

import subprocess
import sys


def main() -> int:
    """Status of the run."""
    test = (
        "tests/host/test_host_traffic_control_figures.py",
        "-m",
        "wide",
        "-q",
        "-s",
        "-p",
        "no:cacheprovider",
    )
    return subprocess.run([sys.executable, "-m", "pytest", *test], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
