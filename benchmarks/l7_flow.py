"""What does it cost a Pod that its requests are exported, and what the others?

Requests of HTTP/1 on a standing connection, of an annotated Pod and of one that is not, with the annotation and without it in turn. The
parts are those of tests/host/test_host_l7_flow_figures.py, whose namespaces they need. Needs root.
"""

from __future__ import annotations

import sys

from benchmarks.tier_figures import run

if __name__ == "__main__":
    sys.exit(run("host", "l7_flow"))
