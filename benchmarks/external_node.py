"""What does the agent of a machine outside the cluster take, and how soon does it enforce a policy of 100 rules?

The agent and antrea-controller as processes, the machine's interface behind a userspace switch, and a peer that opens connections
until one is dropped. The parts are those of tests/host/test_host_external_node_figures.py, whose namespaces they need. Needs root.
"""

from __future__ import annotations

import subprocess
import sys


def main() -> int:
    """Status of the run."""
    test = (
        "tests/host/test_host_external_node_figures.py",
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
