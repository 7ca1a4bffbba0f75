"""The ConfigMap antrea-config of a lab as tests change it, and what an agent says that it runs with."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import yaml
from agent_node import AGENT_SECONDS, antctl, wait_ready

from lab.process import wait_for

if TYPE_CHECKING:
    from lab.cluster import Lab

KEY = "antrea-agent.conf"


class ConfigMap:
    """One file of antrea-config of a lab, which gets its text back in the end."""

    def __init__(self, lab: Lab, file: str = KEY) -> None:
        self._lab = lab
        self._file = file
        shown = lab.api.kubectl("-n", "kube-system", "get", "cm", "antrea-config", "-o", "json")
        self.text: str = json.loads(shown)["data"][file]

    def write(self, text: str) -> None:
        patch = json.dumps({"data": {self._file: text}})
        self._lab.api.kubectl(
            "-n", "kube-system", "patch", "cm", "antrea-config", "--type=merge", "-p", patch
        )

    def change(self, **values: object) -> None:
        self.write(yaml.safe_dump({**yaml.safe_load(self.text), **values}))


def value(lab: Lab, key: str) -> tuple[object, str, str]:
    """Value, origin and what waits for a restart, on node-1; nothing while the agent is rebuilt."""
    with_errors = antctl(lab, "node-1", "get", "config", "-o", "json")
    row = next(row for row in json.loads(with_errors) if row["key"] == key)
    return row["value"], row["origin"], row["pending"]


def wait_value(lab: Lab, key: str, wanted: object) -> None:
    def there() -> bool:
        try:
            return value(lab, key)[0] == wanted
        except Exception:
            return False

    wait_for(f"{key} {wanted} in effect", there, seconds=AGENT_SECONDS)
    for machine in lab.topology.nodes:
        wait_ready(lab, machine.name)
