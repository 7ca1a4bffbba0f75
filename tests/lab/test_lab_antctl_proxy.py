"""`antctl proxy`: plain HTTP on a workstation reaches the APIs of controller and agents with credentials they accept."""

from __future__ import annotations

import json
import signal
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
import workstation
from agent_node import antctl

from lab import cluster

if TYPE_CHECKING:
    from lab.cluster import Lab


def fetched(lab: Lab, place: str, path: str) -> Any:
    command = cluster.enter(lab, "control", ["curl", "-sS", "-m", "10", f"http://{place}{path}"])
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=20)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("words", [(), ("--agent-node", "node-1")])
def test_the_proxy_reaches_the_program_that_is_named(lab: Lab, words: tuple[str, ...]) -> None:
    with workstation.running(lab, "proxy", "-p", "0", *words) as proxy:
        assert proxy.stdout
        line = proxy.stdout.readline()
        assert line.startswith("Starting to serve on 127.0.0.1:"), line
        place = line.split()[-1]
        gates = fetched(lab, place, "/featuregates")
        if words:
            assert {row["component"] for row in gates} == {"agent"}
            own = json.loads(antctl(lab, "node-1", "get", "podinterface", "-o", "json"))
            assert fetched(lab, place, "/podinterfaces") == own
        else:
            assert {row["component"] for row in gates} == {"agent", "controller"}
        proxy.send_signal(signal.SIGTERM)
        assert proxy.wait(timeout=60) == 0


def test_the_proxy_names_a_node_that_is_not_there(lab: Lab) -> None:
    done = workstation.run(lab, "proxy", "--agent-node", "nowhere", code=1)
    assert done.stderr == 'Error: request to server failed: nodes "nowhere" not found\n'
