"""What a lab shows after a test has failed, for those who cannot go and look: our Pods, and what they last complained of."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from antrea.errors import Unavailable

if TYPE_CHECKING:
    from lab.cluster import Lab

LINES = 12
"""Of each container."""
OURS = "/api/v1/pods?labelSelector=app%20in%20%28antrea%2Cflow-aggregator%29"
WARNINGS = (
    "get",
    "events",
    "-A",
    "--field-selector=type=Warning",
    "--sort-by=.lastTimestamp",
    "--no-headers",
)
_INFORMATION = re.compile(r"I\d{4} ")


def post_mortem(lab: Lab) -> str:
    """Nodes, Pods and warnings as kubectl shows them, then complaints of our containers and how earlier ones ended."""
    said = [_asked(lab, "get", "nodes,pods", "-A", "-o", "wide", "--no-headers")]
    said += _asked(lab, *WARNINGS).splitlines()[-LINES:]
    try:
        pods = lab.api.items(OURS)
    except Unavailable as error:
        return f"{said[0]}\n{error}"
    for pod in pods:
        for state in pod.get("status", {}).get("containerStatuses", ()):
            said += _complaints(lab, pod["metadata"], state)
    return "\n".join(said)


def _complaints(lab: Lab, meta: dict[str, Any], state: dict[str, Any]) -> list[str]:
    pod = meta["name"]
    logs = ("-n", meta["namespace"], "logs", pod, "-c", state["name"])
    said = []
    if state.get("restartCount"):
        text = _asked(lab, *logs, "--previous", f"--tail={LINES}")
        said.append(f"-- {pod} {state['name']}, the end of the one before: {state.get('lastState')}\n{text}")
    text = _asked(lab, *logs, "--tail=2000")
    if lines := [line for line in text.splitlines() if not _INFORMATION.match(line)]:
        said.append("\n".join([f"-- {pod} {state['name']}, warnings and errors:", *lines[-LINES:]]))
    return said


def _asked(lab: Lab, *words: str) -> str:
    try:
        return lab.api.kubectl(*words, seconds=20).rstrip()
    except Unavailable as error:
        return str(error)
