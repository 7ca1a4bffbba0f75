"""How much memory does an agent's code take for what it tells others: its API, AntreaAgentInfo, metrics, bundles, configuration?

`python -m benchmarks.agent_share`: a fresh interpreter imports all that the agent imports but for these, then the agent.
"""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path

from figure import show

from benchmarks.cni_add import ROOT

TIMES, TARGET = 5, 10
AGENT = "antrea.agent.program"
SHARE = (
    "aiohttp.web",
    "antrea.agent.api.agent_info",
    "antrea.agent.api.view",
    "antrea.agent.api.server",
    "antrea.features.membership.agent_part.part",
    "antrea.agent.api.metrics",
    "antrea.features.network_policy.agent_part.policies",
    "antrea.agent.api.support_bundle",
    "antrea.agent.api.trace_packet",
    "antrea.agent.api.trace_request",
    "antrea.agent.api.trace_packet",
    "antrea.features.registry.api_resources",
    "antrea.outside.apiserver",
    "antrea.outside.support_bundle.plan",
    "antrea.outside.kube.config_map",
    "antrea.outside.reload.configuration",
    "antrea.outside.controlplane.client",
    "antrea.outside.http.loopback_token",
    "antrea.outside.reload.supervisor",
    "antrea.outside.http.handlers",
    "antrea.outside.support_bundle.server",
)
"""Modules, with all below them, and the ones that import everything."""


def ours(module: str) -> bool:
    whole = (AGENT, "antrea.agent.assembly")
    return (
        module in whole
        or module.startswith(("aiohttp.web_", *(f"{one}." for one in SHARE)))
        or module in SHARE
    )


def resident() -> float:
    """MiB."""
    status = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in status if line.startswith("VmRSS")) / 1024


def asked(*words: str) -> str:
    return subprocess.run(
        [sys.executable, *words], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout


def main(others: str = "") -> None:
    if others:
        for module in json.loads(others):
            importlib.import_module(module)
        before = resident()
        importlib.import_module(AGENT)
        print(json.dumps([before, resident()]))
        return
    loaded = json.loads(asked("-c", f"import {AGENT}, sys, json; print(json.dumps(list(sys.modules)))"))
    others = json.dumps([one for one in loaded if one.startswith(("antrea", "aiohttp")) and not ours(one)])
    found = [json.loads(asked("-m", "benchmarks.agent_share", others)) for _ in range(TIMES)]
    show("agent_code", "MiB", [after for _, after in found])
    show("agent_share_of_control_plane", "MiB", [after - before for before, after in found], target=TARGET)


if __name__ == "__main__":
    main(*sys.argv[1:])
