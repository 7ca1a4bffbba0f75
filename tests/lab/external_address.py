"""External IPs of Services as agents, hosts outside and Events show them."""

from __future__ import annotations

import json
import subprocess
from functools import partial
from typing import TYPE_CHECKING

from agent_node import antctl

from lab import cluster
from lab.process import wait_for

if TYPE_CHECKING:
    from lab.cluster import Lab

CLIENTS = ("gateway", "outside")
"""A host on the subnet of the Nodes, and one behind a router."""


def owner(lab: Lab, service: str, where: str) -> str:
    """As the agent of a Node finds it; empty: nobody."""
    rows = json.loads(antctl(lab, where, "get", "serviceexternalip", "-o", "json"))
    return next((row.get("assignedNode", "") for row in rows if row["serviceName"] == service), "")


def answers(lab: Lab, machine: str, ip: str) -> bool:
    host = f"[{ip}]" if ":" in ip else ip
    inside = cluster.enter(lab, machine, ["curl", "-s", "-g", "--max-time", "2", f"http://{host}/"])
    return subprocess.run(inside, capture_output=True, check=False).returncode == 0


def reached(lab: Lab, ip: str) -> None:
    """Wait until each client has an answer."""
    for machine in CLIENTS:
        wait_for(f"an answer to {machine}", partial(answers, lab, machine, ip), seconds=60)


def events(lab: Lab, reason: str) -> dict[str, str]:
    """Messages of Events with this reason, by the name of their object."""
    words = ("get", "events", "-A", f"--field-selector=reason={reason}", "-o", "json")
    return {
        one["involvedObject"]["name"]: one["message"] for one in json.loads(lab.api.kubectl(*words))["items"]
    }
