"""Does a capture lose any of 10,000 packets a second, and does it count those that it loses?

The process that captures, as the agent starts it, at one end of a veth pair, and a sender at the other. The parts are those of
tests/host/test_host_packet_capture_figures.py, whose namespaces they need. Needs root.
"""

from __future__ import annotations

import sys

from benchmarks.tier_figures import run

if __name__ == "__main__":
    sys.exit(run("host", "packet_capture"))
