"""Header User-Agent of requests to kube-apiserver, which distinguishes programs in its audit log and metrics.

Source: client-go rest/config.go, DefaultKubernetesUserAgent.
"""

from __future__ import annotations

import os
import sys
from pathlib import PurePath
from typing import Final

from antrea import VERSION

PROGRAMS: Final = {
    "agent": "antrea-agent",
    "controller": "antrea-controller",
    "flow_aggregator": "antrea-flow-aggregator",
    "antctl": "antctl",
}
"""Names of programs by the package of their modules."""
ARCHITECTURES: Final = {"x86_64": "amd64", "aarch64": "arm64"}
"""Names that Go has for machines of uname(2)."""


def user_agent(started_as: str = "") -> str:
    """Return text such as `antrea-agent/v0.1.0 (linux/amd64)`.

    `started_as` is the path of the program, by default of this one. A module that `python -m` runs has the name of the program
    whose package it is in. Everything else is `antrea`.
    """
    path = PurePath(started_as or sys.argv[0])
    machine = os.uname().machine
    return f"{_program(path)}/v{VERSION} ({sys.platform}/{ARCHITECTURES.get(machine, machine)})"


def _program(path: PurePath) -> str:
    if path.name in (*PROGRAMS.values(), "kubectl-antrea"):
        return path.name
    *folders, _ = path.parts or ("",)
    package = folders[len(folders) - folders[::-1].index("antrea") :] if "antrea" in folders else ()
    return PROGRAMS.get(package[0], "antrea") if package else "antrea"
