"""How soon does an agent that starts again hold a thousand ports of its Node?

The parts are those of tests/host/test_host_node_port_local_figures.py, whose namespaces they need. Needs root.
"""

from __future__ import annotations

import sys

from benchmarks.tier_figures import run

if __name__ == "__main__":
    sys.exit(run("host", "node_port_local"))
