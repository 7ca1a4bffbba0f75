"""How soon does an agent that starts again hold a thousand ports of its Node?

The parts are those of tests/host/test_host_node_port_local_figures.py, whose namespaces they need. Needs root.
"""

from __future__ import annotations

import subprocess
import sys


def main() -> int:
    """Status of the run."""
    test = (
        "tests/host/test_host_node_port_local_figures.py",
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
