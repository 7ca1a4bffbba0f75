"""How long does a trace take in a cluster of three Nodes?

A lab of three Nodes: packets that are injected to a Pod of another Node, to a Service whose Endpoint is on the third one, and out of the
cluster by the Egress IP of another Node; and one of live traffic over all three. The parts are those of
tests/lab/test_lab_traceflow_figures.py. Needs root.
"""

from __future__ import annotations

import sys

from benchmarks.tier_figures import run

if __name__ == "__main__":
    sys.exit(run("lab", "traceflow"))
