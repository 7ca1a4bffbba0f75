"""What does the agent of a machine outside the cluster take, and how soon does it enforce a policy of 100 rules?

The agent and antrea-controller as processes, the machine's interface behind a userspace switch, and a peer that opens connections
until one is dropped. The parts are those of tests/host/test_host_external_node_figures.py, whose namespaces they need. Needs root.
"""

from __future__ import annotations

import sys

from benchmarks.tier_figures import run

if __name__ == "__main__":
    sys.exit(run("host", "external_node"))
