"""How long does `antctl version` take that asks a running agent, as in its Pod? Compared with `python -c pass`."""

from __future__ import annotations

import os
import subprocess
import sys
import time

from figure import Against, alternate, show

from benchmarks.agent_node import agent_node
from benchmarks.cni_add import ROOT

TIMES = 20
TARGET = 150
"""Milliseconds."""


def main() -> None:
    with agent_node(0) as node:
        node.start_agent()
        node.wait_ready()
        token = node.directory / "antrea" / "apiserver" / "loopback-client-token"
        antctl = ("-m", "antrea.antctl.main", f"--token-file={token}")
        measures = {
            "version": lambda: took(*antctl, "version"),
            "help": lambda: took(*antctl, "--help"),
            "nothing": lambda: took("-c", "pass"),
        }
        found = alternate(measures, TIMES)
    nothing = Against("python -c pass", tuple(found["nothing"]))
    show("antctl_version", "ms", found["version"], against=nothing, target=TARGET)
    show("antctl_help", "ms", found["help"], against=nothing)


def took(*words: str) -> float:
    """Milliseconds until the command has ended well."""
    start = time.perf_counter()
    environment = {**os.environ, "POD_NAME": "antrea-agent-1"}
    subprocess.run([sys.executable, *words], env=environment, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    return (time.perf_counter() - start) * 1e3


if __name__ == "__main__":
    main()
