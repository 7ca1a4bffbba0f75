"""A running agent and controller have the series that alerts and dashboards name."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from agent_node import in_agent
from prometheus_rules import ABSENT_AT_FIRST, OF_PROMETHEUS, expressions, series

from lab.process import wait_for

if TYPE_CHECKING:
    from lab.cluster import Lab

READ = """
import ssl, sys, urllib.request
token = open("/var/run/antrea/apiserver/loopback-client-token").read()
request = urllib.request.Request(f"https://127.0.0.1:{sys.argv[1]}/metrics", headers={"Authorization": f"Bearer {token}"})
print(urllib.request.urlopen(request, context=ssl._create_unverified_context(), timeout=20).read().decode())
"""


def names(text: str) -> set[str]:
    """Series of an answer to /metrics."""
    return set(re.findall(r"^(\w+)[{ ]", text, re.MULTILINE))


def test_every_series_of_alerts_and_dashboards_is_one_of_a_running_program(lab: Lab) -> None:
    wanted = {name for expression in expressions().values() for name in series(expression)}
    words = (
        "exec",
        "-n",
        "kube-system",
        "deployment/antrea-controller",
        "--",
        "python3",
        "-c",
        READ,
        "10349",
    )

    def missing() -> set[str]:
        found = names(in_agent(lab, "node-1", "python3", "-c", READ, "10350"))
        found |= names(lab.api.kubectl(*words))
        return wanted - found - OF_PROMETHEUS - ABSENT_AT_FIRST.keys()

    assert len(wanted) > 50
    left = missing()
    # a series without a sample yet comes with the first of them
    wait_for(f"series of programs: {sorted(left)}", lambda: not missing(), seconds=60)
