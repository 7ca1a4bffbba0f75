"""A configuration that does not name the interface that reaches other Nodes, as found by the next Node that starts anew."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import yaml
from agent_node import in_agent
from config_map import ConfigMap
from own_lab import own_lab
from test_lab_reachability import events, unreachable

from lab import fault
from lab.process import wait_for
from lab.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab.cluster import Lab

pytestmark = [pytest.mark.wide, pytest.mark.timeout(900)]

WHY = (
    " leave by eth0, and not by br-phy with the transport interface eth1:"
    " transportInterface in antrea-agent.conf has to name the one that reaches other Nodes"
)


@pytest.fixture(scope="module")
def two() -> Iterator[Lab]:
    with own_lab("transport", Settings(nodes=2)) as lab:
        yield lab


def restart(lab: Lab, name: str) -> None:
    fault.inject(lab, name, "power-off")
    fault.inject(lab, name, "power-on")


def test_a_node_that_starts_without_transport_interface_is_named(two: Lab) -> None:
    """Its tunnels end at its Node IP then, which the other Node reaches by another interface than its own tunnels'."""
    config = ConfigMap(two)
    settings = yaml.safe_load(config.text)
    del settings["transportInterface"]
    config.write(yaml.safe_dump(settings))
    restart(two, "node-2")
    wait_for("the condition", lambda: WHY in unreachable(two), seconds=180)
    wait_for("an Event of the Node", lambda: WHY in events(two).get("PodsUnreachable", ""), seconds=60)
    found = in_agent(two, "node-1", "sh", "-c", "antctl doctor || true")
    assert "Pods of Node node-2 cannot be reached: its gateway 10.244." in found
    assert "# set transportInterface in antrea-agent.conf" in found

    config.write(config.text)
    restart(two, "node-2")
    wait_for("the end of the condition", lambda: unreachable(two) == "", seconds=180)
